// Attributes: the base class and the builtin kinds with their values.
#include "Attributes.h"
#include "Nesting.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/IR/AffineMap.h"
#include "llvm/ADT/SmallString.h"

namespace mlir::ditron::python {

llvm::DenseMap<TypeID, Maker> &makers() {
  static auto *map = new llvm::DenseMap<TypeID, Maker>();
  return *map;
}

namespace {
struct PyBoolAttr : Attr<IntegerAttr> {
  using Attr<IntegerAttr>::Attr;
};
struct PyFlatSymbolRefAttr : Attr<SymbolRefAttr> {
  using Attr<SymbolRefAttr>::Attr;
};
} // namespace

/// Arrays of all element types are one class to MLIR, and one each to Python.
template <typename T, typename... Others> static nb::object wrapDenseArray(PyContext &context, DenseArrayAttr attr) {
  if (isa<T>(attr)) {
    return nb::cast(Attr<T>(context, attr));
  }
  if constexpr (sizeof...(Others) > 0) {
    return wrapDenseArray<Others...>(context, attr);
  }
  return nb::cast(PyAttribute(context, attr));
}

nb::object wrapAttribute(PyContext &context, Attribute attr) {
  if (!attr) {
    return nb::none();
  }
  if (auto array = dyn_cast<DenseArrayAttr>(attr)) {
    return wrapDenseArray<DenseI64ArrayAttr, DenseI32ArrayAttr, DenseBoolArrayAttr, DenseI8ArrayAttr, DenseI16ArrayAttr,
                          DenseF32ArrayAttr, DenseF64ArrayAttr>(context, array);
  }
  auto it = makers().find(attr.getTypeID());
  return it == makers().end() ? nb::cast(PyAttribute(context, attr)) : it->second(context, attr);
}

//===-- numbers ----------------------------------------------------------===//

nb::object toPython(const APInt &value, bool isUnsigned) {
  if (value.getBitWidth() <= 64) {
    return isUnsigned ? nb::cast(value.getZExtValue()) : nb::cast(value.getSExtValue());
  }
  SmallString<40> digits;
  value.toString(digits, 10, !isUnsigned);
  return nb::int_(nb::str(digits.c_str()));
}

static nb::object toPython(IntegerAttr attr) {
  auto type = dyn_cast<IntegerType>(attr.getType());
  bool isUnsigned = type && (type.isUnsigned() || type.getWidth() == 1);
  return toPython(attr.getValue(), isUnsigned);
}

/// Any Python int that fits `type`, read as signed or unsigned.
static APInt toAPInt(nb::handle value, Type type) {
  unsigned width = isa<IndexType>(type) ? 64 : type.getIntOrFloatBitWidth();
  std::string digits = nb::str(nb::int_(nb::borrow(value))).c_str();
  unsigned needed = APInt::getBitsNeeded(digits, 10);
  if (needed > width && !(needed == width + 1 && digits[0] == '-')) {
    raise(PyExc_OverflowError, digits + " does not fit " + print(type));
  }
  APInt wide(std::max(needed, width) + 1, digits, 10);
  APInt result = wide.trunc(width);
  if (result.sext(wide.getBitWidth()) != wide && result.zext(wide.getBitWidth()) != wide) {
    raise(PyExc_OverflowError, digits + " does not fit " + print(type));
  }
  return result;
}

double toDouble(APFloat value) {
  bool losesInfo = false;
  value.convert(APFloat::IEEEdouble(), APFloat::rmNearestTiesToEven, &losesInfo);
  return value.convertToDouble();
}

bool isIntegerLike(Type type) { return isa<IntegerType, IndexType>(type); }

Attribute optionalAttribute(PyContext &context, nb::handle object, const char *what) {
  if (object.is_none()) {
    return {};
  }
  Attribute attr = expect<PyAttribute>(object).attr;
  checkContext(context.context, attr.getContext(), what);
  return attr;
}

/// Whether `attr` is one scalar of `type`; what is neither a number nor complex is a string.
static bool isScalarOf(Attribute attr, Type type) {
  if (auto complex = dyn_cast<ComplexType>(type)) {
    auto parts = dyn_cast<ArrayAttr>(attr);
    return parts && parts.size() == 2 &&
           llvm::all_of(parts, [&](Attribute part) { return isScalarOf(part, complex.getElementType()); });
  }
  if (isIntegerLike(type)) {
    return isa<IntegerAttr>(attr) && cast<IntegerAttr>(attr).getType() == type;
  }
  if (isa<FloatType>(type)) {
    return isa<FloatAttr>(attr) && cast<FloatAttr>(attr).getType() == type;
  }
  return isa<StringAttr>(attr);
}

Attribute toScalarAttr(nb::handle value, Type type) {
  if (nb::isinstance<PyAttribute>(value)) {
    Attribute attr = expect<PyAttribute>(value).attr;
    checkContext(type.getContext(), attr.getContext(), "the value");
    if (!isScalarOf(attr, type)) {
      raise(PyExc_ValueError, "expected a value of type " + print(type) + ", got " + print(attr));
    }
    return attr;
  }
  if (isIntegerLike(type)) {
    return IntegerAttr::get(type, toAPInt(value, type));
  }
  if (isa<FloatType>(type)) {
    return FloatAttr::get(type, nb::cast<double>(nb::float_(nb::borrow(value))));
  }
  raise(PyExc_ValueError, "expected an integer, index or float type, got " + print(type));
}

static void bindNumbers(nb::module_ &m) {
  using Integer = Attr<IntegerAttr>;
  makers()[TypeID::get<IntegerAttr>()] = [](PyContext &context, Attribute attr) {
    return cast<IntegerAttr>(attr).getType().isInteger(1) ? nb::cast(PyBoolAttr(context, attr))
                                                          : nb::cast(Integer(context, attr));
  };
  bindAttr<Integer, IntegerAttr>(m, "IntegerAttr")
      .def_static(
          "get",
          [](PyType &type, nb::handle value) {
            if (!isIntegerLike(type.type)) {
              raise(PyExc_ValueError, "expected an integer or index type, got " + print(type.type));
            }
            return wrapAttribute(*type.context, toScalarAttr(value, type.type));
          },
          "type"_a, "value"_a)
      .def_prop_ro("value", [](Integer &self) { return toPython(self.get()); })
      .def_prop_ro("type", [](Integer &self) { return wrapType(*self.context, self.get().getType()); })
      .def("__int__", [](Integer &self) { return toPython(self.get()); });
  bindAttr<PyBoolAttr, BoolAttr, Integer>(m, "BoolAttr")
      .def_static(
          "get",
          [](bool value, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return PyBoolAttr(c, BoolAttr::get(c.context, value));
          },
          "value"_a, "context"_a = nb::none())
      .def_prop_ro("value", [](PyBoolAttr &self) { return !self.get().getValue().isZero(); })
      .def("__bool__", [](PyBoolAttr &self) { return !self.get().getValue().isZero(); });
  using Floating = Attr<FloatAttr>;
  enter<Floating, FloatAttr>();
  bindAttr<Floating, FloatAttr>(m, "FloatAttr")
      .def_static(
          "get",
          [](PyType &type, double value, nb::handle) {
            if (!isa<FloatType>(type.type)) {
              raise(PyExc_ValueError, "expected a float type, got " + print(type.type));
            }
            return Floating(*type.context, FloatAttr::get(type.type, value));
          },
          "type"_a, "value"_a, "loc"_a = nb::none())
      .def_prop_ro("value", [](Floating &self) { return toDouble(self.get().getValue()); })
      .def_prop_ro("type", [](Floating &self) { return wrapType(*self.context, self.get().getType()); })
      .def("__float__", [](Floating &self) { return toDouble(self.get().getValue()); });
}

//===-- names, collections -----------------------------------------------===//

static void bindNames(nb::module_ &m) {
  using String = Attr<StringAttr>;
  enter<String, StringAttr>();
  bindAttr<String, StringAttr>(m, "StringAttr")
      .def_static(
          "get",
          [](std::string_view value, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return String(c, StringAttr::get(c.context, ref(value)));
          },
          "value"_a, "context"_a = nb::none())
      .def_prop_ro("value", [](String &self) { return toStr(self.get().getValue()); });
  using Symbol = Attr<SymbolRefAttr>;
  makers()[TypeID::get<SymbolRefAttr>()] = [](PyContext &context, Attribute attr) {
    return isa<FlatSymbolRefAttr>(attr) ? nb::cast(PyFlatSymbolRefAttr(context, attr))
                                        : nb::cast(Symbol(context, attr));
  };
  bindAttr<Symbol, SymbolRefAttr>(m, "SymbolRefAttr")
      .def_static(
          "get",
          [](std::vector<std::string> path, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            if (path.empty()) {
              raise(PyExc_ValueError, "expected at least one symbol");
            }
            SmallVector<FlatSymbolRefAttr> nested;
            for (size_t i = 1; i < path.size(); ++i) {
              nested.push_back(FlatSymbolRefAttr::get(c.context, path[i]));
            }
            return wrapAttribute(c, SymbolRefAttr::get(c.context, path[0], nested));
          },
          "symbols"_a, "context"_a = nb::none())
      .def_prop_ro("value", [](Symbol &self) {
        nb::list list;
        list.append(toStr(self.get().getRootReference().getValue()));
        for (FlatSymbolRefAttr nested : self.get().getNestedReferences()) {
          list.append(toStr(nested.getValue()));
        }
        return list;
      });
  bindAttr<PyFlatSymbolRefAttr, FlatSymbolRefAttr, Symbol>(m, "FlatSymbolRefAttr")
      .def_static(
          "get",
          [](const std::string &value, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return PyFlatSymbolRefAttr(c, FlatSymbolRefAttr::get(c.context, value));
          },
          "value"_a, "context"_a = nb::none())
      .def_prop_ro("value", [](PyFlatSymbolRefAttr &self) { return toStr(self.get().getRootReference().getValue()); });
  using TypeA = Attr<TypeAttr>;
  enter<TypeA, TypeAttr>();
  bindAttr<TypeA, TypeAttr>(m, "TypeAttr")
      .def_static(
          "get", [](PyType &type, nb::handle) { return TypeA(*type.context, TypeAttr::get(type.type)); }, "value"_a,
          "context"_a = nb::none())
      .def_prop_ro("value", [](TypeA &self) { return wrapType(*self.context, self.get().getValue()); });
  using Unit = Attr<UnitAttr>;
  enter<Unit, UnitAttr>();
  bindAttr<Unit, UnitAttr>(m, "UnitAttr")
      .def_static(
          "get",
          [](nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return Unit(c, UnitAttr::get(c.context));
          },
          "context"_a = nb::none());
}

static void bindCollections(nb::module_ &m) {
  using Array = Attr<ArrayAttr>;
  enter<Array, ArrayAttr>();
  bindAttr<Array, ArrayAttr>(m, "ArrayAttr")
      .def_static(
          "get",
          [](nb::sequence items, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            SmallVector<Attribute> attrs;
            for (nb::handle item : items) {
              attrs.push_back(expect<PyAttribute>(item).attr);
              checkContext(c.context, attrs.back().getContext(), "an element");
            }
            return Array(c, ArrayAttr::get(c.context, attrs));
          },
          "attributes"_a, "context"_a = nb::none())
      .def("__len__", [](Array &self) { return self.get().size(); })
      .def("__getitem__",
           [](Array &self, nb::ssize_t index) {
             return wrapAttribute(*self.context, self.get()[checkIndex(index, self.get().size())]);
           })
      .def("__iter__", [](Array &self) {
        nb::list list;
        for (Attribute attr : self.get()) {
          list.append(wrapAttribute(*self.context, attr));
        }
        return nb::iter(list);
      });
  using Dict = Attr<DictionaryAttr>;
  enter<Dict, DictionaryAttr>();
  auto items = [](Dict &self) {
    nb::dict dict;
    for (NamedAttribute attr : self.get()) {
      dict[toStr(attr.getName())] = wrapAttribute(*self.context, attr.getValue());
    }
    return dict;
  };
  bindAttr<Dict, DictionaryAttr>(m, "DictAttr")
      .def_static(
          "get",
          [](nb::dict value, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            NamedAttrList attrs;
            for (auto [name, attr] : value) {
              Attribute a = expect<PyAttribute>(attr).attr;
              checkContext(c.context, a.getContext(), "an entry");
              attrs.set(nb::cast<std::string>(name), a);
            }
            return Dict(c, attrs.getDictionary(c.context));
          },
          "value"_a = nb::dict(), "context"_a = nb::none())
      .def("__len__", [](Dict &self) { return self.get().size(); })
      .def("__contains__", [](Dict &self, const std::string &name) { return self.get().contains(name); })
      .def("__getitem__",
           [](Dict &self, const std::string &name) {
             Attribute attr = self.get().get(name);
             if (!attr) {
               raise(PyExc_KeyError, "no entry '" + name + "'");
             }
             return wrapAttribute(*self.context, attr);
           })
      .def("__iter__", [items](Dict &self) { return nb::iter(items(self)); })
      .def("keys", [items](Dict &self) { return items(self).keys(); })
      .def("values", [items](Dict &self) { return items(self).values(); })
      .def("items", [items](Dict &self) { return items(self).items(); });
}

void bindAttributes(nb::module_ &m) {
  nb::class_<PyAttribute>(m, "Attribute", "An attribute. Attributes are unique in their context: == is identity.")
      .def(nb::new_([](PyAttribute &attr) { return wrapAttribute(*attr.context, attr.attr); }), "cast_from_attr"_a)
      .def_static(
          "parse",
          [](const std::string &text, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            ErrorCollector errors(c);
            bool tooDeep = failed(verifyNesting(text, "", c.context));
            Attribute attr = tooDeep ? Attribute() : parseAttribute(text, c.context);
            if (!attr) {
              errors.raise("cannot parse the attribute '" + text + "'");
            }
            return wrapAttribute(c, attr);
          },
          "asm"_a, "context"_a = nb::none())
      .def_prop_ro("context", [](PyAttribute &self) { return self.contextObject; })
      .def_prop_ro("dialect", [](PyAttribute &self) { return self.attr.getDialect().getNamespace().str(); })
      .def("maybe_downcast", [](PyAttribute &self) { return wrapAttribute(*self.context, self.attr); })
      .def_static("isinstance", [](nb::handle object) { return nb::isinstance<PyAttribute>(object); })
      .def("__eq__", [](PyAttribute &self, PyAttribute &other) { return self.attr == other.attr; })
      .def(
          "__eq__", [](PyAttribute &, nb::handle) { return false; }, "other"_a.none())
      .def("__hash__", [](PyAttribute &self) { return nb::ssize_t(uintptr_t(self.attr.getAsOpaquePointer()) >> 4); })
      .def("__str__", [](PyAttribute &self) { return print(self.attr); })
      .def("__repr__", [](PyAttribute &self) { return "Attribute(" + print(self.attr) + ")"; });
  bindNumbers(m);
  bindNames(m);
  bindCollections(m);
  bindDenseAttributes(m);
  using Map = Attr<AffineMapAttr>;
  enter<Map, AffineMapAttr>();
  bindAttr<Map, AffineMapAttr>(m, "AffineMapAttr");
  using Strided = Attr<StridedLayoutAttr>;
  enter<Strided, StridedLayoutAttr>();
  bindAttr<Strided, StridedLayoutAttr>(m, "StridedLayoutAttr")
      .def_static(
          "get",
          [](int64_t offset, std::vector<int64_t> strides, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return Strided(c, StridedLayoutAttr::get(c.context, offset, strides));
          },
          "offset"_a, "strides"_a, "context"_a = nb::none());
}

} // namespace mlir::ditron::python
