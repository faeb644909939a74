// Signals: how one program tells another that data is there.

#ifndef DITRON_SIGNAL_OPS_TD
#define DITRON_SIGNAL_OPS_TD

include "DitronEnums.td"
include "DitronTypes.td"

def Ditron_WaitOp : Ditron_NamedOp<"wait", "token", [
    Ditron_Ordered, Ditron_ProgramWide, Ditron_Spins, Ditron_SignalWaitOpInterface]> {
  let summary = "wait until each of n signals satisfies a comparison";
  let description = [{
    Returns once every one of `signal[0]` to `signal[count - 1]` has satisfied the
    comparison with `value`; with `count` 0 it returns at once. When it returns,
    every thread of the program may read what the notifiers wrote before their
    notify, also through the async proxy (TMA). Memory accesses do not move
    across it in either direction. Use the token with `ditron.consume_token` to
    tie a pointer or a value to the wait.

    It is `shmem_wait_until_all` by the whole program. `semantic relaxed` only
    waits and orders nothing. Memory order is that of `scope`: `gpu` for signals
    set by programs of this GPU, `node` for those of this node, `world` for all.

    ```mlir
    %token = ditron.wait %sig[%n] ge %epoch : !tt.ptr<i64>
    %far = ditron.wait %sig[%n] eq %epoch scope world : !tt.ptr<i64>
    %loose = ditron.wait %sig[%n] ge %epoch scope gpu semantic relaxed : !tt.ptr<i64>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SignalPtr, "first signal, on this rank", [MemRead]>:$signal,
    Arg<I32, "number of consecutive signals">:$count,
    Arg<I64, "value that each signal is compared with">:$value,
    Ditron_GE:$cmp, Ditron_Scope_Node:$scope, Ditron_Load_Acquire:$semantic);
  let results = (outs Res<Ditron_Token, "proof that the wait has returned">:$token);
  let assemblyFormat = [{
    $signal `[` $count `]` custom<Keyword>($cmp) $value (`scope` custom<Keyword>($scope)^)?
    (`semantic` custom<Keyword>($semantic)^)? attr-dict `:` type($signal)
  }];
  let hasVerifier = 1;
}

def Ditron_ConsumeTokenOp : Ditron_Op<"consume_token", [Pure, AllTypesMatch<["value", "result"]>]> {
  let summary = "make a value depend on a wait";
  let description = [{
    Returns `value` unchanged. What uses the result, a load through the pointer
    above all, happens after the wait that made the token and cannot be moved
    above it. It costs nothing at run time and keeps the alignment of a pointer.
    Consuming the same token twice folds to once.

    ```mlir
    %ready = ditron.consume_token %ptr, %token : !tt.ptr<bf16>
    %tile = ditron.consume_token %ptrs, %token : tensor<64x!tt.ptr<bf16>>
    ```
  }];
  let arguments = (ins
    Arg<AnyType, "what may be used only after the wait">:$value,
    Arg<Ditron_Token, "what the wait returned">:$token);
  let results = (outs Res<AnyType, "the same value">:$result);
  let assemblyFormat = "$value `,` $token attr-dict `:` type($value)";
  let hasFolder = 1;
}

def Ditron_NotifyOp : Ditron_Op<"notify", [
    Ditron_Ordered, Ditron_ProgramWide, Ditron_SignalUpdateOpInterface, Ditron_MemoryOrderOpInterface]> {
  let summary = "publish all earlier writes of the program, then update a signal";
  let description = [{
    Everything that any thread of the program did before it towards `rank`
    (stores, also through `ditron.symm_at` and TMA, and earlier puts, also
    non-blocking ones) is visible to whoever sees the signal's new value. It
    implies the program-wide barrier and the release fence; the signal is
    written once, not once per thread.

    `signal` is this rank's own symmetric address; the signal of that name on `rank`
    is updated. `op set` stores `value`, `op add` adds it atomically. `scope` is
    that of the release: `gpu` only when `rank` is this rank, `world` when it may
    be on another node.

    ```mlir
    ditron.notify %sig set %epoch on %rank : !tt.ptr<i64>
    ditron.notify %sig add %one on %rank scope world : !tt.ptr<i64>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SignalPtr, "symmetric address of the signal", [MemWrite]>:$signal,
    Arg<I64, "value to store or add">:$value,
    Arg<I32, "rank of the group whose signal is updated">:$rank,
    Ditron_Set:$op, Ditron_Scope_Node:$scope);
  let assemblyFormat = [{
    $signal custom<Keyword>($op) $value `on` $rank (`scope` custom<Keyword>($scope)^)?
    attr-dict `:` type($signal)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    Semantic getSemantic() { return Semantic::Release; }
    SmallVector<RemoteAccess> getRemoteAccesses() { return {{getSignal(), {}}}; }
  }];
}

def Ditron_SignalOpOp : Ditron_Op<"signal_op", [Ditron_Ordered, Ditron_SignalUpdateOpInterface]> {
  let summary = "update a signal on another rank, and nothing else";
  let description = [{
    `shmem_signal_set` or `shmem_signal_add`: one atomic update of the signal. It
    orders nothing by itself: no barrier of the program, no fence. Put a
    `ditron.fence` or `ditron.quiet` before it, or use `ditron.notify`, when the
    signal is to say that data is there.

    ```mlir
    ditron.signal_op %sig set %epoch on %rank : !tt.ptr<i64>
    ditron.signal_op %sig add %one on %rank : !tt.ptr<i64>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SignalPtr, "symmetric address of the signal", [MemWrite]>:$signal,
    Arg<I64, "value to store or add">:$value,
    Arg<I32, "rank of the group whose signal is updated">:$rank,
    Ditron_Set:$op);
  let assemblyFormat = [{
    $signal custom<Keyword>($op) $value `on` $rank attr-dict `:` type($signal)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    SmallVector<RemoteAccess> getRemoteAccesses() { return {{getSignal(), {}}}; }
  }];
}

def Ditron_SignalWaitUntilOp : Ditron_Op<"signal_wait_until", [
    Ditron_Ordered, Ditron_ProgramWide, Ditron_Spins, Ditron_SignalWaitOpInterface]> {
  let summary = "wait for one signal and return the value that ended the wait";
  let description = [{
    `shmem_signal_wait_until`: returns once the signal, on this rank, satisfies
    the comparison, with the value that did. It orders as `ditron.wait` does with
    `scope world semantic acquire`: data that a `ditron.putmem_signal` delivered
    with the signal may be read.

    ```mlir
    %seen = ditron.signal_wait_until %sig ge %epoch : !tt.ptr<i64>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SignalPtr, "signal on this rank", [MemRead]>:$signal,
    Arg<I64, "value that the signal is compared with">:$value,
    Ditron_GE:$cmp);
  let results = (outs Res<I64, "value of the signal that satisfied the comparison">:$result);
  let assemblyFormat = "$signal custom<Keyword>($cmp) $value attr-dict `:` type($signal)";
  let extraClassDeclaration = [{
    Semantic getSemantic() { return Semantic::Acquire; }
  }];
}

def Ditron_SignalFetchOp : Ditron_Op<"signal_fetch", [
    Ditron_Ordered, Ditron_ProgramWide, Ditron_SignalReadOpInterface]> {
  let summary = "read a signal of this rank, without waiting";
  let description = [{
    `shmem_signal_fetch`: the value of the signal, read atomically, the same in
    every thread of the program. With `semantic acquire` what the writer of that
    value published with it may be read, as after a `ditron.wait` of scope world;
    `relaxed` orders nothing.

    ```mlir
    %seen = ditron.signal_fetch %sig : !tt.ptr<i64>
    %now = ditron.signal_fetch %sig semantic relaxed : !tt.ptr<i64>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SignalPtr, "signal on this rank", [MemRead]>:$signal, Ditron_Load_Acquire:$semantic);
  let results = (outs Res<I64, "value of the signal">:$result);
  let assemblyFormat = "$signal (`semantic` custom<Keyword>($semantic)^)? attr-dict `:` type($signal)";
}

#endif // DITRON_SIGNAL_OPS_TD
