// Host programs: the program, its numbers, its memory, its streams.
// What a program puts on a stream is in DitronStreamOps.td.

#ifndef DITRON_HOST_OPS_TD
#define DITRON_HOST_OPS_TD

include "DitronEnums.td"
include "DitronTypes.td"
include "mlir/IR/RegionKindInterface.td"
include "mlir/IR/SymbolInterfaces.td"

class Ditron_HostOp<string mnemonic, string name, list<Trait> traits = []>
    : Ditron_NamedOp<mnemonic, name, !listconcat([Ditron_InProgram], traits)>;

// A list of numbers, each known or an i64 value: `[2, %m, %k]`. In the attribute
// ShapedType::kDynamic stands for the next operand.
class Ditron_Known<string what> : Arg<DenseI64ArrayAttr, what # " that are known">;

def Ditron_ProgramOp : Ditron_Op<"program", [
    IsolatedFromAbove, SingleBlock, NoTerminator, Symbol,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmBlockArgumentNames"]>]> {
  let summary = "the host's side of an overlapped operator";
  let description = [{
    What every rank of a group does, in order, to carry out one call: it puts
    launches, copies, signal writes and waits on streams. Every rank executes the
    same program, which is symbolic in the rank and in the size of the group. The
    host itself waits for nothing.

    Numbers are `i64` (`arith` operations, `ditron.dim`, `ditron.epoch`, the
    queries of the dialect extended from `i32`); `scf.for` and `scf.if` are the
    control flow. Arguments are buffers, integers and floats; their names are
    kept. Kernels that it launches are `tt.func`s of the same module.

    What stands on no stream is on the stream that the program is called on.
    Arguments do not overlap where one of them is written. What else is known of
    them, alignment and that they are contiguous, the module's attribute
    `ditron.assumptions` says.

    ```mlir
    ditron.program @double(%x: !ditron.buffer<?xf32>) {
      %n = ditron.dim %x[0] : <?xf32>
      %y = ditron.alloc "y" [%n] : <?xf32>
      ditron.copy %x to %y : <?xf32> to <?xf32>
    }
    ```
  }];
  let arguments = (ins
    Arg<SymbolNameAttr, "name of the program">:$sym_name,
    Arg<StrArrayAttr, "names of its arguments">:$arg_names);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Ditron_EpochOp : Ditron_HostOp<"epoch", "epoch", [Pure]> {
  let summary = "the number of this call of the program";
  let description = [{
    1 in the first call, then one more each time; the same on every rank. It is
    what signals are set to and compared with, so that none is ever reset, and
    its parity chooses between two halves of a workspace.

    ```mlir
    %epoch = ditron.epoch
    ```
  }];
  let results = (outs Res<I64, "number of the call, from 1">:$result);
  let assemblyFormat = "attr-dict";
}

class Ditron_ShapeQuery<string mnemonic, string name> : Ditron_HostOp<mnemonic, name, [Pure]> {
  let arguments = (ins
    Arg<Ditron_Buffer, "buffer that is asked about">:$source,
    Arg<I64Attr, "dimension, from 0">:$dimension);
  let assemblyFormat = "$source `[` $dimension `]` attr-dict `:` type($source)";
  let hasFolder = 1;
  let hasVerifier = 1;
}

def Ditron_DimOp : Ditron_ShapeQuery<"dim", "dim"> {
  let summary = "the size of one dimension of a buffer";
  let description = [{
    A constant where the type knows it; the size that was asked for where the
    buffer was allocated or sliced in this program.

    ```mlir
    %rows = ditron.dim %a[0] : <?x?xbf16>
    ```
  }];
  let results = (outs Res<I64, "number of elements along the dimension">:$result);
}

def Ditron_StrideOp : Ditron_ShapeQuery<"stride", "stride"> {
  let summary = "the distance of neighbours along one dimension of a buffer";
  let description = [{
    In elements. An allocation is row-major without gaps; a slice has the strides
    of what it is a slice of; an argument has those of the tensor.

    ```mlir
    %row = ditron.stride %a[0] : <?x?xbf16>
    ```
  }];
  let results = (outs Res<I64, "elements from one index to the next">:$result);
}

def Ditron_AllocOp : Ditron_Op<"alloc", [Ditron_InProgram, HasParent<"ProgramOp">,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "memory that belongs to the program";
  let description = [{
    Allocated once for each program and shape of its arguments, and kept: a later
    call finds what an earlier one left there. `symmetric` memory is allocated by
    all ranks together, so its sizes are the same on each. It begins
    uninitialised, or as zeros with `zeroed`, which is done once and not at each
    call. The label is unique in the program and names the memory in reports.
    It stands directly in the program, never in a loop or a branch. Unused it is
    dropped.

    ```mlir
    %workspace = ditron.alloc "workspace" [2, %m, %k] : <2x?x?xbf16, symmetric>
    %arrived = ditron.alloc "arrived" [%n] zeroed : <?xi64, symmetric>
    ```
  }];
  let arguments = (ins
    Arg<StrAttr, "name in reports">:$label,
    Arg<Variadic<I64>, "sizes that are values">:$sizes,
    Ditron_Known<"sizes">:$static_sizes,
    Arg<UnitAttr, "filled with zeros when it is allocated">:$zeroed);
  let results = (outs Res<Ditron_Buffer, "the memory, row-major", [MemAlloc]>:$result);
  let assemblyFormat = [{
    $label custom<Ints>($sizes, $static_sizes) (`zeroed` $zeroed^)? attr-dict `:` type($result)
  }];
  let hasCanonicalizer = 1;
  let hasVerifier = 1;
}

def Ditron_SliceOp : Ditron_HostOp<"slice", "slice", [NoMemoryEffect, AttrSizedOperandSegments]> {
  let summary = "a rectangular part of a buffer";
  let description = [{
    Elements `offset` to `offset + size` along each dimension; nothing is copied.
    Where the result has fewer dimensions than the source, the leading ones are
    dropped, whose size is then a known 1. The part lies within the source. The
    whole folds to the source, a slice of a slice to one slice.

    ```mlir
    %half = ditron.slice %workspace[%parity, 0, 0] [1, %m, %k] : <2x?x?xbf16, symmetric> to <?x?xbf16, symmetric>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_Buffer, "buffer to take a part of">:$source,
    Arg<Variadic<I64>, "offsets that are values">:$offsets,
    Arg<Variadic<I64>, "sizes that are values">:$sizes,
    Ditron_Known<"offsets">:$static_offsets,
    Ditron_Known<"sizes">:$static_sizes);
  let results = (outs Res<Ditron_Buffer, "the part">:$result);
  let assemblyFormat = [{
    $source `` custom<Ints>($offsets, $static_offsets) custom<Ints>($sizes, $static_sizes)
    attr-dict `:` type($source) `to` type($result)
  }];
  let hasFolder = 1;
  let hasCanonicalizer = 1;
  let hasVerifier = 1;
}

def Ditron_TensorDescriptorOp : Ditron_Op<"tensor_descriptor", [Ditron_InProgram, NoMemoryEffect,
    AttrSizedOperandSegments, DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a tensor descriptor of a buffer, made by the host";
  let description = [{
    What TMA loads and stores blocks by: the buffer's address, the sizes and the
    strides (in elements) of a tensor in it, and the block, which the type of the
    result says. The tensor lies within the buffer. It has 1 to 5 dimensions, the
    last one contiguous; its address and its other strides are multiples of 16
    bytes. What a load reads outside of the tensor is zero, or NaN with
    `nan_padding`.

    A launch takes it where the kernel has a `!tt.tensordesc`, followed by the
    sizes as `i32` and the strides as `i64`, which are parameters of the kernel.

    ```mlir
    %desc = ditron.tensor_descriptor %a sizes [%m, %k] strides [%k, 1] : <?x?xbf16> to !tt.tensordesc<tensor<128x64xbf16>>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_Buffer, "buffer that the tensor lies in">:$source,
    Arg<Variadic<I64>, "sizes that are values">:$sizes,
    Arg<Variadic<I64>, "strides that are values">:$strides,
    Ditron_Known<"sizes">:$static_sizes,
    Ditron_Known<"strides">:$static_strides,
    Arg<UnitAttr, "NaN outside of the tensor, not zero">:$nan_padding);
  let results = (outs Res<Ditron_TensorDescriptor, "the descriptor">:$result);
  let assemblyFormat = [{
    $source `sizes` custom<Ints>($sizes, $static_sizes) `strides` custom<Ints>($strides, $static_strides)
    (`nan_padding` $nan_padding^)? attr-dict `:` type($source) `to` type($result)
  }];
  let hasCanonicalizer = 1;
  let hasVerifier = 1;
}

def Ditron_StreamOp : Ditron_Op<"stream", [Ditron_InProgram, Pure,
    DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>]> {
  let summary = "a stream of this rank's GPU";
  let description = [{
    The stream that the program is called on, or a further one by its label; with
    an index, one of several. The same label and index are the same stream. A
    further stream begins with what the stream of the program had before the call,
    and the stream of the program ends after all of them.

    ```mlir
    %main = ditron.stream
    %copy = ditron.stream "copy"
    %lane = ditron.stream "ring"[%i]
    ```
  }];
  let arguments = (ins
    Arg<DefaultValuedStrAttr<StrAttr, "">, "name of the stream; empty for that of the program">:$label,
    Arg<Optional<I64>, "which of the streams of that name">:$index);
  let results = (outs Res<Ditron_Stream, "the stream">:$result);
  let assemblyFormat = "($label^)? (`[` $index^ `]`)? attr-dict";
  let hasVerifier = 1;
}

#endif // DITRON_HOST_OPS_TD
