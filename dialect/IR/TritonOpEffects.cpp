// What Triton's operations do to memory, and their results' names.

#include "dialect/IR/TritonOpTable.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

using namespace mlir;
using namespace mlir::ditron;
using tt::Access;

namespace {

bool hasTrue(Operation *op, StringRef name) {
  auto flag = op->getAttrOfType<BoolAttr>(name);
  return flag && flag.getValue();
}

/// The access of `op`, with what depends on its attributes decided.
Access getAccess(Operation *op) {
  Access access = tt::lookUpTritonOp(op->getName().getStringRef())->access;
  if (access == Access::Load) {
    return hasTrue(op, "isVolatile") ? Access::ReadWrite : Access::Read;
  }
  if (access == Access::Call) {
    return hasTrue(op, "pure") ? Access::None : Access::ReadWrite;
  }
  return access;
}

struct Effects : MemoryEffectOpInterface::FallbackModel<Effects> {
  static bool classof(Operation *op) { return true; }
  void
  getEffects(Operation *op,
             SmallVectorImpl<MemoryEffects::EffectInstance> &effects) const {
    Access access = getAccess(op);
    if (access == Access::Read || access == Access::ReadWrite) {
      effects.emplace_back(MemoryEffects::Read::get());
    }
    if (access == Access::Write || access == Access::ReadWrite) {
      effects.emplace_back(MemoryEffects::Write::get());
    }
  }
};

struct Speculatability
    : ConditionallySpeculatable::FallbackModel<Speculatability> {
  static bool classof(Operation *op) { return true; }
  Speculation::Speculatability getSpeculatability(Operation *op) const {
    return getAccess(op) == Access::None ? Speculation::Speculatable
                                         : Speculation::NotSpeculatable;
  }
};

/// Several results are named as they are declared, as ODS does.
struct ResultNames : OpAsmOpInterface::FallbackModel<ResultNames> {
  static bool classof(Operation *op) { return true; }
  void getAsmBlockArgumentNames(Operation *, Region &,
                                OpAsmSetValueNameFn) const {}
  void getAsmBlockNames(Operation *, OpAsmSetBlockNameFn) const {}
  void getAsmResultNames(Operation *op, OpAsmSetValueNameFn setName) const {
    const auto *entry = tt::lookUpTritonOp(op->getName().getStringRef());
    for (auto [result, declared] :
         llvm::zip(op->getResults(), entry->format.results())) {
      setName(result, declared.name);
    }
  }
};

} // namespace

void *tt::getTritonOpInterface(TypeID interface, OperationName name) {
  static Effects effects;
  static Speculatability speculatability;
  static ResultNames resultNames;
  const TritonOp *op = lookUpTritonOp(name.getStringRef());
  if (!op) {
    return nullptr;
  }
  if (interface == OpAsmOpInterface::getInterfaceID()) {
    return op->format.results().size() > 1 ? &resultNames : nullptr;
  }
  if (op->access == Access::Unknown) {
    return nullptr;
  }
  if (interface == MemoryEffectOpInterface::getInterfaceID()) {
    return &effects;
  }
  if (interface == ConditionallySpeculatable::getInterfaceID()) {
    return &speculatability;
  }
  return nullptr;
}
