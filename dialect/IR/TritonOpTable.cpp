// Triton's operations that MLIR's passes must know about.
//
// One table: what is not in it is unknown, and passes assume the worst of it.
// Names and effects are those of Triton 3.6 to 3.9.

#include "dialect/IR/TritonOpTable.h"
#include "dialect/IR/TritonOpModel.h"

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mlir::ditron;
using tt::Structure;

namespace {

/// How an operation touches memory.
enum class Access {
  None,      // may also be executed where it was not asked for
  Read,      //
  Write,     // or an effect that must stay, such as printing
  ReadWrite, //
  Load,      // reads; if `isVolatile`, writes too, so that it stays
  Call,      // reads and writes, unless `pure`
  Unknown,   // no statement; known for its structure only
};

struct Entry {
  Access access;
  Structure structure = Structure::Plain;
};

const llvm::StringMap<Entry> &getTable() {
  static const llvm::StringMap<Entry> table = {
      // who am I
      {"tt.get_program_id", {Access::None}},
      {"tt.get_num_programs", {Access::None}},
      // pointers and shapes
      {"tt.addptr", {Access::None}},
      {"tt.advance", {Access::None}},
      {"tt.bitcast", {Access::None}},
      {"tt.broadcast", {Access::None}},
      {"tt.cat", {Access::None}},
      {"tt.expand_dims", {Access::None}},
      {"tt.gather", {Access::None}},
      {"tt.int_to_ptr", {Access::None}},
      {"tt.join", {Access::None}},
      {"tt.make_range", {Access::None}},
      {"tt.make_tensor_descriptor", {Access::None}},
      {"tt.make_tensor_ptr", {Access::None}},
      {"tt.ptr_to_int", {Access::None}},
      {"tt.reshape", {Access::None}},
      {"tt.splat", {Access::None}},
      {"tt.split", {Access::None}},
      {"tt.trans", {Access::None}},
      {"tt.unsplat", {Access::None}},
      // arithmetic
      {"tt.approx_divf", {Access::None}},
      {"tt.clampf", {Access::None}},
      {"tt.dot", {Access::None}},
      {"tt.dot_scaled", {Access::None}},
      {"tt.fp_to_fp", {Access::None}},
      {"tt.histogram", {Access::None}},
      {"tt.mulhiui", {Access::None}},
      {"tt.precise_divf", {Access::None}},
      {"tt.precise_sqrt", {Access::None}},
      {"tt.reduce", {Access::None}},
      {"tt.scan", {Access::None}},
      // memory
      {"tt.atomic_cas", {Access::ReadWrite}},
      {"tt.atomic_rmw", {Access::ReadWrite}},
      {"tt.descriptor_gather", {Access::Read}},
      {"tt.descriptor_load", {Access::Read}},
      {"tt.descriptor_reduce", {Access::ReadWrite}},
      {"tt.descriptor_scatter", {Access::Write}},
      {"tt.descriptor_store", {Access::Write}},
      {"tt.load", {Access::Load}},
      {"tt.store", {Access::Write}},
      // calls and what speaks to the user
      {"tt.assert", {Access::Write}},
      {"tt.elementwise_inline_asm", {Access::Call}},
      {"tt.extern_elementwise", {Access::Call}},
      {"tt.print", {Access::Write}},
      // structure
      {"tt.func", {Access::Unknown, Structure::Isolated}},
      {"tt.map_elementwise.return", {Access::None, Structure::Terminator}},
      {"tt.reduce.return", {Access::None, Structure::Terminator}},
      {"tt.return", {Access::None, Structure::Terminator}},
      {"tt.scan.return", {Access::None, Structure::Terminator}},
  };
  return table;
}

const Entry *lookUp(StringRef name) {
  auto found = getTable().find(name);
  return found == getTable().end() ? nullptr : &found->second;
}

bool hasTrue(Operation *op, StringRef name) {
  auto flag = op->getAttrOfType<BoolAttr>(name);
  return flag && flag.getValue();
}

/// The access of `op`, with what depends on its attributes decided.
Access getAccess(Operation *op) {
  Access access = lookUp(op->getName().getStringRef())->access;
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

} // namespace

void tt::registerTritonOps(Dialect &dialect, TypeIDAllocator &ids) {
  for (const auto &entry : getTable()) {
    RegisteredOperationName::insert(
        std::make_unique<TritonOpModel>(entry.getKey(), &dialect,
                                        ids.allocate(),
                                        entry.getValue().structure),
        /*attrNames=*/{});
  }
}

void *tt::getTritonOpInterface(TypeID interface, OperationName name) {
  static Effects effects;
  static Speculatability speculatability;
  const Entry *entry = lookUp(name.getStringRef());
  if (!entry || entry->access == Access::Unknown) {
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
