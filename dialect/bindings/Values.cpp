// Values, their uses, and the operand and result lists of operations.
#include "Core.h"
#include "Printing.h"
#include "mlir/IR/AsmState.h"

namespace mlir::ditron::python {

namespace {
struct PyOperands {
  nb::object owner;
  PyOperation &py() const { return *nb::inst_ptr<PyOperation>(owner); }
};
struct PyResults {
  nb::object owner;
  PyOperation &py() const { return *nb::inst_ptr<PyOperation>(owner); }
};
struct PyOpOperand {
  nb::object owner;
  unsigned index;
};
} // namespace

static std::string printValue(PyValue &self) {
  Value value = self.get();
  Operation *op = value.getDefiningOp();
  std::string text;
  llvm::raw_string_ostream stream(text);
  value.print(stream, op ? printable(op) : OpPrintingFlags());
  return text;
}

/// len, [], slices (as lists) and iteration over what is there now.
template <typename List, typename Range> static void bindSequence(nb::class_<List> &cls, Range range) {
  cls.def("__len__", [range](List &self) { return range(self).size(); })
      .def("__getitem__",
           [range](List &self, nb::ssize_t index) {
             auto values = range(self);
             return PyValue::forValue(*self.py().context, values[checkIndex(index, values.size())]);
           })
      .def("__getitem__",
           [range](List &self, nb::slice slice) {
             auto values = range(self);
             auto [start, stop, step, length] = slice.compute(values.size());
             nb::list list;
             for (size_t i = 0; i < length; ++i, start += step) {
               list.append(PyValue::forValue(*self.py().context, values[start]));
             }
             return list;
           })
      .def("__iter__",
           [range](List &self) {
             nb::list list;
             for (Value value : range(self)) {
               list.append(PyValue::forValue(*self.py().context, value));
             }
             return nb::iter(list);
           })
      .def("__add__", [](nb::object self, nb::handle other) { return nb::list(self) + nb::list(nb::borrow(other)); })
      .def("__radd__", [](nb::object self, nb::handle other) { return nb::list(nb::borrow(other)) + nb::list(self); })
      .def("__eq__", [](nb::object self, nb::handle other) {
        return nb::isinstance<nb::iterable>(other) && nb::list(self).equal(nb::list(nb::borrow(other)));
      });
}

static void bindLists(nb::module_ &m) {
  nb::class_<PyOperands> operands(m, "OpOperandList", "The operands of an operation; items can be assigned.");
  bindSequence(operands, [](PyOperands &self) { return self.py().get()->getOperands(); });
  operands.def("__setitem__", [](PyOperands &self, nb::ssize_t index, nb::handle object) {
    Operation *op = self.py().get();
    Value value = valueOf(object);
    checkContext(op->getContext(), value.getContext(), "the operand");
    op->setOperand(unsigned(checkIndex(index, op->getNumOperands())), value);
  });
  nb::class_<PyResults> results(m, "OpResultList", "The results of an operation.");
  bindSequence(results, [](PyResults &self) { return self.py().get()->getResults(); });
  results
      .def_prop_ro("types",
                   [](PyResults &self) {
                     nb::list list;
                     for (Type type : self.py().get()->getResultTypes()) {
                       list.append(wrapType(*self.py().context, type));
                     }
                     return list;
                   })
      .def_prop_ro("owner", [](PyResults &self) { return self.owner; });

  auto operation = nb::borrow<nb::class_<PyOperation>>(m.attr("Operation"));
  operation
      .def_prop_rw(
          "operands",
          [](PyOperation &self) {
            self.get();
            return PyOperands{self.object()};
          },
          [](PyOperation &self, nb::sequence values) {
            SmallVector<Value> operands;
            for (nb::handle value : values) {
              operands.push_back(valueOf(value));
              checkContext(self.get()->getContext(), operands.back().getContext(), "an operand");
            }
            self.get()->setOperands(operands);
          })
      .def_prop_ro("results",
                   [](PyOperation &self) {
                     self.get();
                     return PyResults{self.object()};
                   })
      .def_prop_ro(
          "type", [](nb::object self) { return self.attr("result").attr("type"); },
          "The type of the only result, so that an operation can stand for it.")
      .def_prop_ro(
          "result",
          [](PyOperation &self) {
            Operation *op = self.get();
            if (op->getNumResults() != 1) {
              raise(PyExc_ValueError, "'" + op->getName().getStringRef().str() + "' has " +
                                          std::to_string(op->getNumResults()) + " results, not one");
            }
            return PyValue::forValue(*self.context, op->getResult(0));
          },
          "The only result; ValueError if there are none or several.");
}

static nb::list usesOf(PyValue &self) {
  nb::list list;
  PyContext &context = self.context();
  for (OpOperand &use : self.get().getUses()) {
    list.append(nb::cast(PyOpOperand{PyOperation::forOperation(context, use.getOwner()), use.getOperandNumber()}));
  }
  return list;
}

static void replaceExcept(PyValue &self, PyValue &with, nb::object except) {
  llvm::SmallPtrSet<Operation *, 4> exceptions;
  if (nb::isinstance<PyOperation>(except)) {
    exceptions.insert(expect<PyOperation>(except).get());
  } else {
    for (nb::handle op : except) {
      exceptions.insert(expect<PyOperation>(op).get());
    }
  }
  self.get().replaceAllUsesExcept(with.get(), exceptions);
}

void bindValues(nb::module_ &m) {
  nb::class_<PyOpOperand>(m, "OpOperand", "One use of a value.")
      .def_prop_ro("owner", [](PyOpOperand &self) { return self.owner; })
      .def_prop_ro("operand_number", [](PyOpOperand &self) { return self.index; });
  nb::class_<PyValue>(m, "Value",
                      "An SSA value. Equal and hashed by identity; touching one of an erased operation raises.")
      .def_prop_rw(
          "type", [](PyValue &self) { return wrapType(self.context(), self.get().getType()); },
          [](PyValue &self, PyType &type) {
            checkContext(self.get().getContext(), type.type.getContext(), "the type");
            self.get().setType(type.type);
          })
      .def("set_type",
           [](PyValue &self, PyType &type) {
             checkContext(self.get().getContext(), type.type.getContext(), "the type");
             self.get().setType(type.type);
           })
      .def_prop_ro(
          "owner",
          [](PyValue &self) {
            self.get();
            return self.owner;
          },
          "The operation of a result, the block of an argument.")
      .def_prop_ro("context", [](PyValue &self) { return self.context().object(); })
      .def_prop_rw(
          "location", [](PyValue &self) { return PyLocation(self.context(), self.get().getLoc()); },
          [](PyValue &self, PyLocation &loc) { self.get().setLoc(loc.loc); })
      .def_prop_ro("uses", &usesOf, "The uses there are now, as a list of OpOperand.")
      .def_prop_ro("users",
                   [](PyValue &self) {
                     nb::list list;
                     for (Operation *user : self.get().getUsers()) {
                       list.append(PyOperation::forOperation(self.context(), user));
                     }
                     return list;
                   })
      .def_prop_ro("has_uses", [](PyValue &self) { return !self.get().use_empty(); })
      .def(
          "replace_all_uses_with",
          [](PyValue &self, nb::handle with) {
            Value to = valueOf(with);
            checkContext(self.get().getContext(), to.getContext(), "the replacement");
            if (to != self.get()) {
              self.get().replaceAllUsesWith(to);
            }
          },
          "with_"_a)
      .def("replace_all_uses_except", &replaceExcept, "with_"_a, "exceptions"_a,
           "`exceptions`: an operation or several.")
      .def(
          "get_name",
          [](PyValue &self, bool localScope) {
            OpPrintingFlags flags;
            if (localScope) {
              flags.useLocalScope();
            }
            std::string text;
            llvm::raw_string_ostream stream(text);
            Value value = self.get();
            Operation *scope = isa<OpResult>(value) ? value.getDefiningOp() : value.getParentBlock()->getParentOp();
            while (!localScope && scope->getParentOp()) {
              scope = scope->getParentOp();
            }
            AsmState state(scope, printable(scope, flags));
            value.printAsOperand(stream, state);
            return text;
          },
          "use_local_scope"_a = false, "Its name in the printed module, such as %0.")
      // By the Python object of the owner, which is never reused, unlike the address.
      .def("__eq__", [](PyValue &self, PyValue &other) { return self.raw == other.raw && self.owner.is(other.owner); })
      .def(
          "__eq__", [](PyValue &, nb::handle) { return false; }, "other"_a.none())
      .def("__hash__", [](PyValue &self) { return nb::ssize_t(uintptr_t(self.raw.getAsOpaquePointer()) >> 3); })
      .def("__str__", &printValue)
      .def("__repr__", [](PyValue &self) { return "Value(" + printValue(self) + ")"; });
  nb::class_<PyOpResult, PyValue>(m, "OpResult").def_prop_ro("result_number", [](PyOpResult &self) {
    return self.index;
  });
  nb::class_<PyBlockArgument, PyValue>(m, "BlockArgument").def_prop_ro("arg_number", [](PyBlockArgument &self) {
    self.get();
    return self.index;
  });
  bindLists(m);
}

} // namespace mlir::ditron::python
