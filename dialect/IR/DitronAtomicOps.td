// Atomic accesses with a scope and a semantic, and NVLink SHARP.

#ifndef DITRON_ATOMIC_OPS_TD
#define DITRON_ATOMIC_OPS_TD

include "DitronEnums.td"
include "DitronTypes.td"

def Ditron_LdOp : Ditron_Op<"ld", [
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>, Ditron_AtomicOpInterface,
    PointedToBy<"result", "ptr">]> {
  let summary = "atomic load";
  let description = [{
    Loads one value per pointer, whole, and never from a stale cache. With
    `semantic acquire` nothing later in the program moves above it.

    ```mlir
    %v = ditron.ld %cell : !tt.ptr<i32>
    %w = ditron.ld %cells scope node semantic acquire : tensor<64x!tt.ptr<f32>>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_CellPtr, "address, on this rank or from `symm_at`">:$ptr,
    Ditron_Scope_GPU:$scope, Ditron_Load_Relaxed:$semantic);
  let results = (outs Res<Ditron_Cell, "value read">:$result);
  let assemblyFormat = [{
    $ptr (`scope` custom<Keyword>($scope)^)? (`semantic` custom<Keyword>($semantic)^)?
    attr-dict `:` type($ptr)
  }];
  let extraClassDeclaration = [{
    bool writesMemory() { return false; }
    bool isReadModifyWrite() { return false; }
  }];
}

def Ditron_StOp : Ditron_Op<"st", [
    MemoryEffects<[MemWrite]>, Ditron_AtomicOpInterface, PointedToBy<"value", "ptr">]> {
  let summary = "atomic store";
  let description = [{
    Stores one value per pointer, whole. With `semantic release` what this
    program wrote before is visible to who acquires the value. It is done once by
    the program, not once by each thread.

    ```mlir
    ditron.st %cell, %value : !tt.ptr<i32>
    ditron.st %cell, %value scope node semantic release : !tt.ptr<i32>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_CellPtr, "address, on this rank or from `symm_at`", [MemWrite]>:$ptr,
    Arg<Ditron_Cell, "value to store">:$value,
    Ditron_Scope_GPU:$scope, Ditron_Store_Relaxed:$semantic);
  let assemblyFormat = [{
    $ptr `,` $value (`scope` custom<Keyword>($scope)^)? (`semantic` custom<Keyword>($semantic)^)?
    attr-dict `:` type($ptr)
  }];
  let extraClassDeclaration = [{
    bool isReadModifyWrite() { return false; }
  }];
}

def Ditron_AtomicAddOp : Ditron_Op<"atomic_add", [
    Ditron_Ordered, Ditron_AtomicOpInterface, PointedToBy<"value", "ptr">, PointedToBy<"old", "ptr">]> {
  let summary = "atomic add that returns the old value";
  let description = [{
    `shmem_atomic_fetch_add`. Integers wrap around.

    ```mlir
    %old = ditron.atomic_add %cell, %value : !tt.ptr<i32>
    %seen = ditron.atomic_add %cell, %value scope node semantic acq_rel : !tt.ptr<i32>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SumPtr, "address, on this rank or from `symm_at`", [MemRead, MemWrite]>:$ptr,
    Arg<Ditron_Cell, "value to add">:$value,
    Ditron_Scope_GPU:$scope, Ditron_Relaxed:$semantic);
  let results = (outs Res<Ditron_Cell, "value before the addition">:$old);
  let assemblyFormat = [{
    $ptr `,` $value (`scope` custom<Keyword>($scope)^)? (`semantic` custom<Keyword>($semantic)^)?
    attr-dict `:` type($ptr)
  }];
  let extraClassDeclaration = [{
    bool mayDecrease();
  }];
}

def Ditron_AtomicCasOp : Ditron_Op<"atomic_cas", [
    Ditron_Ordered, Ditron_AtomicOpInterface, PointedToBy<"cmp", "ptr">, PointedToBy<"value", "ptr">,
    PointedToBy<"old", "ptr">]> {
  let summary = "atomic compare and swap that returns the old value";
  let description = [{
    `shmem_atomic_compare_swap`: stores `value` if memory holds `cmp`.

    ```mlir
    %old = ditron.atomic_cas %cell, %cmp, %value : !tt.ptr<i32>
    %seen = ditron.atomic_cas %cell, %cmp, %value scope node semantic acquire : !tt.ptr<i32>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_CasPtr, "address, on this rank or from `symm_at`", [MemRead, MemWrite]>:$ptr,
    Arg<Ditron_Cell, "value that memory must hold">:$cmp,
    Arg<Ditron_Cell, "value to store then">:$value,
    Ditron_Scope_GPU:$scope, Ditron_Relaxed:$semantic);
  let results = (outs Res<Ditron_Cell, "value that memory held">:$old);
  let assemblyFormat = [{
    $ptr `,` $cmp `,` $value (`scope` custom<Keyword>($scope)^)?
    (`semantic` custom<Keyword>($semantic)^)? attr-dict `:` type($ptr)
  }];
}

def Ditron_RedOp : Ditron_Op<"red", [
    Ditron_Ordered, Ditron_AtomicOpInterface, PointedToBy<"value", "ptr">]> {
  let summary = "atomic update that returns nothing";
  let description = [{
    Combines `value` with memory. `min` and `max` take integers, signed.

    ```mlir
    ditron.red %cell add %value : !tt.ptr<i32>
    ditron.red %cell max %value scope node semantic release : !tt.ptr<i32>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_SumPtr, "address, on this rank or from `symm_at`", [MemRead, MemWrite]>:$ptr,
    Arg<Ditron_Cell, "value to combine with memory">:$value,
    Ditron_Sum:$op, Ditron_Scope_GPU:$scope, Ditron_Store_Relaxed:$semantic);
  let assemblyFormat = [{
    $ptr custom<Keyword>($op) $value (`scope` custom<Keyword>($scope)^)?
    (`semantic` custom<Keyword>($semantic)^)? attr-dict `:` type($ptr)
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    bool mayDecrease();
  }];
}

def Ditron_MultimemLdReduceOp : Ditron_Op<"multimem_ld_reduce", [
    MemoryEffects<[MemRead]>, Ditron_RequiresMulticast, PointedToBy<"result", "ptr">]> {
  let summary = "load from all ranks through the switch, combined on the way";
  let description = [{
    PTX `multimem.ld_reduce`: the combination of what the object holds on every
    rank of the multicast team. 16-bit floats are added in f32. `min` and `max`
    take integers (signed), f16 and bf16.

    ```mlir
    %sum = ditron.multimem_ld_reduce add %mc : !tt.ptr<bf16>
    %top = ditron.multimem_ld_reduce max %mcs : tensor<64x!tt.ptr<bf16>>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_MultimemPtr, "from `ditron.multicast_ptr`", [MemRead]>:$ptr, Ditron_Sum:$op);
  let results = (outs Res<Ditron_Cell, "combined value">:$result);
  let assemblyFormat = "custom<Keyword>($op) $ptr attr-dict `:` type($ptr)";
  let hasVerifier = 1;
}

def Ditron_MultimemStOp : Ditron_Op<"multimem_st", [
    MemoryEffects<[MemWrite]>, Ditron_RequiresMulticast, PointedToBy<"value", "ptr">]> {
  let summary = "store the same value on all ranks through the switch";
  let description = [{
    PTX `multimem.st`: every rank of the multicast team receives `value`.

    ```mlir
    ditron.multimem_st %mc, %x : !tt.ptr<bf16>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_MultimemPtr, "from `ditron.multicast_ptr`", [MemWrite]>:$ptr,
    Arg<Ditron_Cell, "value to store">:$value);
  let assemblyFormat = "$ptr `,` $value attr-dict `:` type($ptr)";
  let hasVerifier = 1;
}

def Ditron_MultimemRedOp : Ditron_Op<"multimem_red", [
    Ditron_Ordered, Ditron_RequiresMulticast, PointedToBy<"value", "ptr">]> {
  let summary = "combine a value with memory on all ranks through the switch";
  let description = [{
    PTX `multimem.red`: atomic on each rank of the multicast team. Types as for
    `ditron.multimem_ld_reduce`.

    ```mlir
    ditron.multimem_red %mc add %x : !tt.ptr<bf16>
    ```
  }];
  let arguments = (ins
    Arg<Ditron_MultimemPtr, "from `ditron.multicast_ptr`", [MemRead, MemWrite]>:$ptr,
    Arg<Ditron_Cell, "value to combine with memory">:$value, Ditron_Sum:$op);
  let assemblyFormat = "$ptr custom<Keyword>($op) $value attr-dict `:` type($ptr)";
  let hasVerifier = 1;
}

#endif // DITRON_ATOMIC_OPS_TD
