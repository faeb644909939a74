// Data movement between ranks, its order, and collective synchronisation.

#ifndef DITRON_DATA_OPS_TD
#define DITRON_DATA_OPS_TD

include "DitronEnums.td"
include "DitronTypes.td"

class Ditron_Transfer<string mnemonic>
    : Ditron_Op<mnemonic, [Ditron_Ordered, Ditron_ProgramWide, Ditron_MemoryTransferOpInterface]> {
  let arguments = (ins
    Arg<Ditron_Ptr, "first byte written", [MemWrite]>:$dst,
    Arg<Ditron_Ptr, "first byte read", [MemRead]>:$src,
    Arg<I64, "number of bytes, a multiple of the element size">:$nbytes,
    Arg<I32, "rank of the group at the other end">:$rank,
    Arg<UnitAttr, "return before the transfer is complete">:$nbi,
    Ditron_Block:$granularity);
  let hasVerifier = 1;
}

def Ditron_PutmemOp : Ditron_Transfer<"putmem"> {
  let summary = "copy bytes from this rank to another";
  let description = [{
    `shmem_putmem`: `nbytes` bytes go from `src` here to the object that the
    symmetric address `dst` names on `rank`, on this node or another. On return
    `src` may be reused; the data has not necessarily arrived. A `ditron.notify`
    to that rank makes it visible with the signal, `ditron.fence` orders it
    before later puts, `ditron.quiet` completes it. With `nbi`
    (`shmem_putmem_nbi`) `src` must not change before `ditron.quiet`.

    ```mlir
    ditron.putmem %dst, %src, %bytes on %rank : !tt.ptr<bf16>, !tt.ptr<bf16>
    ditron.putmem %dst, %src, %bytes on %rank nbi granularity warp : !tt.ptr<bf16>, !tt.ptr<bf16>
    ```
  }];
  let assemblyFormat = [{
    $dst `,` $src `,` $nbytes `on` $rank (`nbi` $nbi^)?
    (`granularity` custom<Keyword>($granularity)^)? attr-dict `:` type($dst) `,` type($src)
  }];
  let extraClassDeclaration = [{
    SmallVector<RemoteAccess> getRemoteAccesses() { return {{getDst(), getNbytes()}}; }
  }];
}

def Ditron_GetmemOp : Ditron_Transfer<"getmem"> {
  let summary = "copy bytes from another rank to this one";
  let description = [{
    `shmem_getmem`: `nbytes` bytes go from the object that the symmetric address
    `src` names on `rank` to `dst` here. On return they are in `dst`; with `nbi`
    (`shmem_getmem_nbi`) only after `ditron.quiet`.

    ```mlir
    ditron.getmem %dst, %src, %bytes on %rank : !tt.ptr<bf16>, !tt.ptr<bf16>
    ditron.getmem %dst, %src, %bytes on %rank nbi : !tt.ptr<bf16>, !tt.ptr<bf16>
    ```
  }];
  let assemblyFormat = [{
    $dst `,` $src `,` $nbytes `on` $rank (`nbi` $nbi^)?
    (`granularity` custom<Keyword>($granularity)^)? attr-dict `:` type($dst) `,` type($src)
  }];
  let extraClassDeclaration = [{
    bool isPut() { return false; }
    SmallVector<RemoteAccess> getRemoteAccesses() { return {{getSrc(), getNbytes()}}; }
  }];
}

