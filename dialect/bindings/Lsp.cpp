// The main of ditron-lsp-server: MLIR's language server with our dialects, for editors that show .mlir files.
#include "Core.h"
#include "dialect/Register.h"
#include "mlir/Tools/mlir-lsp-server/MlirLspServerMain.h"

namespace mlir::ditron::python {

static int lspMain(std::vector<std::string> arguments) {
  std::vector<char *> argv;
  for (std::string &argument : arguments) {
    argv.push_back(argument.data());
  }
  DialectRegistry registry;
  registerAllDialects(registry);
  return failed(MlirLspServerMain(int(argv.size()), argv.data(), registry));
}

void bindLsp(nb::module_ &m) {
  m.def("lsp_main", &lspMain, "argv"_a,
        "Runs mlir-lsp-server's main with our dialects; speaks on standard input and output until told to exit.");
}

} // namespace mlir::ditron::python
