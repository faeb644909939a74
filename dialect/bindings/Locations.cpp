// Locations: where an operation comes from in the user's source.
#include "Core.h"

namespace mlir::ditron::python {

Location PyLocation::resolve(nb::handle given, PyContext &context) {
  if (given.is_valid() && !given.is_none()) {
    Location location = expect<PyLocation>(given).loc;
    checkContext(context.context, location.getContext(), "the location");
    return location;
  }
  if (frames().empty() || !frames().back().location) {
    raise(PyExc_ValueError, "no Location: diagnostics need one; write `with op.location:` or pass loc=");
  }
  auto *location = nb::inst_ptr<PyLocation>(frames().back().location);
  checkContext(context.context, location->loc.getContext(), "the current location");
  return location->loc;
}

static std::vector<Location> locationsOf(PyContext &context, const nb::sequence &sequence) {
  std::vector<Location> locations;
  for (nb::handle item : sequence) {
    locations.push_back(expect<PyLocation>(item).loc);
    checkContext(context.context, locations.back().getContext(), "a location");
  }
  return locations;
}

/// The first source position in a location, the innermost of inlined calls.
static FileLineColRange findFile(Location location) { return location->findInstanceOf<FileLineColRange>(); }

static nb::object locate(PyLocation &self, Location loc) { return nb::cast(PyLocation(*self.context, loc)); }

template <typename Kind> static Kind as(PyLocation &self, const char *kind) {
  auto location = dyn_cast<Kind>(self.loc);
  if (!location) {
    raise(PyExc_ValueError, "expected a " + std::string(kind) + " location, got " + print(self.loc));
  }
  return location;
}

static void emit(Location loc, DiagnosticSeverity severity, const std::string &message, nb::handle notes) {
  InFlightDiagnostic diagnostic = loc.getContext()->getDiagEngine().emit(loc, severity);
  diagnostic << message;
  if (notes.is_valid() && !notes.is_none()) {
    for (nb::handle note : notes) {
      auto pair = nb::cast<nb::tuple>(note);
      nb::handle where = pair[0];
      std::optional<Location> at;
      if (nb::isinstance<PyOperation>(where)) {
        at = expect<PyOperation>(where).get()->getLoc();
      } else if (!where.is_none()) {
        at = expect<PyLocation>(where).loc;
      }
      diagnostic.attachNote(at) << nb::cast<std::string>(pair[1]);
    }
  }
}

template <DiagnosticSeverity severity>
static void emitAt(PyLocation &self, const std::string &message, nb::handle notes) {
  emit(self.loc, severity, message, notes);
}

void bindLocations(nb::module_ &m) {
  nb::class_<PyLocation>(m, "Location",
                         "Where something comes from. As a context manager, the location of new operations.")
      .def_static(
          "unknown",
          [](nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return PyLocation(c, UnknownLoc::get(c.context));
          },
          "context"_a = nb::none())
      .def_static(
          "file",
          [](const std::string &file, unsigned line, unsigned col, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return PyLocation(c, FileLineColLoc::get(c.context, file, line, col));
          },
          "filename"_a, "line"_a, "col"_a, "context"_a = nb::none())
      .def_static(
          "name",
          [](const std::string &name, nb::handle child, nb::handle context) {
            PyContext &c = child.is_none() ? PyContext::resolve(context) : *expect<PyLocation>(child).context;
            auto attr = StringAttr::get(c.context, name);
            return PyLocation(c,
                              child.is_none() ? NameLoc::get(attr) : NameLoc::get(attr, expect<PyLocation>(child).loc));
          },
          "name"_a, "childLoc"_a = nb::none(), "context"_a = nb::none())
      .def_static(
          "callsite",
          [](PyLocation &callee, nb::sequence callers) {
            std::vector<Location> frames = locationsOf(*callee.context, callers);
            if (frames.empty()) {
              raise(PyExc_ValueError, "a callsite needs at least one caller");
            }
            Location caller = frames.back();
            for (size_t i = frames.size() - 1; i-- > 0;) {
              caller = CallSiteLoc::get(frames[i], caller);
            }
            return PyLocation(*callee.context, CallSiteLoc::get(callee.loc, caller));
          },
          "callee"_a, "frames"_a)
      .def_static(
          "fused",
          [](nb::sequence locations, nb::handle metadata, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            Attribute attr = optionalAttribute(c, metadata, "the metadata");
            return PyLocation(c, FusedLoc::get(c.context, locationsOf(c, locations), attr));
          },
          "locations"_a, "metadata"_a = nb::none(), "context"_a = nb::none())
      .def_static("from_attr",
                  [](PyAttribute &attr) {
                    auto location = dyn_cast<LocationAttr>(attr.attr);
                    if (!location) {
                      raise(PyExc_ValueError, "not a location: " + print(attr.attr));
                    }
                    return PyLocation(*attr.context, location);
                  })
      .def_prop_ro_static("current",
                          [](nb::handle) {
                            if (frames().empty() || !frames().back().location) {
                              raise(PyExc_ValueError, "no current Location");
                            }
                            return frames().back().location;
                          })
      .def_prop_ro("context", [](PyLocation &self) { return self.contextObject; })
      .def_prop_ro("attr", [](PyLocation &self) { return wrapAttribute(*self.context, LocationAttr(self.loc)); })
      .def("is_a_file", [](PyLocation &self) { return isa<FileLineColRange>(self.loc); })
      .def("is_a_name", [](PyLocation &self) { return isa<NameLoc>(self.loc); })
      .def("is_a_callsite", [](PyLocation &self) { return isa<CallSiteLoc>(self.loc); })
      .def("is_a_fused", [](PyLocation &self) { return isa<FusedLoc>(self.loc); })
      .def("is_unknown", [](PyLocation &self) { return isa<UnknownLoc>(self.loc); })
      .def_prop_ro("filename", [](PyLocation &self) { return as<FileLineColRange>(self, "file").getFilename().str(); })
      .def_prop_ro("start_line", [](PyLocation &self) { return as<FileLineColRange>(self, "file").getStartLine(); })
      .def_prop_ro("start_col", [](PyLocation &self) { return as<FileLineColRange>(self, "file").getStartColumn(); })
      .def_prop_ro("name_str", [](PyLocation &self) { return as<NameLoc>(self, "name").getName().str(); })
      .def_prop_ro("child_loc", [](PyLocation &self) { return locate(self, as<NameLoc>(self, "name").getChildLoc()); })
      .def_prop_ro("callee",
                   [](PyLocation &self) { return locate(self, as<CallSiteLoc>(self, "callsite").getCallee()); })
      .def_prop_ro("caller",
                   [](PyLocation &self) { return locate(self, as<CallSiteLoc>(self, "callsite").getCaller()); })
      .def_prop_ro("locations",
                   [](PyLocation &self) {
                     nb::list list;
                     for (Location part : as<FusedLoc>(self, "fused").getLocations()) {
                       list.append(locate(self, part));
                     }
                     return list;
                   })
      .def_prop_ro(
          "file_line_col",
          [](PyLocation &self) -> nb::object {
            FileLineColRange file = findFile(self.loc);
            if (!file) {
              return nb::none();
            }
            return nb::make_tuple(file.getFilename().str(), file.getStartLine(), file.getStartColumn());
          },
          "(file, line, column) of the innermost source position in any kind of location, or None.")
      .def("emit_error", &emitAt<DiagnosticSeverity::Error>, "message"_a, "notes"_a = nb::none(),
           "Reports an error here; `notes` is a sequence of (Location | Operation | None, text).")
      .def("emit_warning", &emitAt<DiagnosticSeverity::Warning>, "message"_a, "notes"_a = nb::none())
      .def("emit_remark", &emitAt<DiagnosticSeverity::Remark>, "message"_a, "notes"_a = nb::none())
      .def("__eq__", [](PyLocation &self, PyLocation &other) { return self.loc == other.loc; })
      .def(
          "__eq__", [](PyLocation &, nb::handle) { return false; }, "other"_a.none())
      .def("__hash__", [](PyLocation &self) { return nb::ssize_t(uintptr_t(self.loc.getAsOpaquePointer()) >> 4); })
      .def("__str__", [](PyLocation &self) { return print(self.loc); })
      .def("__repr__", [](PyLocation &self) { return print(self.loc); })
      .def("__enter__",
           [](nb::handle self) {
             pushFrame({nb::inst_ptr<PyLocation>(self)->contextObject, nb::borrow(self), {}});
             return nb::borrow(self);
           })
      .def("__exit__", [](nb::handle, nb::args) { popFrame(); });
}

} // namespace mlir::ditron::python
