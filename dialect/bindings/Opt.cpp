// The main of ditron-opt: MLIR's own, with our dialects and passes; Python has registered its passes before.
#include "Nesting.h"
#include "PythonPass.h"
#include "dialect/Register.h"
#include "mlir/Support/FileUtilities.h"
#include "mlir/Tools/mlir-opt/MlirOptMain.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/InitLLVM.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/ToolOutputFile.h"

namespace mlir::ditron::python {

static bool isStatisticsFlag(const std::string &argument) {
  return StringRef(argument).ltrim('-') == "mlir-pass-statistics" && StringRef(argument).starts_with("-");
}

/// MLIR's main, which does not parse what is nested too deep.
static LogicalResult runOpt(int argc, char **argv, DialectRegistry &registry) {
  auto [input, output] = registerAndParseCLIOptions(argc, argv, "DITRON's mlir-opt\n", registry);
  MlirOptMainConfig config = MlirOptMainConfig::createFromCLOptions();
  if (config.shouldShowDialects() || config.shouldListPasses()) {
    return MlirOptMain(argc, argv, input, output, registry);
  }
  llvm::InitLLVM init(argc, argv);
  if (input == "-" && llvm::sys::Process::FileDescriptorIsDisplayed(fileno(stdin))) {
    llvm::errs() << "(processing input from stdin now, hit ctrl-c/ctrl-d to interrupt)\n";
  }
  std::string message;
  std::unique_ptr<llvm::MemoryBuffer> file = openInputFile(input, &message);
  std::unique_ptr<llvm::ToolOutputFile> out = file ? openOutputFile(output, &message) : nullptr;
  if (!out) {
    llvm::errs() << message << "\n";
    return failure();
  }
  if (std::optional<DeepNesting> deep = findDeepNesting(file->getBuffer())) {
    llvm::errs() << file->getBufferIdentifier() << ":" << deep->line << ":" << deep->column
                 << ": error: " << deep->message << "\n";
    return failure();
  }
  if (failed(MlirOptMain(out->os(), std::move(file), registry, config))) {
    return failure();
  }
  out->keep();
  return success();
}

static int optMain(std::vector<std::string> arguments) {
  static bool called = false;
  if (std::exchange(called, true)) {
    raise(PyExc_RuntimeError, "opt_main can run once in a process: LLVM's command line options are global");
  }
  // Ours, because LLVM's own counters are compiled out of release builds: MLIR would print an empty report.
  bool showStatistics = llvm::any_of(arguments, isStatisticsFlag);
  llvm::erase_if(arguments, isStatisticsFlag);
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
  PassStatistics statistics;
  CountInto counting(statistics);
  LogicalResult result = runOpt(int(argv.size()), argv.data(), registry);
  if (showStatistics) {
    llvm::errs() << "===- pass statistics -===\n";
    for (const PassStatistics::Entry &entry : statistics.entries) {
      llvm::errs() << llvm::formatv("{0,8}  {1}: {2}\n", entry.count, entry.pass, entry.name);
    }
  }
  return asMainReturnCode(result);
}

void bindOpt(nb::module_ &m) {
  m.def("opt_main", &optMain, "argv"_a,
        "Runs mlir-opt's main with our dialects and the registered passes; once per process.");
}

} // namespace mlir::ditron::python
