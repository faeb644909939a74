// PassManager: pipelines as text, run with errors raised, IR printed and time taken.
#include "mlir/Pass/PassManager.h"
#include "PythonPass.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassInstrumentation.h"
#include "mlir/Pass/PassRegistry.h"
#include "llvm/ADT/StringSet.h"
#include <chrono>

namespace mlir::ditron::python {

namespace {
/// A stream into a Python file object, line by line.
class PythonStream : public llvm::raw_ostream {
public:
  explicit PythonStream(nb::object file) : raw_ostream(/*unbuffered=*/true), file(std::move(file)) {}
  ~PythonStream() override { write(line); }

private:
  void write_impl(const char *text, size_t size) override {
    position += size;
    line.append(text, size);
    if (size_t end = line.rfind('\n'); end != std::string::npos) {
      write(line.substr(0, end + 1));
      line.erase(0, end + 1);
    }
  }
  void write(const std::string &text) {
    if (text.empty()) {
      return;
    }
    try {
      file.attr("write")(text);
    } catch (std::exception &) {
      // No exception may cross MLIR's frames.
      PyErr_WriteUnraisable(file.ptr());
    }
  }
  uint64_t current_pos() const override { return position; }

  nb::object file;
  std::string line;
  uint64_t position = 0;
};

/// Wall time by pass, in the order of first use.
class Timer : public PassInstrumentation {
public:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    const Pass *pass;
    std::string name;
    double seconds;
  };
  explicit Timer(std::vector<Entry> &entries) : entries(entries) {}
  void runBeforePass(Pass *pass, Operation *) override {
    if (!pass->getArgument().empty()) {
      starts.push_back(Clock::now());
    }
  }
  void runAfterPass(Pass *pass, Operation *) override {
    if (pass->getArgument().empty()) {
      return; // an adaptor: its passes count for themselves
    }
    double seconds = std::chrono::duration<double>(Clock::now() - starts.back()).count();
    starts.pop_back();
    auto it = llvm::find_if(entries, [pass](const Entry &entry) { return entry.pass == pass; });
    if (it == entries.end()) {
      entries.push_back({pass, pass->getArgument().str(), seconds});
    } else {
      it->seconds += seconds;
    }
  }
  void runAfterPassFailed(Pass *pass, Operation *op) override { runAfterPass(pass, op); }

private:
  std::vector<Entry> &entries;
  std::vector<Clock::time_point> starts;
};

struct PyPassManager {
  nb::object contextObject;
  PyContext *context;
  std::vector<Timer::Entry> timings;
  PassStatistics statistics;
  std::unique_ptr<PythonStream> stream;
  std::unique_ptr<PassManager> pm; // last: it is destroyed first

  PyPassManager(PyContext &context, const std::string &anchor)
      : contextObject(context.object()), context(&context),
        pm(std::make_unique<PassManager>(context.context, anchor == "any" ? StringRef("any") : StringRef(anchor))) {}
};
} // namespace

/// Imports and registers the Python passes that a pipeline names.
static void registerNamed(const std::string &pipeline) {
  nb::module_::import_("ditron_compiler.pass_registry").attr("register_named")(pipeline);
}

static PyPassManager *parsePipeline(const std::string &pipeline, nb::handle context) {
  PyContext &c = PyContext::resolve(context);
  registerNamed(pipeline);
  std::string message;
  llvm::raw_string_ostream stream(message);
  FailureOr<OpPassManager> parsed = parsePassPipeline(pipeline, stream);
  if (failed(parsed)) {
    raise(PyExc_ValueError, "cannot parse the pipeline '" + pipeline + "': " + message);
  }
  auto manager = std::make_unique<PyPassManager>(c, "any");
  static_cast<OpPassManager &>(*manager->pm) = std::move(*parsed);
  return manager.release();
}

static void add(PyPassManager &self, nb::handle pass) {
  std::string text = nb::cast<std::string>(nb::str(pass));
  if (nb::hasattr(pass, "register")) {
    pass.attr("register")();
  }
  registerNamed(text);
  std::string message;
  llvm::raw_string_ostream stream(message);
  if (failed(parsePassPipeline(text, *self.pm, stream))) {
    raise(PyExc_ValueError, "cannot add '" + text + "': " + message);
  }
}

static void run(PyPassManager &self, nb::handle target) {
  // A Module, or an operation.
  nb::object operation = nb::borrow(target.attr("operation"));
  PyOperation &py = expect<PyOperation>(operation);
  Operation *op = py.get();
  checkContext(self.context->context, op->getContext(), "the operation");
  // Patterns look at all users of a value: a detached one would be a surprise to them.
  checkUnused(op, "run passes over");
  self.context->invalidate(op, /*keepRoot=*/true);
  takePendingException();
  ErrorCollector errors(*self.context);
  LogicalResult result = [&] {
    CountInto counting(self.statistics);
    return self.pm->run(op);
  }();
  self.context->invalidate(op, /*keepRoot=*/true);
  if (succeeded(result)) {
    return;
  }
  if (nb::object exception = takePendingException()) {
    // The pass's own exception, with what MLIR said as a note.
    if (!errors.errors.empty()) {
      exception.attr("add_note")(
          errors.errors.front().message.substr(0, errors.errors.front().message.find(" raised")));
    }
    PyErr_SetObject(exception.type().ptr(), exception.ptr());
    throw nb::python_error();
  }
  errors.raise("the pipeline failed");
}

