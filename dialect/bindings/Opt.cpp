// The main of ditron-opt: MLIR's own, with our dialects and passes; Python has registered its passes before.
#include "Core.h"
#include "dialect/Register.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"

namespace mlir::ditron::python {

static int optMain(std::vector<std::string> arguments) {
  static bool called = false;
  if (std::exchange(called, true)) {
    raise(PyExc_RuntimeError, "opt_main can run once in a process: LLVM's command line options are global");
  }
  std::vector<char *> argv;
  for (std::string &argument : arguments) {
    argv.push_back(argument.data());
  }
  // --help is about MLIR and DITRON: what LLVM's libraries registered is noise.
  for (auto &entry : llvm::cl::getRegisteredOptions()) {
    entry.second->setHiddenFlag(llvm::cl::Hidden);
  }
  DialectRegistry registry;
  registerAllDialects(registry);
  return asMainReturnCode(MlirOptMain(int(argv.size()), argv.data(), "DITRON's mlir-opt\n", registry));
}

void bindOpt(nb::module_ &m) {
  m.def("opt_main", &optMain, "argv"_a,
        "Runs mlir-opt's main with our dialects and the registered passes; once per process.");
}

} // namespace mlir::ditron::python
