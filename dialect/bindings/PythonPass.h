// Python passes inside MLIR's pass manager.
#ifndef DITRON_BINDINGS_PYTHONPASS_H
#define DITRON_BINDINGS_PYTHONPASS_H

#include "Core.h"

namespace mlir::ditron::python {

/// Takes the exception that a Python pass raised since the last call, if any (a null object otherwise).
nb::object takePendingException();

/// How often passes did something: `Pass.count` of every Python pass that ran, in the order of first use.
///
/// Not MLIR's own pass statistics: LLVM counts nothing in a release build, which is what distributions ship.
struct PassStatistics {
  struct Entry {
    std::string pass, name;
    int64_t count;
  };
  std::vector<Entry> entries;

  void add(const std::string &pass, const std::string &name, int64_t n);
};

/// While it lives, passes that run in this thread count into `statistics`.
class CountInto {
public:
  explicit CountInto(PassStatistics &statistics);
  ~CountInto();

private:
  PassStatistics *outer;
};

/// `_core._register_pass`, `_core._count`.
void bindPythonPasses(nb::module_ &m);

} // namespace mlir::ditron::python

#endif // DITRON_BINDINGS_PYTHONPASS_H
