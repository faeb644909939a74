// The threads inside a program, the call of what has no operation, the cost of
// what a program does, and how often it does so. On a simulated rank a program
// is one thread.

#ifndef DITRON_THREAD_OPS_TD
#define DITRON_THREAD_OPS_TD

include "DitronEnums.td"
include "DitronTypes.td"

class Ditron_ThreadQuery<string mnemonic, list<Trait> traits = [Ditron_ThreadDependent]>
    : Ditron_NamedOp<mnemonic, mnemonic, !listconcat([Pure], traits)> {
  let assemblyFormat = "attr-dict";
}

def Ditron_ThreadIdOp : Ditron_ThreadQuery<"thread_id"> {
  let summary = "the number of this thread in its program";
  let description = [{
    In `[0, num_threads)`, and different in each thread of the program.

    ```mlir
    %t = ditron.thread_id
    ```
  }];
  let results = (outs Res<I32, "number of the thread">:$result);
}

def Ditron_NumThreadsOp : Ditron_ThreadQuery<"num_threads", []> {
  let summary = "how many threads a program has";
  let description = [{
    Warps times threads per warp; 1 in the simulator.

    ```mlir
    %n = ditron.num_threads
    ```
  }];
  let results = (outs Res<I32, "threads per program">:$result);
}

def Ditron_LaneIdOp : Ditron_ThreadQuery<"lane_id"> {
  let summary = "the number of this thread in its warp";
  let description = [{
    In `[0, 32)` on NVIDIA, `[0, 64)` on AMD's CDNA; 0 in the simulator.

    ```mlir
    %l = ditron.lane_id
    ```
  }];
  let results = (outs Res<I32, "lane of the thread">:$result);
}

def Ditron_WarpIdOp : Ditron_ThreadQuery<"warp_id"> {
  let summary = "the number of this thread's warp in its program";
  let description = [{
    0 in the simulator.

    ```mlir
    %w = ditron.warp_id
    ```
  }];
  let results = (outs Res<I32, "warp of the thread">:$result);
}

def Ditron_SyncThreadsOp : Ditron_Op<"sync_threads", [Ditron_Ordered, Ditron_ProgramWide]> {
  let summary = "barrier of all threads of a program";
  let description = [{
    No thread goes on before all have come; their earlier stores are visible to
    each other. Every thread must reach it. A second one right after is dropped.

    ```mlir
    ditron.sync_threads
    ```
  }];
  let assemblyFormat = "attr-dict";
  let hasCanonicalizeMethod = 1;
}

def Ditron_ShflOp : Ditron_Op<"shfl", [
    Ditron_Ordered, Ditron_ThreadDependent, AllTypesMatch<["value", "result"]>]> {
  let summary = "read a value from another lane of the warp";
  let description = [{
    Every lane of the warp must execute it together, which is why it counts as
    reading and writing memory: it is never merged or moved. A lane outside the
    warp gives the own value back. The own value, in the simulator.

    ```mlir
    %a = ditron.shfl idx %value, %lane : i32
    %b = ditron.shfl bfly %value, %mask : i32
    ```
  }];
  let arguments = (ins
    Arg<Ditron_ShflValue, "value that this lane offers">:$value,
    Arg<I32, "lane, distance or mask, as the mode says">:$lane,
    Ditron_Shfl_Idx:$mode);
  let results = (outs Res<Ditron_ShflValue, "value that the other lane offered">:$result);
  let assemblyFormat = "custom<Keyword>($mode) $value `,` $lane attr-dict `:` type($value)";
  let hasVerifier = 1;
}

def Ditron_BallotOp : Ditron_Op<"ballot", [Ditron_Ordered]> {
  let summary = "which lanes of the warp hold a true predicate";
  let description = [{
    Bit l of the result is the predicate of lane l; bits beyond the warp are 0.
    Every lane of the warp must execute it together.

    ```mlir
    %lanes = ditron.ballot %pred
    ```
  }];
  let arguments = (ins Arg<I1, "predicate of this lane">:$pred);
  let results = (outs Res<I64, "one bit per lane">:$result);
  let assemblyFormat = "$pred attr-dict";
}

