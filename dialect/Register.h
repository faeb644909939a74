// What DITRON links of MLIR: dialects, passes and the way out to LLVM IR. Only
// Register.cpp includes their headers.
#ifndef DITRON_REGISTER_H
#define DITRON_REGISTER_H

#include "mlir/IR/DialectRegistry.h"
#include "mlir/Support/LLVM.h"
#include <string>

namespace mlir {
class Operation;
}

namespace mlir::ditron {

/// Adds every dialect, inliner and conversion interface that this build has to
/// `registry`.
void registerAllDialects(DialectRegistry &registry);

/// Puts MLIR's passes that our pipelines use into MLIR's global pass registry;
/// once per process.
void registerAllPasses();

/// Writes `module` (builtin.module in the LLVM dialect) as LLVM IR text to
/// `text`; on failure diagnostics say why.
LogicalResult translateToLLVMIR(Operation *module, std::string &text);

} // namespace mlir::ditron

#endif // DITRON_REGISTER_H
