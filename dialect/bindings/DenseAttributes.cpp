// Dense attributes: arrays of one element type, and the elements of tensors and vectors.
#include "Attributes.h"

namespace mlir::ditron::python {

namespace {
struct PyDenseElements : Attr<DenseElementsAttr> {
  using Attr<DenseElementsAttr>::Attr;
};
struct PyDenseInts : PyDenseElements {
  using PyDenseElements::PyDenseElements;
};
struct PyDenseFloats : PyDenseElements {
  using PyDenseElements::PyDenseElements;
};
} // namespace

template <typename T, typename Value> static void bindDenseArray(nb::module_ &m, const char *name) {
  using Dense = Attr<T>;
  auto list = [](Dense &self) {
    nb::list values;
    for (auto value : self.get().asArrayRef()) {
      values.append(nb::cast(Value(value)));
    }
    return values;
  };
  bindAttr<Dense, T>(m, name)
      .def_static(
          "get",
          [](nb::sequence values, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            SmallVector<Value> storage;
            for (nb::handle value : values) {
              storage.push_back(nb::cast<Value>(value));
            }
            return Dense(c, T::get(c.context, storage));
          },
          "values"_a, "context"_a = nb::none())
      .def("__len__", [](Dense &self) { return self.get().size(); })
      .def("__getitem__",
           [](Dense &self, nb::ssize_t index) { return Value(self.get()[checkIndex(index, self.get().size())]); })
      .def("__iter__", [list](Dense &self) { return nb::iter(list(self)); });
}

static nb::object elementAt(PyDenseElements &self, nb::ssize_t given) {
  DenseElementsAttr dense = self.get();
  size_t index = checkIndex(given, size_t(dense.getNumElements()));
  Type type = dense.getElementType();
  if (isIntegerLike(type)) {
    auto integer = dyn_cast<IntegerType>(type);
    return toPython(dense.getValues<APInt>()[index], integer && (integer.isUnsigned() || integer.getWidth() == 1));
  }
  if (isa<FloatType>(type)) {
    return nb::cast(toDouble(dense.getValues<APFloat>()[index]));
  }
  return wrapAttribute(*self.context, dense.getValues<Attribute>()[index]);
}

static ShapedType shapedType(PyType &type) {
  auto shaped = dyn_cast<ShapedType>(type.type);
  if (!shaped || !shaped.hasStaticShape()) {
    raise(PyExc_ValueError, "expected a static shaped type, got " + print(type.type));
  }
  return shaped;
}

void bindDenseAttributes(nb::module_ &m) {
  makers()[TypeID::get<DenseIntOrFPElementsAttr>()] = [](PyContext &context, Attribute attr) {
    return isa<DenseIntElementsAttr>(attr) ? nb::cast(PyDenseInts(context, attr))
                                           : nb::cast(PyDenseFloats(context, attr));
  };
  enter<PyDenseElements, DenseStringElementsAttr>();
  bindAttr<PyDenseElements, DenseElementsAttr>(m, "DenseElementsAttr")
      .def_static(
          "get",
          [](nb::sequence values, PyType &type) {
            ShapedType shaped = shapedType(type);
            SmallVector<Attribute> attrs;
            for (nb::handle value : values) {
              attrs.push_back(toScalarAttr(value, shaped.getElementType()));
            }
            if (int64_t(attrs.size()) != shaped.getNumElements() && attrs.size() != 1) {
              raise(PyExc_ValueError, "expected " + std::to_string(shaped.getNumElements()) + " values, got " +
                                          std::to_string(attrs.size()));
            }
            return wrapAttribute(*type.context, DenseElementsAttr::get(shaped, attrs));
          },
          "values"_a, "type"_a, "Numbers (or attributes) in row-major order; one value is a splat.")
      .def_static(
          "get_splat",
          [](PyType &type, nb::handle value) {
            ShapedType shaped = shapedType(type);
            return wrapAttribute(*type.context,
                                 DenseElementsAttr::get(shaped, toScalarAttr(value, shaped.getElementType())));
          },
          "shaped_type"_a, "value"_a)
      .def_prop_ro("type", [](PyDenseElements &self) { return wrapType(*self.context, self.get().getType()); })
      .def_prop_ro("is_splat", [](PyDenseElements &self) { return self.get().isSplat(); })
      .def("get_splat_value",
           [](PyDenseElements &self) {
             if (!self.get().isSplat()) {
               raise(PyExc_ValueError, "the elements are not all the same");
             }
             return wrapAttribute(*self.context, self.get().getSplatValue<Attribute>());
           })
      .def("__len__", [](PyDenseElements &self) { return self.get().getNumElements(); })
      .def("__getitem__", &elementAt)
      .def("__iter__", [](PyDenseElements &self) {
        nb::list list;
        for (int64_t i = 0, n = self.get().getNumElements(); i < n; ++i) {
          list.append(elementAt(self, i));
        }
        return nb::iter(list);
      });
  bindAttr<PyDenseInts, DenseIntElementsAttr, PyDenseElements>(m, "DenseIntElementsAttr");
  bindAttr<PyDenseFloats, DenseFPElementsAttr, PyDenseElements>(m, "DenseFPElementsAttr");
  bindDenseArray<DenseBoolArrayAttr, bool>(m, "DenseBoolArrayAttr");
  bindDenseArray<DenseI8ArrayAttr, int8_t>(m, "DenseI8ArrayAttr");
  bindDenseArray<DenseI16ArrayAttr, int16_t>(m, "DenseI16ArrayAttr");
  bindDenseArray<DenseI32ArrayAttr, int32_t>(m, "DenseI32ArrayAttr");
  bindDenseArray<DenseI64ArrayAttr, int64_t>(m, "DenseI64ArrayAttr");
  bindDenseArray<DenseF32ArrayAttr, float>(m, "DenseF32ArrayAttr");
  bindDenseArray<DenseF64ArrayAttr, double>(m, "DenseF64ArrayAttr");
}

} // namespace mlir::ditron::python