def Ditron_PutmemSignalOp : Ditron_Op<"putmem_signal", [
    Ditron_Ordered, Ditron_ProgramWide, Ditron_MemoryTransferOpInterface, Ditron_SignalUpdateOpInterface]> {
  let summary = "copy bytes to another rank, then update a signal there";
  let description = [{
    `shmem_putmem_signal`: as `ditron.putmem`, and when the data is visible at
    `rank`, `signal` there is updated. Whoever sees the signal sees the data of
    this transfer. Earlier puts, and stores through `ditron.symm_at`, are *not*
    ordered by it: a `ditron.fence` before it orders both. With `nbi`
    (`shmem_putmem_signal_nbi`) `src` must not change before `ditron.quiet`.

    ```mlir
    ditron.putmem_signal %dst, %src, %bytes, %sig set %epoch on %rank : !tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<i64>
    ditron.putmem_signal %dst, %src, %bytes, %sig add %one on %rank nbi : !tt.ptr<bf16>, !tt.ptr<bf16>, !tt.ptr<i64>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_Ptr, "symmetric address, first byte written at `rank`", [MemWrite]>:$dst,
    Arg<Ditron_Ptr, "first byte read here", [MemRead]>:$src,
    Arg<I64, "number of bytes, a multiple of the element size">:$nbytes,
    Arg<Ditron_SignalPtr, "symmetric address of the signal", [MemWrite]>:$signal,
    Arg<I64, "value to store or add">:$value,
    Arg<I32, "rank of the group that receives">:$rank,
    Ditron_Set:$op,
    Arg<UnitAttr, "return before the transfer is complete">:$nbi,
    Ditron_Block:$granularity);
  let assemblyFormat = [{
    $dst `,` $src `,` $nbytes `,` $signal custom<Keyword>($op) $value `on` $rank (`nbi` $nbi^)?
    (`granularity` custom<Keyword>($granularity)^)? attr-dict
    `:` type($dst) `,` type($src) `,` type($signal)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    SmallVector<RemoteAccess> getRemoteAccesses() { return {{getDst(), getNbytes()}, {getSignal(), {}}}; }
  }];
}

class Ditron_Sync<string mnemonic, list<Trait> traits>
    : Ditron_Op<mnemonic, !listconcat([Ditron_Ordered, Ditron_ProgramWide], traits)> {
  let assemblyFormat = "attr-dict";
}
class Ditron_TeamSync<string mnemonic, list<Trait> traits>
    : Ditron_Op<mnemonic, !listconcat([Ditron_Ordered, Ditron_ProgramWide, Ditron_Spins], traits)> {
  let arguments = (ins Ditron_Team_Group:$team);
  let assemblyFormat = "(`team` custom<Keyword>($team)^)? attr-dict";
}

def Ditron_FenceOp : Ditron_Sync<"fence", [Ditron_OrdersMemory]> {
  let summary = "deliver earlier puts and stores to each rank before later ones";
  let description = [{
    `shmem_fence`: orders, for each rank separately, what the program has put and
    stored so far before what it puts, stores or signals later. It completes
    nothing. Right before a stronger operation it is dropped.

    ```mlir
    ditron.fence
    ```
  }];
  let hasCanonicalizeMethod = 1;
}

def Ditron_QuietOp : Ditron_Sync<"quiet", [Ditron_OrdersMemory, Ditron_CompletesTransfers]> {
  let summary = "wait until all puts, gets and stores of the program are complete";
  let description = [{
    `shmem_quiet`: on return everything that the program has sent is visible at
    its destination, everything it has asked for has arrived, and the sources of
    non-blocking puts may be reused. A second one, or a fence, right beside it is
    dropped.

    ```mlir
    ditron.quiet
    ```
  }];
  let hasCanonicalizeMethod = 1;
}

def Ditron_BarrierAllOp : Ditron_Sync<"barrier_all", [
    Ditron_Spins, Ditron_OrdersMemory, Ditron_CompletesTransfers]> {
  let summary = "complete everything, and wait for every rank of the group";
  let description = [{
    `shmem_barrier_all` on the group: a `ditron.quiet`, then no rank goes on
    before all have come. One program of each rank must call it, and that program
    must be running on all ranks at once.

    ```mlir
    ditron.barrier_all
    ```
  }];
}

def Ditron_BarrierOp : Ditron_TeamSync<"barrier", [Ditron_OrdersMemory, Ditron_CompletesTransfers]> {
  let summary = "complete everything, and wait for every rank of a team";
  let description = [{
    As `ditron.barrier_all`, among the ranks of `team`.

    ```mlir
    ditron.barrier team node
    ```
  }];
}

def Ditron_SyncAllOp : Ditron_TeamSync<"sync_all", []> {
  let summary = "wait for every rank of a team, completing nothing";
  let description = [{
    `shmem_sync`: no rank goes on before all ranks of the team have come. Stores
    made before are visible after; puts need a `ditron.quiet` of their own.

    ```mlir
    ditron.sync_all
    ditron.sync_all team world
    ```
  }];
}

#endif // DITRON_DATA_OPS_TD