static void enablePrinting(PyPassManager &self, bool beforeAll, bool afterAll, bool moduleScope, bool afterChange,
                           bool afterFailure, std::optional<int64_t> largeElements, bool debugInfo, bool generic,
                           std::optional<std::string> directory, std::vector<std::string> before,
                           std::vector<std::string> after, nb::object file) {
  OpPrintingFlags flags;
  if (largeElements) {
    flags.elideLargeElementsAttrs(*largeElements);
  }
  if (debugInfo) {
    flags.enableDebugInfo();
  }
  flags.printGenericOpForm(generic);
  auto chooser = [](bool all, const std::vector<std::string> &names) {
    llvm::StringSet<> set;
    set.insert_range(names);
    return [all, set = std::move(set)](Pass *pass, Operation *) { return all || set.contains(pass->getArgument()); };
  };
  if (moduleScope && self.context->context->isMultithreadingEnabled()) {
    self.context->context->disableMultithreading();
  }
  if (directory) {
    self.pm->enableIRPrintingToFileTree(chooser(beforeAll, before), chooser(afterAll, after), moduleScope, afterChange,
                                        afterFailure, *directory, flags);
    return;
  }
  self.stream =
      std::make_unique<PythonStream>(file.is_none() ? nb::object(nb::module_::import_("sys").attr("stderr")) : file);
  self.pm->enableIRPrinting(chooser(beforeAll, before), chooser(afterAll, after), moduleScope, afterChange,
                            afterFailure, *self.stream, flags);
}

void bindPassManager(nb::module_ &m) {
  bindPythonPasses(m);
  nb::class_<PyPassManager>(m, "PassManager", "A pipeline of passes over one kind of operation.")
      .def(nb::new_([](const std::string &anchor, nb::handle context) {
             return new PyPassManager(PyContext::resolve(context), anchor);
           }),
           "anchor_op"_a = "any", "context"_a = nb::none())
      .def_static("parse", &parsePipeline, "pipeline"_a, "context"_a = nb::none(),
                  "From text such as 'builtin.module(raise-primitives,canonicalize)'; ValueError says what is wrong.")
      .def("add", &add, "pass_"_a, "Appends a Pass, or the text of passes.")
      .def("run", &run, "operation"_a,
           "Runs over a Module or an operation, in place. Raises MLIRError, or the exception of a Python pass.\n"
           "Python objects of operations below are invalid afterwards.")
      .def(
          "enable_verifier", [](PyPassManager &self, bool enable) { self.pm->enableVerifier(enable); },
          "enable"_a = true, "Verification after every pass; on by default.")
      .def("enable_ir_printing", &enablePrinting, nb::kw_only(), "print_before_all"_a = false,
           "print_after_all"_a = true, "print_module_scope"_a = false, "print_after_change"_a = false,
           "print_after_failure"_a = false, "large_elements_limit"_a = nb::none(), "enable_debug_info"_a = false,
           "print_generic_op_form"_a = false, "tree_printing_dir_path"_a = nb::none(),
           "print_before"_a = std::vector<std::string>(), "print_after"_a = std::vector<std::string>(),
           "file"_a = nb::none(),
           "Prints the IR around passes, to `file` (stderr); print_before and print_after are names of passes.")
      .def(
          "enable_timing",
          [](PyPassManager &self) { self.pm->addInstrumentation(std::make_unique<Timer>(self.timings)); },
          "Takes the time of each pass; read `timings` or `timing_table()` after run.")
      .def(
          "enable_reproducer",
          [](PyPassManager &self, const std::string &path) {
            self.context->context->disableMultithreading(); // MLIR asks for it
            self.pm->enableCrashReproducerGeneration(path, /*genLocalReproducer=*/true);
          },
          "path"_a,
          "When a pass fails, writes what it was given and its pipeline to `path`; the error says so.\n"
          "`ditron-opt --run-reproducer PATH` runs it again. Copies the module before each pass.")
      .def_prop_ro(
          "timings",
          [](PyPassManager &self) {
            nb::list list;
            for (const Timer::Entry &entry : self.timings) {
              list.append(nb::make_tuple(entry.name, entry.seconds));
            }
            return list;
          },
          "(pass, seconds) in order, summed over operations and runs.")
      .def_prop_ro(
          "statistics",
          [](PyPassManager &self) {
            nb::list list;
            for (const PassStatistics::Entry &entry : self.statistics.entries) {
              list.append(nb::make_tuple(entry.pass, entry.name, entry.count));
            }
            return list;
          },
          "(pass, what, how often) in order of first use, summed over operations and runs: what passes counted.")
      .def("__str__", [](PyPassManager &self) {
        std::string text;
        llvm::raw_string_ostream stream(text);
        self.pm->printAsTextualPipeline(stream);
        return text;
      });
}

} // namespace mlir::ditron::python
