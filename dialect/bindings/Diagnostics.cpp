// Diagnostics: collected in a scope and raised as MLIRError, or handed to Python handlers.
#include "Core.h"

namespace mlir::ditron::python {

DiagnosticInfo makeDiagnosticInfo(PyContext &context, Diagnostic &diagnostic) {
  DiagnosticInfo info{
      diagnostic.getSeverity(), nb::cast(PyLocation(context, diagnostic.getLocation())), diagnostic.str(), {}};
  for (Diagnostic &note : diagnostic.getNotes()) {
    info.notes.push_back(makeDiagnosticInfo(context, note));
  }
  return info;
}

ErrorCollector::ErrorCollector(PyContext &context)
    : context(context), handler(context.context, [this](Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() != DiagnosticSeverity::Error) {
          return failure(); // not ours: the handlers outside get it
        }
        errors.push_back(makeDiagnosticInfo(this->context, diagnostic));
        return success();
      }) {}

void ErrorCollector::raise(const std::string &what) { raiseMLIRError(what, errors); }

void raiseMLIRError(const std::string &what, const std::vector<DiagnosticInfo> &errors) {
  nb::list list;
  for (const DiagnosticInfo &error : errors) {
    list.append(nb::cast(error));
  }
  nb::object type = nb::module_::import_("ditron_compiler.ir._errors").attr("MLIRError");
  nb::object error = type(what, list);
  PyErr_SetObject(type.ptr(), error.ptr());
  throw nb::python_error();
}

namespace {
/// A Python callable in the context's chain of handlers, until detached or dropped.
struct PyDiagnosticHandler {
  nb::object contextObject;
  PyContext *context;
  nb::object callback;
  std::optional<DiagnosticEngine::HandlerID> id;

  void detach() {
    if (id && context->context) {
      context->context->getDiagEngine().eraseHandler(*id);
    }
    id.reset();
  }
  ~PyDiagnosticHandler() { detach(); }
};
} // namespace

void bindDiagnostics(nb::module_ &m) {
  nb::enum_<DiagnosticSeverity>(m, "DiagnosticSeverity")
      .value("ERROR", DiagnosticSeverity::Error)
      .value("WARNING", DiagnosticSeverity::Warning)
      .value("NOTE", DiagnosticSeverity::Note)
      .value("REMARK", DiagnosticSeverity::Remark);
  nb::class_<DiagnosticInfo>(m, "DiagnosticInfo", "A diagnostic that was emitted, with its notes.")
      .def_ro("severity", &DiagnosticInfo::severity)
      .def_ro("location", &DiagnosticInfo::location)
      .def_ro("message", &DiagnosticInfo::message)
      .def_prop_ro("notes", [](DiagnosticInfo &info) { return info.notes; })
      .def("__str__", [](DiagnosticInfo &info) { return info.message; });
  m.attr("Diagnostic") = m.attr("DiagnosticInfo");
  nb::class_<PyDiagnosticHandler>(m, "DiagnosticHandler")
      .def("detach", &PyDiagnosticHandler::detach)
      .def_prop_ro("attached", [](PyDiagnosticHandler &h) { return h.id.has_value(); })
      .def("__enter__", [](nb::handle self) { return nb::borrow(self); })
      .def("__exit__", [](PyDiagnosticHandler &h, nb::args) { h.detach(); });
  nb::borrow<nb::class_<PyContext>>(m.attr("Context"))
      .def(
          "attach_diagnostic_handler",
          [](PyContext &context, nb::object callback) {
            // On the heap before it is registered: the handler must not move. Not inside a class: Python owns the
            // object.
            auto *handler = new PyDiagnosticHandler{context.object(), &context, std::move(callback), {}};
            nb::object self = nb::cast(handler, nb::rv_policy::take_ownership);
            handler->id = context.context->getDiagEngine().registerHandler([handler](Diagnostic &diagnostic) {
              try {
                return success(
                    nb::cast<bool>(handler->callback(nb::cast(makeDiagnosticInfo(*handler->context, diagnostic)))));
              } catch (std::exception &) {
                // No exception may cross MLIR's frames.
                PyErr_WriteUnraisable(handler->callback.ptr());
                PyErr_Clear();
                return failure();
              }
            });
            return self;
          },
          "callback"_a,
          "Calls `callback(DiagnosticInfo) -> bool` for what is emitted in this context; True means handled. Lasts "
          "until the\n"
          "returned handler is detached or dropped.");
}

} // namespace mlir::ditron::python
