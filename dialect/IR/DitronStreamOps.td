// Host programs: what they put on streams.

#ifndef DITRON_STREAM_OPS_TD
#define DITRON_STREAM_OPS_TD

include "DitronHostOps.td"

// Work for a stream; it reads and writes memory as far as MLIR's passes can tell.
// Without a stream it is on the stream of the program, in program order, until
// `assign-streams` decides.
class Ditron_Queued<string mnemonic, list<Trait> traits = []>
    : Ditron_Op<mnemonic, !listconcat([Ditron_InProgram, Ditron_Ordered], traits)>;
def Ditron_OnStream : Arg<Optional<Ditron_Stream>, "stream to put it on; without, that of the program">;

def Ditron_RecordOp : Ditron_Queued<"record", [
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "mark a point in a stream";
  let description = [{
    The event stands for everything that was put on the stream so far. A record
    whose event nothing awaits is dropped.

    ```mlir
    %done = ditron.record
    %copied = ditron.record stream %copy
    ```
  }];
  let arguments = (ins Ditron_OnStream:$stream);
  let results = (outs Res<Ditron_Event, "the point">:$event);
  let assemblyFormat = "(`stream` $stream^)? attr-dict";
  let hasCanonicalizeMethod = 1;
}

def Ditron_AwaitOp : Ditron_Queued<"await"> {
  let summary = "let a stream wait for an event";
  let description = [{
    What is put on the stream later begins after the event, and sees what was
    written before it. On the stream that recorded the event it says nothing new
    and is dropped.

    ```mlir
    ditron.await %event stream %copy
    ```
  }];
  let arguments = (ins Arg<Ditron_Event, "event to wait for">:$event, Ditron_OnStream:$stream);
  let assemblyFormat = "$event (`stream` $stream^)? attr-dict";
  let hasCanonicalizeMethod = 1;
}

