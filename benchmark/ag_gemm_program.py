"""AG+GEMM as a host program with a persistent, flattened kernel that waits: C = all_gather(A) @ B.T.

Copy engines push the shards in ``chunks``, nearest needer first; the tiles of a chunk wait for its signal. The own
shard is read where it is, by a descriptor of its own.
"""

import torch
import triton.language as tl

import ditron
import ditron.host as dh
import ditron.language as dl


@ditron.jit(do_not_specialize=["epoch"])
def ag_gemm_kernel(
    a_ptr,
    workspace_ptr,
    b_ptr,
    c_ptr,
    signal_ptr,
    rows_per_rank,
    N,
    K,
    epoch,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    CHUNKS: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """Tiles of C, each after the chunk of rows it needs has arrived; rows_per_rank is a multiple of CHUNKS * BM."""
    own = dl.rank()
    chunks = dl.num_ranks() * CHUNKS
    M = rows_per_rank * dl.num_ranks()
    a_desc = tl.make_tensor_descriptor(a_ptr, [rows_per_rank, K], [K, 1], [BM, BK])
    workspace_desc = tl.make_tensor_descriptor(workspace_ptr, [M, K], [K, 1], [BM, BK])
    b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK])
    c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN // 2])
    tiles_n = tl.cdiv(N, BN)
    tiles_m = rows_per_rank // CHUNKS // BM
    k_tiles = tl.cdiv(K, BK)
    waited = own * CHUNKS
    token = dl.wait(signal_ptr + waited, 1, 0)  # of the own chunks: nothing to wait for
    for tile in tl.range(tl.program_id(0), chunks * tiles_m * tiles_n, PROGRAMS, flatten=True):
        chunk = (own * CHUNKS + tile // (tiles_m * tiles_n)) % chunks
        tile = tile % (tiles_m * tiles_n)
        first = tile // (GROUP * tiles_n) * GROUP
        size = tl.minimum(tiles_m - first, GROUP)
        row = (chunk * tiles_m + first + tile % (GROUP * tiles_n) % size) * BM
        col = tile % (GROUP * tiles_n) // size * BN
        if chunk // CHUNKS == own:
            rows = a_desc
            a_row = row - own * rows_per_rank
        else:
            rows = workspace_desc
            if chunk != waited:
                token = dl.wait(signal_ptr + chunk, 1, epoch)
            a_row = dl.consume_token(row, token)
        waited = chunk  # before the K loop: what the epilogue changes cannot be pipelined
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(k_tiles):
            a = rows.load([a_row, k * BK])
            b = b_desc.load([col, k * BK])
            acc = tl.dot(a, b.T, acc)
        left, right = tl.split(tl.permute(tl.reshape(acc, (BM, 2, BN // 2)), (0, 2, 1)))
        c_desc.store([row, col], left.to(c_ptr.dtype.element_ty))
        c_desc.store([row, col + BN // 2], right.to(c_ptr.dtype.element_ty))


@ditron.program(
    example={"a": "bf16[4096, 4096]", "b": "bf16[1792, 4096]", "c": "bf16[8192, 1792]"},
    sample_args=lambda ranks: {
        "a": "bf16[64, 64]",
        "b": "bf16[64, 64]",
        "c": f"bf16[{64 * ranks}, 64]",
        "block": (32, 32, 32),
        "programs": 4,
    },
    max_nodes=1,
)
def ag_gemm(a, b, c, *, chunks=2, group=8, programs=132, block=(128, 256, 64)):
    """``c`` = all ranks' ``a`` [rows, K], one below the other, times the transpose of ``b`` [N, K]."""
    rank, ranks, epoch = dh.rank(), dh.num_ranks(), dh.epoch()
    (rows, K), N = a.shape, b.shape[0]
    part = rows // chunks
    workspace = dh.symm_empty(ranks * rows, K, dtype=a.dtype, name="workspace")
    arrived = dh.symm_zeros(ranks * chunks, dtype=torch.int64, name="arrived")
    done = dh.symm_zeros(ranks, dtype=torch.int64, name="done")

    # Before the kernel is launched: in a graph a wait needs an SM.
    for step in dh.range(1, ranks):
        dh.signal_wait(done[(rank + step) % ranks], epoch - 1)
    begin = dh.record()
    with dh.stream("copy"):
        dh.await_event(begin)
        for step in dh.range(1, ranks):
            for chunk in range(chunks):
                first = rank * rows + chunk * part
                shard = a[chunk * part : (chunk + 1) * part]
                dh.rank_copy(shard, workspace[first : first + part], (rank - step) % ranks)
                dh.signal_write(arrived[rank * chunks + chunk], epoch, (rank - step) % ranks)
    ag_gemm_kernel[(programs,)](
        a,
        workspace,
        b,
        c,
        arrived,
        rows,
        N,
        K,
        epoch,
        BM=block[0],
        BN=block[1],
        BK=block[2],
        GROUP=group,
        CHUNKS=chunks,
        PROGRAMS=programs,
        num_warps=8,
        num_stages=4,
    )
    for step in dh.range(1, ranks):
        dh.signal_write(done[rank], epoch, (rank + step) % ranks)
