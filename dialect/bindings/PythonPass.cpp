// A Python pass as an MLIR pass: its name, options and documentation are in MLIR's registry, so that pipelines,
// the command line and --help treat it as any other.
#include "PythonPass.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassRegistry.h"
#include "mlir/Support/TypeID.h"

namespace mlir::ditron::python {

namespace {
struct OptionSpec {
  std::string name, field, help;
  nb::object fallback; // its type is the option's
};

/// What the registry knows of a pass class. Never freed: MLIR keeps references into it.
struct PassSpec {
  std::string name, className, description, anchor; // an empty anchor is any operation
  nb::object cls;
  std::vector<OptionSpec> options;
  SelfOwningTypeID id;
};

/// An option in MLIR's terms, and its value as a Python object.
struct PassOption {
  std::unique_ptr<Pass::Option<bool>> boolean;
  std::unique_ptr<Pass::Option<int64_t>> integer;
  std::unique_ptr<Pass::Option<std::string>> string;

  PassOption(Pass &pass, const OptionSpec &spec) {
    auto help = llvm::cl::desc(spec.help);
    if (nb::isinstance<nb::bool_>(spec.fallback)) {
      boolean =
          std::make_unique<Pass::Option<bool>>(pass, spec.name, help, llvm::cl::init(nb::cast<bool>(spec.fallback)));
    } else if (nb::isinstance<nb::int_>(spec.fallback)) {
      integer = std::make_unique<Pass::Option<int64_t>>(pass, spec.name, help,
                                                        llvm::cl::init(nb::cast<int64_t>(spec.fallback)));
    } else {
      string = std::make_unique<Pass::Option<std::string>>(pass, spec.name, help,
                                                           llvm::cl::init(nb::cast<std::string>(spec.fallback)));
    }
  }
  nb::object value() const {
    return boolean ? nb::cast(bool(*boolean)) : integer ? nb::cast(int64_t(*integer)) : nb::cast(std::string(*string));
  }
};

class PythonPass : public Pass {
public:
  explicit PythonPass(const PassSpec &spec)
      : Pass(spec.id, spec.anchor.empty() ? std::nullopt : std::optional<StringRef>(spec.anchor)), spec(spec) {
    options.reserve(spec.options.size());
    for (const OptionSpec &option : spec.options) {
      options.emplace_back(*this, option);
    }
  }
  StringRef getName() const override { return spec.className; }
  StringRef getArgument() const override { return spec.name; }
  StringRef getDescription() const override { return spec.description; }

protected:
  void runOnOperation() override;
  bool canScheduleOn(RegisteredOperationName name) const override {
    return spec.anchor.empty() || name.getStringRef() == spec.anchor;
  }
  bool canScheduleOn(Operation *op) const override {
    return spec.anchor.empty() || op->getName().getStringRef() == spec.anchor;
  }
  LogicalResult initialize(MLIRContext *context) override {
    // Python runs in the thread that started the pipeline.
    context->disableMultithreading();
    return success();
  }
  std::unique_ptr<Pass> clonePass() const override { return std::make_unique<PythonPass>(spec); }

private:
  void run(PyContext &context, Operation *op);
  const PassSpec &spec;
  std::vector<PassOption> options;
};
} // namespace

static nb::object &pendingException() {
  // On the heap: the interpreter may be gone when the thread ends.
  static thread_local auto *pending = new nb::object();
  return *pending;
}

nb::object takePendingException() { return std::exchange(pendingException(), nb::object()); }

static PassStatistics *&countedInto() {
  static thread_local PassStatistics *statistics = nullptr;
  return statistics;
}

void PassStatistics::add(const std::string &pass, const std::string &name, int64_t n) {
  auto it = llvm::find_if(entries, [&](const Entry &entry) { return entry.pass == pass && entry.name == name; });
  if (it == entries.end()) {
    entries.push_back({pass, name, n});
  } else {
    it->count += n;
  }
}

CountInto::CountInto(PassStatistics &statistics) : outer(std::exchange(countedInto(), &statistics)) {}
CountInto::~CountInto() { countedInto() = outer; }

void PythonPass::run(PyContext &context, Operation *op) {
  nb::kwargs arguments;
  for (auto [option, optionSpec] : llvm::zip(options, spec.options)) {
    arguments[optionSpec.field.c_str()] = option.value();
  }
  nb::object pass = spec.cls(**arguments);
  pass.attr("run")(PyOperation::forOperation(context, op));
}

/// Reports what a pass raised: PassFailure is the pass's way to say it; anything else is a bug, with its traceback.
static void report(Operation *op, StringRef pass, nb::python_error &error) {
  nb::object failure = nb::module_::import_("ditron_compiler.ir.pass_base").attr("PassFailure");
  nb::object value = nb::borrow(error.value());
  std::string text = nb::cast<std::string>(nb::str(value));
  if (error.matches(failure)) {
    if (!text.empty()) {
      emitError(op->getLoc(), text);
    }
    return;
  }
  std::string type = nb::cast<std::string>(value.type().attr("__name__"));
  InFlightDiagnostic diagnostic = emitError(op->getLoc()) << "pass '" << pass << "' raised " << type << ": " << text;
  std::string trace;
  for (nb::handle line : nb::module_::import_("traceback").attr("format_tb")(error.traceback())) {
    trace += nb::cast<std::string>(line);
  }
  diagnostic.attachNote(op->getLoc()) << "Python traceback:\n" << StringRef(trace).rtrim();
  // MLIR goes on with the next function: what went wrong first is what the user wants to see.
  if (!pendingException()) {
    pendingException() = value;
  }
}

void PythonPass::runOnOperation() {
  nb::gil_scoped_acquire gil;
  Operation *op = getOperation();
  nb::object contextObject = PyContext::forContext(op->getContext());
  PyContext &context = *nb::inst_ptr<PyContext>(contextObject);
  bool failed = false;
  // A pass that reports an error has failed, whatever it does afterwards.
  ScopedDiagnosticHandler watch(op->getContext(), [&](Diagnostic &diagnostic) {
    failed |= diagnostic.getSeverity() == DiagnosticSeverity::Error;
    return failure();
  });
  // No exception may cross MLIR's frames.
  try {
    pushFrame({contextObject, nb::cast(PyLocation(context, op->getLoc())), {}});
    size_t depth = frames().size();
    context.running.push_back(op);
    auto restore = [&] {
      frames().resize(depth - 1);
      context.running.pop_back();
    };
    try {
      run(context, op);
    } catch (...) {
      restore();
      throw;
    }
    restore();
  } catch (nb::python_error &error) {
    failed = true;
    try {
      report(op, spec.name, error);
    } catch (std::exception &second) {
      emitError(op->getLoc()) << "pass '" << spec.name << "' raised, and so did reporting it: " << second.what();
    }
  } catch (std::exception &error) {
    failed = true;
    emitError(op->getLoc()) << "pass '" << spec.name << "' failed: " << error.what();
  }
  // C++ goes on with the module: what Python holds of it may not be used any more.
  if (context.owned) {
    context.invalidate(op, /*keepRoot=*/!op->getBlock());
  } else {
    context.abandon();
  }
  if (failed) {
    signalPassFailure();
  }
}

void bindPythonPasses(nb::module_ &m) {
  m.def(
      "_register_pass",
      [](nb::object cls, const std::string &name, const std::string &description, const std::string &anchor,
         nb::list options) {
        static auto *specs = new llvm::StringMap<PassSpec *>();
        PassSpec *&spec = (*specs)[name];
        bool isNew = !spec;
        if (isNew) {
          if (PassInfo::lookup(name)) {
            specs->erase(name);
            raise(PyExc_ValueError, "MLIR has a pass '" + name + "' already");
          }
          spec = new PassSpec();
        } else {
          // A new version of a class (an edited module, a test): MLIR keeps its entry, which reads this one.
          spec->options.clear();
        }
        spec->name = name;
        spec->className = nb::cast<std::string>(cls.attr("__name__"));
        spec->description = description;
        spec->anchor = anchor;
        spec->cls = cls;
        for (nb::handle item : options) {
          auto option = nb::cast<nb::tuple>(item);
          spec->options.push_back({nb::cast<std::string>(option[0]), nb::cast<std::string>(option[1]),
                                   nb::cast<std::string>(option[2]), nb::borrow(option[3])});
        }
        if (isNew) {
          registerPass([spec] { return std::make_unique<PythonPass>(*spec); });
        }
      },
      "cls"_a, "name"_a, "description"_a, "anchor"_a, "options"_a);
  m.def(
      "_count",
      [](const std::string &pass, const std::string &name, int64_t n) {
        if (PassStatistics *statistics = countedInto()) {
          statistics->add(pass, name, n);
        }
      },
      "pass_"_a, "name"_a, "n"_a);
  m.def("_registered_passes_contain", [](const std::string &name) { return PassInfo::lookup(name) != nullptr; });
}

} // namespace mlir::ditron::python
