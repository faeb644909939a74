// The dialect itself and the base class of its operations.

#ifndef DITRON_DIALECT_TD
#define DITRON_DIALECT_TD

include "mlir/IR/OpBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpAsmInterface.td"
include "DitronInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Ditron_Dialect : Dialect {
  let name = "ditron";
  let cppNamespace = "::mlir::ditron";
  let summary = "kernels that compute and communicate at the same time";
  let description = [{
    The ditron dialect adds communication between GPUs to a Triton kernel. Its
    operations stand beside `tt`, `arith` and `scf` operations in one function.
    Names and meaning are OpenSHMEM 1.5's wherever it has the thing.

    A *rank* is one GPU (or one simulated GPU) of the group that the kernel was
    launched in. A *program* is one instance of the kernel, what Triton calls a
    program and CUDA a thread block: an operation here is executed once by the
    program as a whole, not once by each of its threads, unless it says
    otherwise. *Symmetric* memory is allocated with the same size on every rank;
    an address in it names the same object on each of them. A *signal* is an
    `i64` in symmetric memory, an epoch counter that only grows: nothing is ever
    reset, so a wait asks for "at least this epoch" and calls can follow each
    other without a barrier.

    The host's side, a `ditron.program`, is in the same module as the kernels that
    it launches.

    Pointers are Triton's: `!tt.ptr<T>`, or a tensor of them where an operation
    works elementwise. What an operation guarantees, it guarantees on NVIDIA, on
    AMD and in the simulator alike.

    The custom form leaves attributes out that have their default. The generic
    form shows them all.
  }];
  let dependentDialects = ["::mlir::arith::ArithDialect"];
  let hasConstantMaterializer = 1;
  let useDefaultTypePrinterParser = 1;
  let useDefaultAttributePrinterParser = 1;
}

class Ditron_Op<string mnemonic, list<Trait> traits = []>
    : Op<Ditron_Dialect, mnemonic, traits>;

// An operation whose first result is printed as `%<name>`, which makes a dump
// readable: `%rank`, `%token`.
class Ditron_NamedOp<string mnemonic, string name, list<Trait> traits = []>
    : Ditron_Op<mnemonic, !listconcat(traits, [
        DeclareOpInterfaceMethods<OpAsmOpInterface, ["getAsmResultNames"]>])> {
  let extraClassDefinition = [{
    void $cppClass::getAsmResultNames(::mlir::OpAsmSetValueNameFn setName) {
      setName(getOperation()->getResult(0), "}] # name # [{");
    }
  }];
}

// Reads and writes memory as far as other passes can tell: nothing moves across
// it, it is never merged with its like, and it stays when its result is unused.
def Ditron_Ordered : MemoryEffects<[MemRead, MemWrite]>;

#endif // DITRON_DIALECT_TD