def Ditron_RankCopyOp : Ditron_Queued<"rank_copy"> {
  let summary = "copy between this rank and another with a copy engine";
  let description = [{
    A push writes `dst` on rank `peer`; with `pull`, `src` on rank `peer` is read.
    The side at the peer is symmetric, and named by this rank's own buffer. It
    needs no SM, so it goes on while programs hold all of them. Both sides have
    the same shape, and each is contiguous or rows with a stride. `peer` may be
    this rank itself.

    ```mlir
    ditron.rank_copy %a to %all on %peer stream %copy : <?x?xbf16> to <?x?xbf16, symmetric>
    ditron.rank_copy %all on %peer to %a : <?x?xbf16, symmetric> to <?x?xbf16>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_Buffer, "what is read", [MemRead]>:$src,
    Arg<Ditron_Buffer, "what is written", [MemWrite]>:$dst,
    Arg<I64, "rank of the group at the other end">:$peer,
    Ditron_OnStream:$stream,
    Arg<UnitAttr, "read at the peer, instead of writing there">:$pull);
  let assemblyFormat = [{
    custom<Ends>($src, $dst, $peer, $pull) (`stream` $stream^)? attr-dict
    `:` type($src) `to` type($dst)
  }];
  let hasVerifier = 1;
}

def Ditron_CopyOp : Ditron_Queued<"copy"> {
  let summary = "copy within this rank's memory";
  let description = [{
    It is a kernel: it needs an SM, and does not begin while programs that wait
    hold all of them. `eliminate-copies` removes it where it can.

    ```mlir
    ditron.copy %a to %all stream %main : <?x?xbf16> to <?x?xbf16, symmetric>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_Buffer, "what is read", [MemRead]>:$src,
    Arg<Ditron_Buffer, "what is written", [MemWrite]>:$dst,
    Ditron_OnStream:$stream);
  let assemblyFormat = "$src `to` $dst (`stream` $stream^)? attr-dict `:` type($src) `to` type($dst)";
  let hasVerifier = 1;
}

def Ditron_FillOp : Ditron_Queued<"fill", [TypesMatchWith<
    "'value' has the element type of 'dst'", "dst", "value",
    "::llvm::cast<::mlir::ditron::BufferType>($_self).getElementType()">]> {
  let summary = "give every element of a buffer one value";
  let description = [{
    It is a kernel, like `ditron.copy`.

    ```mlir
    ditron.fill %a, %zero stream %main : <?x?xbf16>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_Buffer, "what is written", [MemWrite]>:$dst,
    Arg<Ditron_Number, "value of each element">:$value,
    Ditron_OnStream:$stream);
  let assemblyFormat = "$dst `,` $value (`stream` $stream^)? attr-dict `:` type($dst)";
}

def Ditron_SignalWriteOp : Ditron_Queued<"signal_write", [AttrSizedOperandSegments]> {
  let summary = "update a signal on a rank, after what the stream did before";
  let description = [{
    Whoever sees the signal's new value sees what was put on the stream before
    it, copies to `peer` above all. The signal is named by this rank's own
    buffer; `peer` may be this rank itself. With the attribute
    `ditron.with_copy`, which decomposed collectives have, a signal without a
    stream is about the copy right before it (a wait: right after it) only, and
    `assign-streams` orders nothing else by it.

    ```mlir
    ditron.signal_write %arrived[%rank] set %epoch on %peer stream %copy : <?xi64, symmetric>
    ditron.signal_write %count[0] add %one on %peer : <1xi64, symmetric>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SignalBuffer, "buffer that holds the signal">:$signal,
    Arg<Variadic<I64>, "indices that are values">:$indices,
    Arg<I64, "value to store or add">:$value,
    Arg<I64, "rank of the group whose signal is updated">:$peer,
    Ditron_OnStream:$stream,
    Ditron_Known<"indices">:$static_indices,
    Ditron_Set:$op);
  let assemblyFormat = [{
    $signal `` custom<Ints>($indices, $static_indices) custom<Keyword>($op) $value `on` $peer
    (`stream` $stream^)? attr-dict `:` type($signal)
  }];
  let hasCanonicalizeMethod = 1;
  let hasVerifier = 1;
}

def Ditron_SignalWaitOp : Ditron_Queued<"signal_wait", [AttrSizedOperandSegments]> {
  let summary = "let a stream wait for a signal of this rank";
  let description = [{
    What is put on the stream later begins once the comparison holds, and sees
    what the writer of the signal had done before. It needs no SM.

    ```mlir
    ditron.signal_wait %arrived[%chunk] ge %epoch stream %copy : <?xi64, symmetric>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SignalBuffer, "buffer that holds the signal">:$signal,
    Arg<Variadic<I64>, "indices that are values">:$indices,
    Arg<I64, "value that the signal is compared with">:$value,
    Ditron_OnStream:$stream,
    Ditron_Known<"indices">:$static_indices,
    Ditron_GE:$cmp);
  let assemblyFormat = [{
    $signal `` custom<Ints>($indices, $static_indices) custom<Keyword>($cmp) $value
    (`stream` $stream^)? attr-dict `:` type($signal)
  }];
  let hasCanonicalizeMethod = 1;
  let hasVerifier = 1;
}

def Ditron_StreamBarrierOp : Ditron_Queued<"stream_barrier"> {
  let summary = "let a stream wait for that of every rank of the group";
  let description = [{
    No rank's stream goes on before all have come; what each did before on that
    stream is visible to all after.

    ```mlir
    ditron.stream_barrier stream %main
    ```
  }];
  let arguments = (ins Ditron_OnStream:$stream);
  let assemblyFormat = "(`stream` $stream^)? attr-dict";
}

def Ditron_LaunchOp : Ditron_Queued<"launch", [AttrSizedOperandSegments,
    DeclareOpInterfaceMethods<SymbolUserOpInterface>]> {
  let summary = "launch a kernel of the module";
  let description = [{
    The kernel is a `tt.func`. Its parameters are given in order: a buffer for a
    pointer to the buffer's elements, a descriptor that `ditron.tensor_descriptor`
    made for a `!tt.tensordesc`, a number for a number of the same type. The context, the hidden last parameter of a `ditron.kernel`, is not given. The
    kernel touches only the parts of memory that its buffers are. The grid has
    one to three numbers. `options` are those of a Triton launch.

    ```mlir
    ditron.launch @gemm grid(%tiles, 1) (%a, %b, %c, %size) stream %main options {num_warps = 8 : i64} : (!ditron.buffer<?x?xbf16>, !ditron.buffer<?x?xbf16>, !ditron.buffer<?x?xbf16>, i32)
    ```
  }];
  let arguments = (ins
    Arg<FlatSymbolRefAttr, "kernel to launch">:$kernel,
    Arg<Variadic<I64>, "numbers of the grid that are values">:$grid,
    Arg<Variadic<Ditron_Argument>, "arguments of the kernel">:$args,
    Ditron_OnStream:$stream,
    Ditron_Known<"numbers of the grid">:$static_grid,
    Arg<OptionalAttr<DictionaryAttr>, "num_warps, num_stages and other options of the launch">:$options);
  let assemblyFormat = [{
    $kernel `grid` `` custom<Grid>($grid, $static_grid) ` ` `(` $args `)` (`stream` $stream^)?
    (`options` $options^)? attr-dict (`:` `(` type($args)^ `)`)?
  }];
  let hasCanonicalizeMethod = 1;
  let hasVerifier = 1;
}

def Ditron_CallOp : Ditron_Queued<"call", [AttrSizedOperandSegments]> {
  let summary = "call a function of a library that puts work on the stream";
  let description = [{
    The host calls the Python function that the program has under the name
    `callee`, with tensors of `reads` and then of `writes`; what it puts on the
    stream reads and writes nothing else. It may need SMs. A buffer that it reads
    and writes is in both lists.

    ```mlir
    ditron.call "mm" reads(%a, %b : !ditron.buffer<?x?xbf16>, !ditron.buffer<?x?xbf16>) writes(%c : !ditron.buffer<?x?xbf16>) stream %main
    ```
  }];
  let arguments = (ins
    Arg<StrAttr, "name of the function">:$callee,
    Arg<Variadic<Ditron_Buffer>, "what is read", [MemRead]>:$reads,
    Arg<Variadic<Ditron_Buffer>, "what is written", [MemWrite]>:$writes,
    Ditron_OnStream:$stream);
  let assemblyFormat = [{
    $callee `reads` `(` ($reads^ `:` type($reads))? `)` `writes` `(` ($writes^ `:` type($writes))? `)`
    (`stream` $stream^)? attr-dict
  }];
}

def Ditron_AllGatherOp : Ditron_Queued<"all_gather"> {
  let summary = "give every rank the shards of all, with one signal each";
  let description = [{
    `dst` is, along its first dimension, the ranks' `src` one after the other.
    When the shard of rank r has arrived in this rank's `dst`, the own one too,
    this rank's `signal[r]` is set to `epoch`. Consumers wait for the shards that
    they read. `decompose-all-at-once` and `decompose-ring` make copies and signal
    writes of it.

    ```mlir
    ditron.all_gather %a into %all signal %arrived at %epoch : <?x?xbf16>, <?x?xbf16, symmetric>, <?xi64, symmetric>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_Buffer, "shard of this rank", [MemRead]>:$src,
    Arg<Ditron_Buffer, "shards of all ranks, symmetric", [MemWrite]>:$dst,
    Arg<Ditron_SignalBuffer, "one signal for each rank">:$signal,
    Arg<I64, "value that arrived shards' signals are set to">:$epoch,
    Ditron_OnStream:$stream);
  let assemblyFormat = [{
    $src `into` $dst `signal` $signal `at` $epoch (`stream` $stream^)? attr-dict
    `:` type($src) `,` type($dst) `,` type($signal)
  }];
  let hasVerifier = 1;
}

#endif // DITRON_STREAM_OPS_TD