def Ditron_SpendOp : Ditron_Op<"spend", [Ditron_Ordered]> {
  let summary = "what the program spends here, for the simulator's clock";
  let description = [{
    `amount` operations of a matrix product, or bytes that are loaded or stored;
    `at` says where, when that may be another rank's memory. Of an operand it is
    the first of its bytes: a pointer, the first of a tensor of pointers, or
    where a block of a descriptor begins. The time that it takes is the
    machine's. Nothing without a clock, and on GPUs.

    ```mlir
    ditron.spend dot16 %one
    ditron.spend store %bytes at %dst : !tt.ptr<bf16>
    ditron.spend operand %bytes at %src : !tt.ptr<bf16>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_CostAttr, "what is spent">:$cost,
    Arg<I64, "operations or bytes">:$amount,
    Arg<Variadic<AnyType>, "an address in the memory that is accessed, or a descriptor and indices">:$place);
  let assemblyFormat = "custom<Keyword>($cost) $amount (`at` $place^ `:` type($place))? attr-dict";
}

def Ditron_Probability : ConfinedAttr<F64Attr, [AttrConstraint<
    CPred<"::llvm::cast<::mlir::FloatAttr>($_self).getValueAsDouble() >= 0 && "
          "::llvm::cast<::mlir::FloatAttr>($_self).getValueAsDouble() <= 1">,
    "in [0, 1]">]>;

def Ditron_ExpectOp : Ditron_Op<"expect", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<ConditionallySpeculatable>]> {
  let summary = "a condition, and how probable it is";
  let description = [{
    Returns `condition` unchanged, as LLVM's `llvm.expect.with.probability`; it
    becomes no instruction. Where timing-only mode computes no floating-point data
    that the condition depends on, `skeletonize` drops it, and the simulator draws
    the result: true with `probability`, of the seed, the program and how often
    that has come here; `uniform`, the same in all programs of all ranks. Then it
    counts as reading and writing memory: no two draws are merged, or moved.

    ```mlir
    %known = ditron.expect %pred, 2.500000e-01
    %drawn = ditron.expect 2.500000e-01
    %everywhere = ditron.expect %pred, 9.000000e-01 uniform
    ```
  }];
  let arguments = (ins
    Arg<Optional<I1>, "the condition; left out, it is drawn">:$condition,
    Arg<Ditron_Probability, "how often it is true">:$probability,
    Arg<UnitAttr, "it is the same in every program of every rank">:$uniform);
  let results = (outs Res<I1, "the condition">:$result);
  let assemblyFormat = "($condition^ `,`)? $probability (`uniform` $uniform^)? attr-dict";
}

def Ditron_ExternCallOp : Ditron_Op<"extern_call", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>,
    DeclareOpInterfaceMethods<ConditionallySpeculatable>]> {
  let summary = "call a function of a device library by its symbol";
  let description = [{
    For what the dialect has no operation for. The symbol is called by each
    thread, with scalars and pointers as they are and tensors elementwise. Unless
    it is `pure` it may read and write any memory. `libname` and `libpath` name
    the library that Triton links; left out, the symbol is ours or the target's.

    ```mlir
    %r = ditron.extern_call "my_reduce"(%a, %b) : (i32, i64) -> i32
    %s = ditron.extern_call "__nv_sinf"(%f) from "libdevice" at "lib.bc" pure : (f32) -> f32
    ```
  }];
  let arguments = (ins
    Arg<Variadic<AnyType>, "arguments of the call">:$args,
    Arg<ConfinedAttr<StrAttr, [AttrConstraint<
      CPred<"!::llvm::cast<::mlir::StringAttr>($_self).getValue().empty()">,
      "that names the function to call, not an empty one">]>, "function to call">:$symbol,
    Arg<DefaultValuedStrAttr<StrAttr, "">, "name of its library">:$libname,
    Arg<DefaultValuedStrAttr<StrAttr, "">, "file of its library">:$libpath,
    Arg<UnitAttr, "the result depends on the arguments only">:$pure);
  let results = (outs Res<Variadic<AnyType>, "what the call returns">:$results);
  let assemblyFormat = [{
    $symbol `(` $args `)` (`from` $libname^)? (`at` $libpath^)? (`pure` $pure^)?
    attr-dict `:` functional-type($args, $results)
  }];
  let hasVerifier = 1;
}

#endif // DITRON_THREAD_OPS_TD
