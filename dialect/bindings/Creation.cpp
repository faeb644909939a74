// Making operations: Operation.create, the typed classes' constructor, parsing, cloning, modules.
#include "Core.h"
#include "Nesting.h"
#include "dialect/Register.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Parser/Parser.h"

namespace mlir::ditron::python {

//===-- classes by operation name ----------------------------------------===//

static llvm::StringMap<nb::object> &classes() {
  static auto *map = new llvm::StringMap<nb::object>();
  return *map;
}

/// The typed class of an operation; the dialect's Python module is imported when its first operation is met.
nb::object classForOperation(PyContext &context, OperationName name) {
  if (auto it = context.classes.find(name.getAsOpaquePointer()); it != context.classes.end()) {
    return nb::borrow(it->second);
  }
  StringRef text = name.getStringRef();
  nb::module_::import_("ditron_compiler.ir._registry").attr("load_dialect")(toStr(text.split('.').first));
  auto found = classes().find(text);
  nb::handle cls = found != classes().end() ? nb::handle(found->second) : nb::type<PyOpView>();
  // Only now is there an entry: the import lets other threads run, and they may be here for the same name.
  context.classes[name.getAsOpaquePointer()] = cls;
  return nb::borrow(cls);
}

//===-- states -----------------------------------------------------------===//

Value valueOf(nb::handle object) {
  if (nb::isinstance<PyValue>(object)) {
    return expect<PyValue>(object).get();
  }
  if (nb::isinstance<PyOperation>(object)) {
    Operation *op = expect<PyOperation>(object).get();
    if (op->getNumResults() != 1) {
      raise(PyExc_ValueError, "expected a value, got '" + op->getName().getStringRef().str() + "' with " +
                                  std::to_string(op->getNumResults()) + " results");
    }
    return op->getResult(0);
  }
  raise(PyExc_TypeError,
        "expected a Value or an Operation with one result, got " + std::string(nb::repr(object).c_str()));
}

static void addOperand(OperationState &state, nb::handle object) {
  Value value = valueOf(object);
  checkContext(state.getContext(), value.getContext(), "an operand");
  state.operands.push_back(value);
}

static void addResult(OperationState &state, nb::handle object) {
  if (!nb::isinstance<PyType>(object)) {
    raise(PyExc_TypeError, "expected a result Type, got " + std::string(nb::repr(object).c_str()));
  }
  Type type = expect<PyType>(object).type;
  checkContext(state.getContext(), type.getContext(), "a result type");
  state.types.push_back(type);
}

static void addAttributes(OperationState &state, nb::handle attributes) {
  if (!attributes.is_valid() || attributes.is_none()) {
    return;
  }
  for (auto [key, value] : nb::cast<nb::dict>(attributes)) {
    if (!nb::isinstance<PyAttribute>(value)) {
      raise(PyExc_TypeError, "expected an Attribute for '" + nb::cast<std::string>(key) + "', got " +
                                 std::string(nb::repr(value).c_str()));
    }
    Attribute attr = expect<PyAttribute>(value).attr;
    checkContext(state.getContext(), attr.getContext(), "an attribute");
    state.addAttribute(nb::cast<std::string>(key), attr);
  }
}

static void addSuccessors(OperationState &state, nb::handle successors) {
  if (successors.is_valid() && !successors.is_none()) {
    for (nb::handle block : successors) {
      state.addSuccessors(expect<PyBlock>(block).get());
    }
  }
}

static void inferResults(OperationState &state, PyContext &context) {
  auto info = state.name.getRegisteredInfo();
  auto *interface = info ? info->getInterface<InferTypeOpInterface>() : nullptr;
  if (!interface) {
    raise(PyExc_ValueError,
          "the results of '" + state.name.getStringRef().str() + "' cannot be inferred; give their types");
  }
  ErrorCollector errors(context);
  SmallVector<Type> types;
  DictionaryAttr attributes = state.attributes.getDictionary(state.getContext());
  // Inference reads properties: make them of the attributes, as creating the operation will.
  std::unique_ptr<Operation, void (*)(Operation *)> probe(
      Operation::create(state.location, state.name, TypeRange(), ValueRange(), attributes, nullptr, BlockRange(), 0),
      [](Operation *op) { op->destroy(); });
  if (failed(interface->inferReturnTypes(state.getContext(), state.location, state.operands, attributes,
                                         probe->getPropertiesStorage(), state.regions, types))) {
    errors.raise("cannot infer the results of '" + state.name.getStringRef().str() + "'");
  }
  state.addTypes(types);
}

/// The name, with its dialect loaded, so that the operation is a registered one.
static OperationName nameOf(PyContext &context, StringRef name) {
  OperationName result(name, context.context);
  if (!result.isRegistered()) {
    StringRef dialect = name.split('.').first;
    if (context.context->getOrLoadDialect(dialect)) {
      result = OperationName(name, context.context);
    } else if (!context.context->allowsUnregisteredDialects()) {
      raise(PyExc_ValueError, "no dialect '" + dialect.str() + "' for operation '" + name.str() + "'");
    }
  }
  return result;
}

/// Creates what `state` says and puts it at `ip` (False: nowhere; None: the current place, if any).
static Operation *build(OperationState &state, nb::handle ip, nb::handle &place) {
  place = nb::handle();
  if (ip.is_valid() && !ip.is_none()) {
    if (!ip.is(nb::handle(Py_False))) {
      place = ip;
    }
  } else if (!frames().empty() && frames().back().insertionPoint) {
    place = frames().back().insertionPoint;
  }
  return Operation::create(state);
}

static void insertAt(nb::handle place, PyOperation &py) {
  if (place.is_valid()) {
    expect<PyInsertionPoint>(place).insert(py);
  }
}

/// The context that a new operation lives in: its location's, or the current one.
static PyContext &contextFor(nb::handle loc) {
  return loc.is_none() ? PyContext::current() : *expect<PyLocation>(loc).context;
}

static nb::object create(const std::string &name, nb::object results, nb::object operands, nb::object attributes,
                         nb::object successors, int regions, nb::object loc, nb::object ip, bool inferType) {
  PyContext &context = contextFor(loc);
  OperationState state(PyLocation::resolve(loc, context), nameOf(context, name));
  if (!operands.is_none()) {
    for (nb::handle operand : operands) {
      addOperand(state, operand);
    }
  }
  addAttributes(state, attributes);
  addSuccessors(state, successors);
  for (int i = 0; i < regions; ++i) {
    state.addRegion();
  }
  if (!results.is_none()) {
    for (nb::handle result : results) {
      addResult(state, result);
    }
  } else if (inferType) {
    inferResults(state, context);
  }
  nb::handle place;
  Operation *op = build(state, ip, place);
  nb::object self = PyOperation::forOperation(context, op, /*owned=*/true);
  insertAt(place, *nb::inst_ptr<PyOperation>(self));
  return self;
}

//===-- the constructor of typed classes ---------------------------------===//

/// Flattens `items` by the ODS segment specification (-1 variadic, 0 optional, 1 one); None has no segments.
template <typename Add>
static void addSegments(OperationState &state, nb::handle items, nb::handle spec, const char *attribute, Add add) {
  if (spec.is_none()) {
    for (nb::handle item : items) {
      if (!item.is_none()) {
        add(state, item);
      }
    }
    return;
  }
  SmallVector<int32_t> sizes;
  nb::object kinds = nb::borrow(spec);
  size_t position = 0;
  for (nb::handle item : items) {
    int kind = nb::cast<int>(kinds[position++]);
    if (item.is_none()) {
      sizes.push_back(0);
    } else if (kind == -1) {
      int32_t count = 0;
      for (nb::handle part : item) {
        add(state, part);
        ++count;
      }
      sizes.push_back(count);
    } else {
      add(state, item);
      sizes.push_back(1);
    }
  }
  state.addAttribute(attribute, DenseI32ArrayAttr::get(state.getContext(), sizes));
}

static void initOpView(nb::pointer_and_handle<PyOpView> self, const std::string &name, nb::object regionSpec,
                       nb::object operandSegments, nb::object resultSegments, nb::object attributes, nb::object results,
                       nb::object operands, nb::object successors, nb::object regions, nb::object loc, nb::object ip) {
  PyContext &context = contextFor(loc);
  OperationState state(PyLocation::resolve(loc, context), nameOf(context, name));
  if (!operands.is_none()) {
    addSegments(state, operands, operandSegments, "operandSegmentSizes", addOperand);
  }
  addAttributes(state, attributes);
  addSuccessors(state, successors);
  int count = regions.is_none() ? nb::cast<int>(regionSpec[0]) : nb::cast<int>(regions);
  for (int i = 0; i < count; ++i) {
    state.addRegion();
  }
  if (results.is_none()) {
    inferResults(state, context);
  } else {
    addSegments(state, results, resultSegments, "resultSegmentSizes", addResult);
  }
  nb::handle place;
  Operation *op = build(state, ip, place);
  auto *py = new (self.p) PyOpView(self.h, context, op, /*owned=*/true);
  try {
    insertAt(place, *py);
  } catch (...) {
    // nanobind does not destroy what an `__init__` that raises has made.
    py->~PyOpView();
    throw;
  }
}

//===-- parsing, cloning, modules ----------------------------------------===//

/// The text of one operation, or of a module (which is added around several).
static OwningOpRef<Operation *> parse(PyContext &context, std::string_view text, const std::string &name, bool verify,
                                      bool isModule) {
  ErrorCollector errors(context);
  ParserConfig config(context.context, verify);
  OwningOpRef<Operation *> op;
  if (failed(verifyNesting(ref(text), name, context.context))) {
    errors.raise("cannot parse");
  }
  if (isModule) {
    if (OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(ref(text), config, name)) {
      op = module.release().getOperation();
    }
  } else {
    op = parseSourceString(ref(text), config, name);
  }
  if (!op) {
    errors.raise(isModule ? "cannot parse the module" : "cannot parse the operation");
  }
  return op;
}

static nb::object own(PyContext &context, OwningOpRef<Operation *> op) {
  return PyOperation::forOperation(context, op.release(), /*owned=*/true);
}

static nb::object clone(PyOperation &self, nb::handle ip, nb::handle mapping) {
  Operation *op = self.get();
  IRMapping map;
  if (!mapping.is_none()) {
    for (auto [from, to] : nb::cast<nb::dict>(mapping)) {
      map.map(valueOf(from), valueOf(to));
    }
  }
  nb::object copy = PyOperation::forOperation(*self.context, op->clone(map), /*owned=*/true);
  nb::handle place = ip;
  if (ip.is_none() && !frames().empty() && frames().back().insertionPoint) {
    place = frames().back().insertionPoint;
  } else if (ip.is_none() || ip.is(nb::handle(Py_False))) {
    place = nb::handle();
  }
  insertAt(place, *nb::inst_ptr<PyOperation>(copy));
  return copy;
}

static PyModule parseModule(nb::handle text, nb::handle context, const std::string &name, bool verify) {
  PyContext &c = PyContext::resolve(context);
  return PyModule{own(c, parse(c, nb::cast<std::string_view>(text), name, verify, /*isModule=*/true))};
}

static void bindModule(nb::module_ &m) {
  nb::class_<PyModule>(m, "Module", "A builtin.module that owns what is in it.")
      .def_static("parse", &parseModule, "asm"_a, "context"_a = nb::none(), "source_name"_a = "", "verify"_a = true,
                  "Parses text, in custom or generic form; raises MLIRError. `source_name` is the file in locations.")
      .def_static(
          "create",
          [](nb::object loc) {
            PyContext &context = contextFor(loc);
            Location location = PyLocation::resolve(loc, context);
            return PyModule{own(context, OwningOpRef<Operation *>(ModuleOp::create(location).getOperation()))};
          },
          "loc"_a = nb::none())
      .def_prop_ro("operation", [](PyModule &self) { return self.operation; })
      .def_prop_ro("context", [](PyModule &self) { return self.get().contextObject; })
      .def_prop_ro("body",
                   [](PyModule &self) {
                     Region &region = self.get().get()->getRegion(0);
                     if (region.empty()) {
                       raise(PyExc_RuntimeError, "the module's block was erased or moved away");
                     }
                     return PyBlock::forBlock(*self.get().context, &region.front());
                   })
      .def("get_asm", [](PyModule &self, nb::kwargs flags) { return self.operation.attr("get_asm")(**flags); })
      .def("print",
           [](PyModule &self, nb::args args, nb::kwargs flags) { self.operation.attr("print")(*args, **flags); })
      .def("__eq__", [](PyModule &self, PyModule &other) { return self.operation.is(other.operation); })
      .def("__hash__", [](PyModule &self) { return nb::hash(self.operation); })
      .def("__str__", [](PyModule &self) { return nb::str(self.operation); });
}

/// Stateless: looks into the operation each time, so nothing can go stale.
static void bindSymbolTable(nb::module_ &m) {
  struct PySymbolTable {
    nb::object owner;
    PyOperation &py() const { return *nb::inst_ptr<PyOperation>(owner); }
  };
  nb::class_<PySymbolTable>(m, "SymbolTable", "Symbols by name in an operation that is a symbol table.")
      .def(nb::new_([](PyOperation &op) {
        if (!op.get()->hasTrait<OpTrait::SymbolTable>()) {
          raise(PyExc_ValueError, "'" + op.get()->getName().getStringRef().str() + "' is no symbol table");
        }
        return PySymbolTable{op.object()};
      }))
      .def("__getitem__",
           [](PySymbolTable &self, const std::string &name) {
             Operation *found = SymbolTable::lookupSymbolIn(self.py().get(), name);
             if (!found) {
               raise(PyExc_KeyError, "no symbol '" + name + "'");
             }
             return PyOperation::forOperation(*self.py().context, found);
           })
      .def("__contains__",
           [](PySymbolTable &self, const std::string &name) {
             return SymbolTable::lookupSymbolIn(self.py().get(), name) != nullptr;
           })
      .def(
          "insert",
          [](PySymbolTable &self, PyOperation &op) {
            if (op.get()->getBlock() && op.get()->getParentOp() != self.py().get()) {
              raise(PyExc_ValueError, "the operation is in another symbol table");
            }
            if (op.get()->isAncestor(self.py().get())) {
              raise(PyExc_ValueError, "the operation holds the symbol table, which cannot be inserted into itself");
            }
            StringAttr name = SymbolTable(self.py().get()).insert(op.get());
            op.owned = false;
            op.attachToRoot();
            return wrapAttribute(*op.context, name);
          },
          "Inserts an operation, renaming it if its name is taken; returns the name.")
      .def_static(
          "lookup_nearest",
          [](PyOperation &from, const std::string &name) -> nb::object {
            Operation *found =
                SymbolTable::lookupNearestSymbolFrom(from.get(), StringAttr::get(from.get()->getContext(), name));
            return found ? PyOperation::forOperation(*from.context, found) : nb::none();
          },
          "from_op"_a, "name"_a, "The symbol as seen from an operation, or None.");
}

void bindCreation(nb::module_ &m) {
  auto operation = nb::borrow<nb::class_<PyOperation>>(m.attr("Operation"));
  operation
      .def_static("create", &create, "name"_a, "results"_a = nb::none(), "operands"_a = nb::none(),
                  "attributes"_a = nb::none(), "successors"_a = nb::none(), "regions"_a = 0, "loc"_a = nb::none(),
                  "ip"_a = nb::none(), "infer_type"_a = false,
                  "Makes an operation at `ip` (default: the current InsertionPoint; False: detached).")
      .def_static(
          "parse",
          [](nb::handle source, const std::string &name, nb::handle context, bool verify) {
            PyContext &c = PyContext::resolve(context);
            return own(c, parse(c, nb::cast<std::string_view>(source), name, verify, /*isModule=*/false));
          },
          "source"_a, "source_name"_a = "", "context"_a = nb::none(), "verify"_a = true)
      .def("clone", &clone, "ip"_a = nb::none(), "mapping"_a = nb::none(),
           "A copy at `ip` (as in create); `mapping` is a dict from values used in it to those to use instead.");
  nb::class_<PyOpView, PyOperation>(m, "OpView", "The base of the typed operation classes.")
      .def("__init__", &initOpView, "name"_a, "ods_regions"_a, "operand_segments"_a.none(), "result_segments"_a.none(),
           nb::kw_only(), "attributes"_a = nb::none(), "results"_a = nb::none(), "operands"_a = nb::none(),
           "successors"_a = nb::none(), "regions"_a = nb::none(), "loc"_a = nb::none(), "ip"_a = nb::none());
  m.attr("OpView").attr("_ODS_OPERAND_SEGMENTS") = nb::none();
  m.attr("OpView").attr("_ODS_RESULT_SEGMENTS") = nb::none();
  m.def("_register_operation_class", [](const std::string &name, nb::object cls) { classes()[name] = std::move(cls); });
  bindModule(m);
  bindSymbolTable(m);
  m.def(
      "translate_module_to_llvmir",
      [](nb::handle module) {
        nb::object operation =
            nb::isinstance<PyModule>(module) ? expect<PyModule>(module).operation : nb::borrow(module);
        PyOperation &py = expect<PyOperation>(operation);
        ErrorCollector errors(*py.context);
        std::string text;
        if (failed(translateToLLVMIR(py.get(), text))) {
          errors.raise("cannot translate the module to LLVM IR");
        }
        return text;
      },
      "module"_a, "LLVM IR text of a module in the LLVM dialect; raises MLIRError.");
}

} // namespace mlir::ditron::python
