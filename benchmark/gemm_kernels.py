"""Matrix products C = A @ B.T whose tile loop waits for rows of A, or publishes rows of C: stock Triton, Hopper, TMA.

A is [M, K] in ``SHARDS`` shards of rows, B is [N, K], C is [M, N]; row-major. M is a multiple of SHARDS * BM. Tiles
go shard by shard, the one of rank ``own`` first, in groups of ``GROUP`` rows of tiles. Kernels are persistent:
``PROGRAMS`` of them, each of which takes every PROGRAMS-th tile.
"""

import triton
import triton.language as tl


@triton.jit
def wait_signal(signal_ptr, epoch):
    """Wait until a signal, written by another rank, is at least ``epoch``. Gives 0: add it to what comes later."""
    return tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b64 v; again: ld.acquire.sys.global.b64 v, [$1]; setp.lt.s64 p, v, $2; @p bra again;"
        " fence.proxy.async.global; mov.b32 $0, 0; }",
        "=r,l,l",
        [signal_ptr, epoch],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def wait_count(count_ptr, value):
    """Wait until a counter of this GPU is at least ``value``. Gives 0."""
    return tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 v; again: ld.acquire.gpu.global.b32 v, [$1]; setp.lt.s32 p, v, $2; @p bra again;"
        " mov.b32 $0, 0; }",
        "=r,l,r",
        [count_ptr, value],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def add_count(count_ptr):
    """Count one, after all that the program has stored so far (TMA stores too)."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 t; cp.async.bulk.wait_group 0; fence.proxy.async.global; bar.sync 0;"
        " mov.u32 t, %tid.x; setp.eq.u32 p, t, 0; @p fence.acq_rel.gpu; @p red.release.gpu.global.add.u32 [$1], 1;"
        " mov.b32 $0, 0; }",
        "=r,l",
        [count_ptr],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


@triton.jit
def clear_count(count_ptr):
    """Set a counter to 0, after all threads of the program have read it."""
    tl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 t; bar.sync 0; mov.u32 t, %tid.x; setp.eq.u32 p, t, 0;"
        " @p st.relaxed.gpu.global.b32 [$1], 0; mov.b32 $0, 0; }",
        "=r,l",
        [count_ptr],
        dtype=tl.int32,
        is_pure=False,
        pack=1,
    )


# Partial sums of a tile whose K is divided among programs. The accumulator's registers go to memory as they lie:
# tl.store would first change the layout, through shared memory that the pipeline has taken.


@triton.jit
def partial_addresses(base_ptr, BM: tl.constexpr, BN: tl.constexpr):
    """Where the elements of a partial sum lie: blocks of 8x8, so that what a warp accesses at once is whole lines."""
    rows, cols = tl.arange(0, BM)[:, None], tl.arange(0, BN)[None, :]
    offsets = 4 * (((rows // 8) * (BN // 8) + cols // 8) * 64 + (rows % 8) * 8 + cols % 8)
    return base_ptr.to(tl.int64, bitcast=True) + offsets.to(tl.int64)


@triton.jit
def store_partial(base_ptr, acc):
    tl.inline_asm_elementwise(
        "st.global.v2.f32 [$2], {$4, $5}; mov.b32 $0, 0; mov.b32 $1, 0;",
        "=r,=r,l,l,f,f",
        [partial_addresses(base_ptr, acc.shape[0], acc.shape[1]), acc],
        dtype=tl.int32,
        is_pure=False,
        pack=2,
    )


@triton.jit
def load_partial(base_ptr, like):
    return tl.inline_asm_elementwise(
        "ld.global.v2.f32 {$0, $1}, [$2];",
        "=f,=f,l,l,f,f",
        [partial_addresses(base_ptr, like.shape[0], like.shape[1]), like],
        dtype=tl.float32,
        is_pure=False,
        pack=2,
    )


@triton.jit
def halves_of(acc):
    """The left and the right half of an accumulator, in registers."""
    return tl.split(tl.permute(tl.reshape(acc, (acc.shape[0], 2, acc.shape[1] // 2)), (0, 2, 1)))


@triton.jit
def store_shared_tile(c_desc, row, col, acc, part, partial_ptr, count_ptr, SPLITS: tl.constexpr):
    """Add up the parts of a tile and store it: part 0 the left half, part 1 the right one, in the order of the parts.

    ``partial_ptr`` has room for SPLITS - 1 halves for each of the two, ``count_ptr`` is a counter for each.
    """
    HALF: tl.constexpr = acc.shape[0] * acc.shape[1] // 2
    left, right = halves_of(acc)
    index = tl.maximum(part - 1, 0)  # of what this part leaves to an owner, among the SPLITS - 1 of it
    if part != 1:
        store_partial(partial_ptr + (SPLITS - 1 + index) * HALF, right)
        add_count(count_ptr + 1)
    if part != 0:
        store_partial(partial_ptr + index * HALF, left)
        add_count(count_ptr)
    if part < 2:
        mine = tl.where(part == 0, left, right)
        partial_ptr += part * (SPLITS - 1) * HALF + wait_count(count_ptr + part, SPLITS - 1)
        for other in range(SPLITS - 1):
            mine += load_partial(partial_ptr + other * HALF, mine)
        clear_count(count_ptr + part)
        c_desc.store([row, col + part * (acc.shape[1] // 2)], mine.to(c_desc.dtype))


@triton.jit
def store_tile(c_desc, row, col, acc, BN: tl.constexpr, HALVES: tl.constexpr):
    """One tile of C by TMA; in two halves it takes half the shared memory, which pays for one more stage."""
    if HALVES:
        left, right = halves_of(acc)
        c_desc.store([row, col], left.to(c_desc.dtype))
        c_desc.store([row, col + BN // 2], right.to(c_desc.dtype))
    else:
        c_desc.store([row, col], acc.to(c_desc.dtype))


@triton.jit
def position(tile, tiles_m, tiles_n, own, SHARDS: tl.constexpr, GROUP: tl.constexpr):
    """Shard, row of tiles in the shard and column of tiles of a tile; a shard has ``tiles_m`` rows of tiles."""
    step = tile // (tiles_m * tiles_n)
    tile = tile % (tiles_m * tiles_n)
    first = tile // (GROUP * tiles_n) * GROUP
    size = tl.minimum(tiles_m - first, GROUP)
    within = tile % (GROUP * tiles_n)
    return (own + step) % SHARDS, first + within % size, within // size


@triton.jit
def gathered_gemm(
    a_desc,
    workspace_desc,
    b_desc,
    c_desc,
    signal_ptr,
    epoch,
    partial_ptr,
    count_ptr,
    M,
    N,
    K,
    own,
    per_signal,
    whole,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SHARDS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr,
    WAIT: tl.constexpr,
    OWN: tl.constexpr,
    HALVES: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """C = A @ B.T, each tile after its rows of A have arrived.

    The own shard is read from ``a_desc`` if OWN, the others from ``workspace_desc``. A signal stands for ``per_signal``
    rows of tiles. WAIT: ``"none"``, at every ``"tile"``, or on a ``"change"`` of signal. From tile ``whole`` on, the K
    of a tile is divided among SPLITS programs (with HALVES).

    The loads of A depend on the wait by their row, and what the tile loop carries changes before the K loop: with
    ``flatten=True`` the pipeliner then moves the wait ahead together with the loads, under the products of the tile
    before.
    """
    tiles_n = tl.cdiv(N, BN)
    tiles_m = M // SHARDS // BM
    k_tiles = tl.cdiv(K, BK)
    waited = -1
    zero = 0
    for tile in tl.range(tl.program_id(0), whole, PROGRAMS, flatten=FLATTEN):
        shard, m, n = position(tile, tiles_m, tiles_n, own, SHARDS, GROUP)
        row = (shard * tiles_m + m) * BM
        signal = (shard * tiles_m + m) // per_signal
        rows = workspace_desc
        if OWN:
            if shard == own:
                rows = a_desc
                a_row = m * BM
            else:
                if (WAIT == "tile") | (signal != waited):
                    zero = wait_signal(signal_ptr + signal, epoch)
                a_row = row + zero
        else:
            if WAIT == "tile":
                zero = wait_signal(signal_ptr + signal, epoch)
            elif WAIT == "change":
                if signal != waited:
                    zero = wait_signal(signal_ptr + signal, epoch)
            a_row = row + zero
        waited = signal
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(k_tiles):
            a = rows.load([a_row, k * BK])
            b = b_desc.load([n * BN, k * BK])
            acc = tl.dot(a, b.T, acc)
        store_tile(c_desc, row, n * BN, acc, BN, HALVES)
    if SPLITS > 1:
        # The programs that have had a tile less than the others come first.
        first = (tl.program_id(0) - whole % PROGRAMS + PROGRAMS) % PROGRAMS
        for item in tl.range(first, (tiles_m * SHARDS * tiles_n - whole) * SPLITS, PROGRAMS):
            tile = item // SPLITS
            part = item % SPLITS
            shard, m, n = position(whole + tile, tiles_m, tiles_n, own, SHARDS, GROUP)
            row = (shard * tiles_m + m) * BM
            rows = workspace_desc
            a_row = row
            if OWN and shard == own:
                rows = a_desc
                a_row = m * BM
            elif WAIT != "none":
                a_row = row + wait_signal(signal_ptr + (shard * tiles_m + m) // per_signal, epoch)
            acc = tl.zeros((BM, BN), tl.float32)
            for k in range(k_tiles * part // SPLITS, k_tiles * (part + 1) // SPLITS):
                a = rows.load([a_row, k * BK])
                b = b_desc.load([n * BN, k * BK])
                acc = tl.dot(a, b.T, acc)
            partials = partial_ptr + tile * (SPLITS - 1) * (BM * BN)
            store_shared_tile(c_desc, row, n * BN, acc, part, partials, count_ptr + 2 * tile, SPLITS)


@triton.jit
def gathered_gemm_of_pointers(
    a_ptr,
    workspace_ptr,
    b_ptr,
    c_ptr,
    signal_ptr,
    epoch,
    partial_ptr,
    count_ptr,
    M,
    N,
    K,
    own,
    per_signal,
    whole,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SHARDS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr,
    WAIT: tl.constexpr,
    OWN: tl.constexpr,
    HALVES: tl.constexpr,
    SPLITS: tl.constexpr,
):
    """The same, with descriptors that the kernel makes."""
    gathered_gemm(
        tl.make_tensor_descriptor(a_ptr, [M // SHARDS, K], [K, 1], [BM, BK]),
        tl.make_tensor_descriptor(workspace_ptr, [M, K], [K, 1], [BM, BK]),
        tl.make_tensor_descriptor(b_ptr, [N, K], [K, 1], [BN, BK]),
        tl.make_tensor_descriptor(c_ptr, [M, N], [N, 1], [BM, BN // 2 if HALVES else BN]),
        signal_ptr,
        epoch,
        partial_ptr,
        count_ptr,
        M,
        N,
        K,
        own,
        per_signal,
        whole,
        BM,
        BN,
        BK,
        GROUP,
        SHARDS,
        PROGRAMS,
        FLATTEN,
        WAIT,
        OWN,
        HALVES,
        SPLITS,
    )


@triton.jit
def push(source_ptr, target_ptr, signal_ptr, numel, per_signal, BLOCK: tl.constexpr, PROGRAMS: tl.constexpr):
    """Store ``numel`` elements at a peer; each program adds one to a signal there after its share of ``per_signal``."""
    for begin in range(0, numel, per_signal):
        for offset in range(tl.program_id(0) * BLOCK, per_signal, PROGRAMS * BLOCK):
            at = begin + offset + tl.arange(0, BLOCK)
            tl.store(target_ptr + at, tl.load(source_ptr + at))
        tl.debug_barrier()
        tl.atomic_add(signal_ptr + begin // per_signal, 1, sem="release", scope="sys")


@triton.jit
def linear_gemm(
    a_desc,
    b_desc,
    c_desc,
    signal_ptr,
    epoch,
    M,
    N,
    K,
    own,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SHARDS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    B_FIRST: tl.constexpr,
):
    """The same as one loop over (tile, k), written by hand; B_FIRST: the load of B comes before the wait."""
    tiles_n = tl.cdiv(N, BN)
    tiles_m = M // SHARDS // BM
    k_tiles = tl.cdiv(K, BK)
    mine = tl.cdiv(tiles_m * SHARDS * tiles_n - tl.program_id(0), PROGRAMS)
    tile = tl.program_id(0) - PROGRAMS
    k = -1
    zero = 0
    row = 0
    col = 0
    waited = -1
    shard = 0
    acc = tl.zeros((BM, BN), tl.float32)
    for _ in range(mine * k_tiles):
        k = tl.where(k == k_tiles - 1, 0, k + 1)
        if k == 0:
            tile += PROGRAMS
            shard, m, n = position(tile, tiles_m, tiles_n, own, SHARDS, GROUP)
            row = (shard * tiles_m + m) * BM
            col = n * BN
        if B_FIRST:
            b = b_desc.load([col, k * BK])
        if (k == 0) & (shard != waited):
            zero = wait_signal(signal_ptr + shard, epoch)
            waited = shard
        a = a_desc.load([row + zero, k * BK])
        if not B_FIRST:
            b = b_desc.load([col, k * BK])
        acc = tl.dot(a, b.T, acc)
        if k == k_tiles - 1:
            c_desc.store([row, col], acc.to(c_desc.dtype))
            acc = tl.zeros((BM, BN), tl.float32)


@triton.jit
def shard_gemm(
    a_desc,
    b_desc,
    c_desc,
    signal_ptr,
    epoch,
    M,
    N,
    K,
    own,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SHARDS: tl.constexpr,
    PROGRAMS: tl.constexpr,
):
    """A loop over shards with one wait each, around a flattened loop over the tiles of a shard, which has no wait."""
    tiles_n = tl.cdiv(N, BN)
    tiles_m = M // SHARDS // BM
    k_tiles = tl.cdiv(K, BK)
    for step in range(SHARDS):
        zero = wait_signal(signal_ptr + (own + step) % SHARDS, epoch)
        begin = step * tiles_m * tiles_n
        first = begin + (tl.program_id(0) - begin % PROGRAMS + PROGRAMS) % PROGRAMS
        for tile in tl.range(first, begin + tiles_m * tiles_n, PROGRAMS, flatten=True):
            shard, m, n = position(tile, tiles_m, tiles_n, own, SHARDS, GROUP)
            row = (shard * tiles_m + m) * BM
            acc = tl.zeros((BM, BN), tl.float32)
            for k in range(k_tiles):
                a = a_desc.load([row + zero, k * BK])
                b = b_desc.load([n * BN, k * BK])
                acc = tl.dot(a, b.T, acc)
            c_desc.store([row, n * BN], acc.to(c_desc.dtype))


@triton.jit
def counted_gemm(
    a_desc,
    b_desc,
    c_desc,
    count_ptr,
    M,
    N,
    K,
    own,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    GROUP: tl.constexpr,
    SHARDS: tl.constexpr,
    PROGRAMS: tl.constexpr,
    FLATTEN: tl.constexpr,
    HALVES: tl.constexpr,
    PUBLISH: tl.constexpr,
):
    """C = A @ B.T; finished tiles are counted by shard, for a GEMM+RS that sends a shard when its count is complete.

    PUBLISH: when a tile is counted: ``"now"``, at the end of the ``"next"`` tile, when its store has long completed, or
    in the K ``"loop"`` of the next tile.
    """
    tiles_n = tl.cdiv(N, BN)
    tiles_m = M // SHARDS // BM
    k_tiles = tl.cdiv(K, BK)
    before = -1
    for tile in tl.range(tl.program_id(0), tiles_m * SHARDS * tiles_n, PROGRAMS, flatten=FLATTEN):
        shard, m, n = position(tile, tiles_m, tiles_n, own, SHARDS, GROUP)
        row = (shard * tiles_m + m) * BM
        acc = tl.zeros((BM, BN), tl.float32)
        for k in range(k_tiles):
            a = a_desc.load([row, k * BK])
            b = b_desc.load([n * BN, k * BK])
            acc = tl.dot(a, b.T, acc)
            if PUBLISH == "loop":
                if (k == 4) & (before >= 0):
                    add_count(count_ptr + before)
        if PUBLISH == "next":
            if before >= 0:
                add_count(count_ptr + before)
        store_tile(c_desc, row, n * BN, acc, BN, HALVES)
        if PUBLISH == "now":
            add_count(count_ptr + shard)
        before = shard
    if PUBLISH != "now":
        if before >= 0:
            add_count(count_ptr + before)
