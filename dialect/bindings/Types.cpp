// Types: the base class and the builtin kinds with their parts. Other dialects' types are plain `Type`s unless their
// Python module registers a class (ditron_compiler/ir/_registry.py).
#include "Core.h"
#include "Nesting.h"
#include "dialect/IR/DitronTypes.h"
#include "dialect/IR/TritonShim.h"
#include "mlir/AsmParser/AsmParser.h"

namespace mlir::ditron::python {

using Maker = nb::object (*)(PyContext &, Type);
static llvm::DenseMap<TypeID, Maker> &makers() {
  static auto *map = new llvm::DenseMap<TypeID, Maker>();
  return *map;
}

nb::object wrapType(PyContext &context, Type type) {
  if (!type) {
    return nb::none();
  }
  auto it = makers().find(type.getTypeID());
  return it == makers().end() ? nb::cast(PyType(context, type)) : it->second(context, type);
}

namespace {
/// One Python class per C++ class, so that nanobind can tell them apart.
template <typename T> struct Typed : PyType {
  using PyType::PyType;
  T get() const { return cast<T>(type); }
};
struct PyShapedType : PyType {
  using PyType::PyType;
};
template <typename T> struct Shaped : PyShapedType {
  using PyShapedType::PyShapedType;
  T get() const { return cast<T>(type); }
};
} // namespace

template <typename T> static bool isA(nb::handle object) {
  return nb::isinstance<PyType>(object) && isa<T>(expect<PyType>(object).type);
}

template <typename Py, typename T, typename Base>
static nb::class_<Py, Base> bindType(nb::module_ &m, const char *name) {
  makers()[TypeID::get<T>()] = [](PyContext &context, Type type) { return nb::cast(Py(context, type)); };
  std::string text = name;
  nb::class_<Py, Base> cls(m, name);
  cls.def(nb::new_([text](PyType &type) {
            if (!isa<T>(type.type)) {
              raise(PyExc_ValueError, "cannot cast " + print(type.type) + " to " + text);
            }
            return Py(*type.context, type.type);
          }),
          "cast_from_type"_a)
      .def_static("isinstance", &isA<T>);
  return cls;
}

/// A type without parameters; `get(context=None)`.
template <typename T> static void bindSimple(nb::module_ &m, const char *name) {
  bindType<Typed<T>, T, PyType>(m, name).def_static(
      "get",
      [](nb::handle context) {
        PyContext &c = PyContext::resolve(context);
        return Typed<T>(c, T::get(c.context));
      },
      "context"_a = nb::none());
}

static SmallVector<Type> typesOf(PyContext &context, nb::handle sequence, const char *what) {
  SmallVector<Type> types;
  for (nb::handle type : sequence) {
    types.push_back(expect<PyType>(type).type);
    checkContext(context.context, types.back().getContext(), what);
  }
  return types;
}

static nb::list wrapTypes(PyContext &context, TypeRange types) {
  nb::list list;
  for (Type type : types) {
    list.append(wrapType(context, type));
  }
  return list;
}

/// Builds through `getChecked`-like calls that emit; a null type becomes MLIRError.
template <typename Build> static nb::object checked(PyContext &context, nb::handle loc, Build build) {
  ErrorCollector errors(context);
  Location location = loc.is_none() ? Location(UnknownLoc::get(context.context)) : expect<PyLocation>(loc).loc;
  Type type = build([location] { return emitError(location); });
  if (!type) {
    errors.raise("invalid type");
  }
  return wrapType(context, type);
}

static void bindInteger(nb::module_ &m) {
  auto get = [](unsigned width, nb::handle context, IntegerType::SignednessSemantics sign) {
    PyContext &c = PyContext::resolve(context);
    if (width > IntegerType::kMaxWidth) {
      raise(PyExc_ValueError, "expected a width of at most " + std::to_string(unsigned(IntegerType::kMaxWidth)) +
                                  " bits, got " + std::to_string(width));
    }
    return Typed<IntegerType>(c, IntegerType::get(c.context, width, sign));
  };
  bindType<Typed<IntegerType>, IntegerType, PyType>(m, "IntegerType")
      .def_static(
          "get_signless",
          [get](unsigned width, nb::handle context) { return get(width, context, IntegerType::Signless); }, "width"_a,
          "context"_a = nb::none())
      .def_static(
          "get_signed", [get](unsigned width, nb::handle context) { return get(width, context, IntegerType::Signed); },
          "width"_a, "context"_a = nb::none())
      .def_static(
          "get_unsigned",
          [get](unsigned width, nb::handle context) { return get(width, context, IntegerType::Unsigned); }, "width"_a,
          "context"_a = nb::none())
      .def_prop_ro("width", [](Typed<IntegerType> &self) { return self.get().getWidth(); })
      .def_prop_ro("is_signless", [](Typed<IntegerType> &self) { return self.get().isSignless(); })
      .def_prop_ro("is_signed", [](Typed<IntegerType> &self) { return self.get().isSigned(); })
      .def_prop_ro("is_unsigned", [](Typed<IntegerType> &self) { return self.get().isUnsigned(); });
  bindSimple<IndexType>(m, "IndexType");
  bindSimple<NoneType>(m, "NoneType");
}

namespace {
struct PyFloatType : PyType {
  using PyType::PyType;
};
template <typename T> struct Float : PyFloatType {
  using PyFloatType::PyFloatType;
};
} // namespace

template <typename T> static void bindFloat(nb::module_ &m, const char *name) {
  bindType<Float<T>, T, PyFloatType>(m, name).def_static(
      "get",
      [](nb::handle context) {
        PyContext &c = PyContext::resolve(context);
        return Float<T>(c, T::get(c.context));
      },
      "context"_a = nb::none());
}

static void bindFloats(nb::module_ &m) {
  nb::class_<PyFloatType, PyType>(m, "FloatType")
      .def_static("isinstance", &isA<FloatType>)
      .def_prop_ro("width", [](PyFloatType &self) { return cast<FloatType>(self.type).getWidth(); });
  bindFloat<BFloat16Type>(m, "BF16Type");
  bindFloat<Float16Type>(m, "F16Type");
  bindFloat<Float32Type>(m, "F32Type");
  bindFloat<Float64Type>(m, "F64Type");
  bindFloat<FloatTF32Type>(m, "FloatTF32Type");
  bindFloat<Float8E4M3FNType>(m, "Float8E4M3FNType");
  bindFloat<Float8E5M2Type>(m, "Float8E5M2Type");
  bindFloat<Float8E4M3FNUZType>(m, "Float8E4M3FNUZType");
  bindFloat<Float8E5M2FNUZType>(m, "Float8E5M2FNUZType");
  bindFloat<Float8E4M3B11FNUZType>(m, "Float8E4M3B11FNUZType");
}

static void bindShaped(nb::module_ &m) {
  auto shaped = [](PyType &self) { return cast<ShapedType>(self.type); };
  nb::class_<PyShapedType, PyType> base(m, "ShapedType", "A tensor, vector or memref.");
  base.def_static("isinstance", &isA<ShapedType>)
      .def_prop_ro("has_rank", [shaped](PyShapedType &self) { return shaped(self).hasRank(); })
      .def_prop_ro("rank", [shaped](PyShapedType &self) { return shaped(self).getRank(); })
      .def_prop_ro(
          "shape",
          [shaped](PyShapedType &self) {
            ArrayRef<int64_t> shape = shaped(self).getShape();
            return std::vector<int64_t>(shape.begin(), shape.end());
          },
          "Sizes; a dynamic one is ShapedType.get_dynamic_size().")
      .def_prop_ro("element_type",
                   [shaped](PyShapedType &self) { return wrapType(*self.context, shaped(self).getElementType()); })
      .def_prop_ro("has_static_shape", [shaped](PyShapedType &self) { return shaped(self).hasStaticShape(); })
      .def("is_dynamic_dim",
           [shaped](PyShapedType &self, unsigned dim) {
             return shaped(self).isDynamicDim(unsigned(checkIndex(dim, shaped(self).getRank())));
           })
      .def("get_dim_size",
           [shaped](PyShapedType &self, unsigned dim) {
             return shaped(self).getDimSize(unsigned(checkIndex(dim, shaped(self).getRank())));
           })
      .def_prop_ro("num_elements",
                   [shaped](PyShapedType &self) {
                     if (!shaped(self).hasStaticShape()) {
                       raise(PyExc_ValueError, "the shape is not static");
                     }
                     return shaped(self).getNumElements();
                   })
      .def_static("get_dynamic_size", [] { return ShapedType::kDynamic; });
  bindType<Shaped<RankedTensorType>, RankedTensorType, PyShapedType>(m, "RankedTensorType")
      .def_static(
          "get",
          [](std::vector<int64_t> shape, PyType &element, nb::handle encoding, nb::handle loc) {
            Attribute attr = optionalAttribute(*element.context, encoding, "the encoding");
            return checked(*element.context, loc, [&](auto emit) -> Type {
              return RankedTensorType::getChecked(emit, shape, element.type, attr);
            });
          },
          "shape"_a, "element_type"_a, "encoding"_a = nb::none(), "loc"_a = nb::none())
      .def_prop_ro("encoding", [](Shaped<RankedTensorType> &self) {
        return wrapAttribute(*self.context, self.get().getEncoding());
      });
  bindType<Shaped<VectorType>, VectorType, PyShapedType>(m, "VectorType")
      .def_static(
          "get",
          [](std::vector<int64_t> shape, PyType &element, nb::handle loc) {
            return checked(*element.context, loc,
                           [&](auto emit) -> Type { return VectorType::getChecked(emit, shape, element.type); });
          },
          "shape"_a, "element_type"_a, "loc"_a = nb::none());
  bindType<Shaped<MemRefType>, MemRefType, PyShapedType>(m, "MemRefType")
      .def_static(
          "get",
          [](std::vector<int64_t> shape, PyType &element, nb::handle layout, nb::handle space, nb::handle loc) {
            MemRefLayoutAttrInterface layoutAttr;
            if (!layout.is_none()) {
              layoutAttr =
                  dyn_cast<MemRefLayoutAttrInterface>(optionalAttribute(*element.context, layout, "the layout"));
              if (!layoutAttr) {
                raise(PyExc_ValueError, "not a memref layout");
              }
            }
            Attribute memorySpace = optionalAttribute(*element.context, space, "the memory space");
            return checked(*element.context, loc, [&](auto emit) -> Type {
              return MemRefType::getChecked(emit, shape, element.type, layoutAttr, memorySpace);
            });
          },
          "shape"_a, "element_type"_a, "layout"_a = nb::none(), "memory_space"_a = nb::none(), "loc"_a = nb::none())
      .def_prop_ro("layout",
                   [](Shaped<MemRefType> &self) { return wrapAttribute(*self.context, self.get().getLayout()); })
      .def_prop_ro("memory_space",
                   [](Shaped<MemRefType> &self) { return wrapAttribute(*self.context, self.get().getMemorySpace()); })
      .def_prop_ro("strides_and_offset", [](Shaped<MemRefType> &self) {
        SmallVector<int64_t> strides;
        int64_t offset = 0;
        if (failed(self.get().getStridesAndOffset(strides, offset))) {
          raise(PyExc_ValueError, "the memref has no strided layout");
        }
        return nb::make_tuple(nb::cast(std::vector<int64_t>(strides.begin(), strides.end())), offset);
      });
  bindType<Shaped<UnrankedTensorType>, UnrankedTensorType, PyShapedType>(m, "UnrankedTensorType");
  bindType<Shaped<UnrankedMemRefType>, UnrankedMemRefType, PyShapedType>(m, "UnrankedMemRefType");
}

static void bindCompound(nb::module_ &m) {
  bindType<Typed<FunctionType>, FunctionType, PyType>(m, "FunctionType")
      .def_static(
          "get",
          [](nb::sequence inputs, nb::sequence results, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return Typed<FunctionType>(c, FunctionType::get(c.context, typesOf(c, inputs, "an input type"),
                                                            typesOf(c, results, "a result type")));
          },
          "inputs"_a, "results"_a, "context"_a = nb::none())
      .def_prop_ro("inputs", [](Typed<FunctionType> &self) { return wrapTypes(*self.context, self.get().getInputs()); })
      .def_prop_ro("results",
                   [](Typed<FunctionType> &self) { return wrapTypes(*self.context, self.get().getResults()); });
  bindType<Typed<TupleType>, TupleType, PyType>(m, "TupleType")
      .def_static(
          "get_tuple",
          [](nb::sequence types, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            return Typed<TupleType>(c, TupleType::get(c.context, typesOf(c, types, "an element type")));
          },
          "elements"_a, "context"_a = nb::none())
      .def_prop_ro("types", [](Typed<TupleType> &self) { return wrapTypes(*self.context, self.get().getTypes()); });
  bindType<Typed<ComplexType>, ComplexType, PyType>(m, "ComplexType")
      .def_prop_ro("element_type",
                   [](Typed<ComplexType> &self) { return wrapType(*self.context, self.get().getElementType()); });
  bindType<Typed<OpaqueType>, OpaqueType, PyType>(m, "OpaqueType")
      .def_prop_ro("dialect_namespace", [](Typed<OpaqueType> &self) { return self.get().getDialectNamespace().str(); })
      .def_prop_ro("data", [](Typed<OpaqueType> &self) { return self.get().getTypeData().str(); });
}

/// Triton's pointers; Python finds the class in ditron_compiler.ir.dialects.tt.
static void bindPointer(nb::module_ &m) {
  using Pointer = Typed<tt::PointerType>;
  bindType<Pointer, tt::PointerType, PyType>(m, "PointerType")
      .def_static(
          "get",
          [](PyType &pointee, unsigned addressSpace) {
            pointee.context->context->getOrLoadDialect("tt");
            return Pointer(*pointee.context, tt::PointerType::get(pointee.type, addressSpace));
          },
          "pointee_type"_a, "address_space"_a = tt::PointerType::globalAddressSpace)
      .def_prop_ro("pointee_type", [](Pointer &self) { return wrapType(*self.context, self.get().getPointeeType()); })
      .def_prop_ro("address_space", [](Pointer &self) { return self.get().getAddressSpace(); });
}

/// Buffers of host programs; Python finds the class in ditron_compiler.ir.dialects.ditron.
static void bindBuffer(nb::module_ &m) {
  using Buffer = Shaped<BufferType>;
  bindType<Buffer, BufferType, PyShapedType>(m, "BufferType")
      .def_static(
          "get",
          [](std::vector<std::optional<int64_t>> shape, PyType &element, const std::string &space, nb::handle loc) {
            std::optional<MemorySpace> memorySpace = symbolizeMemorySpace(space);
            if (!memorySpace) {
              raise(PyExc_ValueError, "expected the memory space 'local' or 'symmetric', got '" + space + "'");
            }
            SmallVector<int64_t> sizes;
            for (std::optional<int64_t> size : shape) {
              sizes.push_back(size.value_or(ShapedType::kDynamic));
            }
            element.context->context->getOrLoadDialect("ditron");
            return checked(*element.context, loc, [&](auto emit) -> Type {
              return BufferType::getChecked(emit, element.context->context, ArrayRef<int64_t>(sizes), element.type,
                                            *memorySpace);
            });
          },
          "shape"_a, "element_type"_a, "space"_a = "local", "loc"_a = nb::none(),
          "``!ditron.buffer``; a size that is not known is None.")
      .def_prop_ro("space", [](Buffer &self) { return stringifyMemorySpace(self.get().getSpace()).str(); })
      .def_prop_ro("is_symmetric", [](Buffer &self) { return self.get().isSymmetric(); });
}

void bindTypes(nb::module_ &m) {
  nb::class_<PyType>(m, "Type", "A type. Types are unique in their context: == is identity.")
      .def(nb::new_([](PyType &type) { return wrapType(*type.context, type.type); }), "cast_from_type"_a)
      .def_static(
          "parse",
          [](const std::string &text, nb::handle context) {
            PyContext &c = PyContext::resolve(context);
            ErrorCollector errors(c);
            bool tooDeep = failed(verifyNesting(text, "", c.context));
            Type type = tooDeep ? Type() : parseType(text, c.context);
            if (!type) {
              errors.raise("cannot parse the type '" + text + "'");
            }
            return wrapType(c, type);
          },
          "asm"_a, "context"_a = nb::none())
      .def_prop_ro("context", [](PyType &self) { return self.contextObject; })
      .def_prop_ro(
          "dialect", [](PyType &self) { return self.type.getDialect().getNamespace().str(); },
          "The name of the dialect that defines the type.")
      .def("maybe_downcast", [](PyType &self) { return wrapType(*self.context, self.type); })
      .def_static("isinstance", [](nb::handle object) { return nb::isinstance<PyType>(object); })
      .def("__eq__", [](PyType &self, PyType &other) { return self.type == other.type; })
      .def(
          "__eq__", [](PyType &, nb::handle) { return false; }, "other"_a.none())
      .def("__hash__", [](PyType &self) { return nb::ssize_t(uintptr_t(self.type.getAsOpaquePointer()) >> 4); })
      .def("__str__", [](PyType &self) { return print(self.type); })
      .def("__repr__", [](PyType &self) { return "Type(" + print(self.type) + ")"; });
  bindInteger(m);
  bindFloats(m);
  bindShaped(m);
  bindCompound(m);
  bindPointer(m);
  bindBuffer(m);
}

} // namespace mlir::ditron::python
