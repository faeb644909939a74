#include "Nesting.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Location.h"

namespace mlir::ditron::python {

/// Deeper than any program, and of regions, which take most, 2 MB of stack.
constexpr unsigned maxDepth = 256;

/// The first character after a string or comment that begins at `at`; `at` if none does.
static size_t skip(llvm::StringRef text, size_t at) {
  if (text.substr(at).starts_with("//")) {
    return std::min(text.find('\n', at), text.size());
  }
  if (text[at] != '"') {
    return at;
  }
  size_t end = at + 1;
  while (end < text.size() && text[end] != '"' && text[end] != '\n') {
    end += text[end] == '\\' ? 2 : 1;
  }
  return std::min(end + 1, text.size());
}

std::optional<DeepNesting> findDeepNesting(llvm::StringRef text) {
  if (text.starts_with("ML\xef"
                       "R")) {
    return std::nullopt; // bytecode
  }
  constexpr llvm::StringLiteral opening = "([{<", closing = ")]}>";
  unsigned open[4] = {}, depth = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    if (size_t next = skip(text, at); next != at) {
      at = next - 1;
      continue;
    }
    bool isArrow = at > 0 && text[at] == '>' && text[at - 1] == '-';
    bool isComparison = at + 1 < text.size() && (text[at] == '<' || text[at] == '>') && text[at + 1] == '=';
    if (isArrow || isComparison) {
      continue;
    }
    if (size_t kind = opening.find(text[at]); kind != llvm::StringRef::npos) {
      ++open[kind];
      if (++depth > maxDepth) {
        llvm::StringRef before = text.take_front(at);
        return DeepNesting{unsigned(before.count('\n') + 1), unsigned(at - (before.rfind('\n') + 1) + 1),
                           "brackets are nested more than " + std::to_string(maxDepth) + " deep"};
      }
    } else if (kind = closing.find(text[at]); kind != llvm::StringRef::npos && open[kind]) {
      --open[kind];
      --depth;
    }
  }
  return std::nullopt;
}

LogicalResult verifyNesting(llvm::StringRef text, llvm::StringRef name, MLIRContext *context) {
  std::optional<DeepNesting> deep = findDeepNesting(text);
  if (!deep) {
    return success();
  }
  return emitError(FileLineColLoc::get(context, name, deep->line, deep->column)) << deep->message;
}

} // namespace mlir::ditron::python
