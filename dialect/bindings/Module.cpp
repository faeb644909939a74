// The nanobind module ditron_compiler._core. Python sees it through ditron_compiler.ir.
#include "Core.h"
#include "dialect/Register.h"
#include "mlir/Config/mlir-config.h"
#include "llvm/Config/llvm-config.h"

using namespace mlir::ditron::python;

NB_MODULE(_core, m) {
  // The registries of classes live as long as the process.
  nb::set_leak_warnings(false);
  mlir::ditron::registerAllPasses();
  m.attr("llvm_version") = LLVM_VERSION_STRING;
  bindContext(m);
  bindDiagnostics(m);
  bindLocations(m);
  bindTypes(m);
  bindAttributes(m);
  bindOperations(m);
  bindCreation(m);
  bindValues(m);
  bindBlocks(m);
  bindInterfaces(m);
  bindPassManager(m);
  bindOpt(m);
  bindLsp(m);
}
