// Who am I, and where is this object on another rank.

#ifndef DITRON_IDENTITY_OPS_TD
#define DITRON_IDENTITY_OPS_TD

include "DitronEnums.td"
include "DitronTypes.td"

class Ditron_TeamQuery<string mnemonic> : Ditron_NamedOp<mnemonic, mnemonic, [Pure]> {
  let arguments = (ins Ditron_Team_Group:$team);
  let assemblyFormat = "(`team` custom<Keyword>($team)^)? attr-dict";
}
class Ditron_Query<string mnemonic> : Ditron_NamedOp<mnemonic, mnemonic, [Pure]> {
  let assemblyFormat = "attr-dict";
}

def Ditron_RankOp : Ditron_TeamQuery<"rank"> {
  let summary = "this rank's number in a team";
  let description = [{
    `shmem_team_my_pe`: a number in `[0, num_ranks)`, the same in every program
    of this rank and for the whole launch. Operations that take a rank mean a
    rank of the group.

    ```mlir
    %me = ditron.rank
    %pe = ditron.rank team world
    ```
  }];
  let results = (outs Res<I32, "rank of this GPU in `team`">:$result);
}

def Ditron_NumRanksOp : Ditron_TeamQuery<"num_ranks"> {
  let summary = "how many ranks a team has";
  let description = [{
    `shmem_team_n_pes`: at least 1, the same on every rank of the team.

    ```mlir
    %n = ditron.num_ranks
    %all = ditron.num_ranks team world
    ```
  }];
  let results = (outs Res<I32, "number of ranks in `team`">:$result);
}

def Ditron_LocalRankOp : Ditron_Query<"local_rank"> {
  let summary = "this rank's number among those of its group on this node";
  let description = [{
    A number in `[0, num_local_ranks)`.

    ```mlir
    %local = ditron.local_rank
    ```
  }];
  let results = (outs Res<I32, "rank of this GPU on its node">:$result);
}

def Ditron_NumLocalRanksOp : Ditron_Query<"num_local_ranks"> {
  let summary = "how many ranks of the group are on this node";
  let description = [{
    At least 1. `ditron.symm_at` reaches exactly these ranks.

    ```mlir
    %n = ditron.num_local_ranks
    ```
  }];
  let results = (outs Res<I32, "number of the group's ranks on this node">:$result);
}

def Ditron_NodeOp : Ditron_Query<"node"> {
  let summary = "the number of the node this rank is on";
  let description = [{
    Counted over the nodes that the group spans, from 0.

    ```mlir
    %node = ditron.node
    ```
  }];
  let results = (outs Res<I32, "number of this rank's node">:$result);
}

def Ditron_SymmAtOp : Ditron_NamedOp<"symm_at", "peer", [Pure, AllTypesMatch<["ptr", "result"]>]> {
  let summary = "the address of a symmetric object on another rank";
  let description = [{
    `shmem_ptr`: the address through which this rank loads and stores the object
    that `ptr` names on `rank`. `ptr` is this rank's own symmetric address, never
    the result of another `symm_at`. Null when `rank` is on another node: use
    `ditron.putmem` or `ditron.getmem` there. The result has the alignment of
    `ptr`, because symmetric heaps are aligned alike on every rank. On a tensor
    of pointers it works elementwise; a tensor of ranks, of the same shape, has a
    rank for each of them, all in `[0, num_ranks)`. Stores through the result are
    ordered by a later `ditron.notify` to that rank.

    The own rank folds away: `ditron.symm_at %p on %me`, where `%me` is
    `ditron.rank`, is `%p`.

    ```mlir
    %peer = ditron.symm_at %ptr on %rank : !tt.ptr<bf16>
    %many = ditron.symm_at %ptrs on %rank : tensor<64x!tt.ptr<bf16>>
    %each = ditron.symm_at %ptrs on %ranks : tensor<64x!tt.ptr<bf16>>, tensor<64xi32>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_PtrLike, "symmetric address on this rank">:$ptr,
    Arg<Ditron_RankLike, "rank of the group whose object is wanted, or one for each pointer">:$rank);
  let results = (outs Res<Ditron_PtrLike, "address of the object on `rank`, or null">:$result);
  let assemblyFormat = "$ptr `on` $rank attr-dict `:` type($ptr) `` custom<TensorOfRanks>(type($rank))";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Ditron_MulticastPtrOp : Ditron_NamedOp<"multicast_ptr", "mc", [
    Pure, Ditron_RequiresMulticast, AllTypesMatch<["ptr", "result"]>]> {
  let summary = "the multicast address of a symmetric object";
  let description = [{
    The address through which `ditron.multimem_*` operations reach the object on
    every rank of the team at once (`nvshmemx_mc_ptr`). It must not be loaded
    from or stored to otherwise. Null where the links cannot multicast.

    ```mlir
    %mc = ditron.multicast_ptr %ptr : !tt.ptr<bf16>
    %mcs = ditron.multicast_ptr %ptr team node : !tt.ptr<bf16>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_PtrLike, "symmetric address on this rank">:$ptr,
    Ditron_Team_Group:$team);
  let results = (outs Res<Ditron_PtrLike, "multicast address, or null">:$result);
  let assemblyFormat = "$ptr (`team` custom<Keyword>($team)^)? attr-dict `:` type($ptr)";
  let hasVerifier = 1;
}

def Ditron_SwizzleOp : Ditron_Op<"swizzle", [Pure]> {
  let summary = "which tile to work on, so that no rank waits for another";
  let description = [{
    Reorders the tiles along a sharded dimension by rank. `tile` counts in the
    order of execution along a dimension of `size` elements that is cut in
    blocks of `block` (the last may be short); rank `r` of the team has its
    `ceil(size / num_ranks)` elements from `r * ceil(size / num_ranks)` on (the
    last shards may be short or empty). The result is the tile to work on. For
    each rank it is a bijection on `[0, ceil(size / block))`, so every tile is
    visited once.

    `gather`: the own shard, then the following ranks' on the own node, then the
    next nodes', nearest first; a tile that straddles ranks comes after the tiles
    that arrive with the last of them. `scatter`: the next nodes, then the own
    one, on each the following ranks first and the own local number last; a tile
    that straddles ranks comes before the tiles of the first of them. With `team
    node` or `team world` all ranks of the team count as one node. With one tile
    in all it folds to `tile`.

    ```mlir
    %m = ditron.swizzle gather %tile of %size by %block
    %s = ditron.swizzle scatter %tile of %size by %block team node
    ```
  }];
  let arguments = (ins
    Arg<I32, "index of the tile in order of execution">:$tile,
    Arg<I32, "elements along the sharded dimension, of all ranks">:$size,
    Arg<I32, "elements of one tile along that dimension">:$block,
    Arg<Ditron_SwizzleModeAttr, "whether shards arrive or are sent">:$mode,
    Ditron_Team_Group:$team);
  let results = (outs Res<I32, "index of the tile to work on">:$result);
  let assemblyFormat = [{
    custom<Keyword>($mode) $tile `of` $size `by` $block
    (`team` custom<Keyword>($team)^)? attr-dict
  }];
  let hasFolder = 1;
  let hasVerifier = 1;
}

#endif // DITRON_IDENTITY_OPS_TD
