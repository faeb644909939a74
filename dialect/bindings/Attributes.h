// What the files of attributes share: the Python classes of their kinds, and numbers as attributes.
#ifndef DITRON_BINDINGS_ATTRIBUTES_H
#define DITRON_BINDINGS_ATTRIBUTES_H

#include "Core.h"

namespace mlir::ditron::python {

/// Makes the Python object of an attribute; `makers` has one for each kind with a class of its own.
using Maker = nb::object (*)(PyContext &, Attribute);
llvm::DenseMap<TypeID, Maker> &makers();

template <typename T> struct Attr : PyAttribute {
  using PyAttribute::PyAttribute;
  T get() const { return cast<T>(attr); }
};

/// Whether a Python object is an attribute of kind `T`.
template <typename T> bool isA(nb::handle object) {
  return nb::isinstance<PyAttribute>(object) && isa<T>(expect<PyAttribute>(object).attr);
}

/// The Python class of a kind of attribute, with what all have.
template <typename Py, typename T, typename Base = PyAttribute>
nb::class_<Py, Base> bindAttr(nb::module_ &m, const char *name) {
  std::string text = name;
  nb::class_<Py, Base> cls(m, name);
  cls.def(nb::new_([text](PyAttribute &attr) {
            if (!isa<T>(attr.attr)) {
              raise(PyExc_ValueError, "cannot cast " + print(attr.attr) + " to " + text);
            }
            return Py(*attr.context, attr.attr);
          }),
          "cast_from_attr"_a)
      .def_static("isinstance", &isA<T>);
  return cls;
}

/// Attributes of kind `T` become objects of class `Py`.
template <typename Py, typename T> void enter() {
  makers()[TypeID::get<T>()] = [](PyContext &context, Attribute attr) { return nb::cast(Py(context, attr)); };
}

nb::object toPython(const APInt &value, bool isUnsigned);
double toDouble(APFloat value);
bool isIntegerLike(Type type);
/// A number as an attribute of a scalar type; attributes of that type pass through.
Attribute toScalarAttr(nb::handle value, Type type);

void bindDenseAttributes(nb::module_ &m);

} // namespace mlir::ditron::python

#endif // DITRON_BINDINGS_ATTRIBUTES_H
