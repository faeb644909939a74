// Printing and verifying operations that are not in a block.
#pragma once
#include "mlir/IR/AsmState.h"
#include "mlir/IR/Operation.h"

namespace mlir::ditron::python {

/// The operation that `op` is in, at any depth, or itself.
inline Operation *rootOf(Operation *op) {
  while (Operation *parent = op->getParentOp()) {
    op = parent;
  }
  return op;
}

/// Whether MLIR's verifier, which printing calls, can look at `op`: it reads the block of an operation whose result is
/// used, and crashes where there is none (MLIR 22): of one that was detached and is used elsewhere, or inside itself.
inline bool canBeVerified(Operation *op) {
  auto hasBlocks = [](Operation *user) {
    bool allHave = llvm::all_of(user->getOperands(), [](Value value) {
      Operation *definer = value.getDefiningOp();
      return !definer || definer->getBlock();
    });
    return allHave ? WalkResult::advance() : WalkResult::interrupt();
  };
  return !rootOf(op)->walk(hasBlocks).wasInterrupted();
}

/// How `op` is printed: what cannot be verified in the generic form.
inline OpPrintingFlags printable(Operation *op, OpPrintingFlags flags = {}) {
  return canBeVerified(op) ? flags : flags.printGenericOpForm().assumeVerified();
}

} // namespace mlir::ditron::python
