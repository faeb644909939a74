// MLIR's parser is recursive, without a limit: text that is nested too deep overflows the stack. This is a limit.
#ifndef DITRON_BINDINGS_NESTING_H
#define DITRON_BINDINGS_NESTING_H

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/StringRef.h"
#include <optional>
#include <string>

namespace mlir {
class MLIRContext;
}

namespace mlir::ditron::python {

/// Where brackets of any kind are nested too deep, and what to say of it.
struct DeepNesting {
  unsigned line, column;
  std::string message;
};
std::optional<DeepNesting> findDeepNesting(llvm::StringRef text);

/// Succeeds if there is none in the text, else emits an error.
LogicalResult verifyNesting(llvm::StringRef text, llvm::StringRef name, MLIRContext *context);

} // namespace mlir::ditron::python

#endif
