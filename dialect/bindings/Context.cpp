// Context, the stack behind the `with` statements, and insertion points.
#include "Core.h"
#include "mlir/IR/Dialect.h"

namespace mlir::ditron::python {

std::vector<Frame> &frames() {
  // Never destroyed: at thread exit the interpreter may be gone already.
  static thread_local auto *stack = new std::vector<Frame>();
  return *stack;
}

void pushFrame(Frame frame) {
  std::vector<Frame> &stack = frames();
  // What the inner `with` does not say is inherited, within one context.
  if (!stack.empty() && stack.back().context.is(frame.context)) {
    if (!frame.location) {
      frame.location = stack.back().location;
    }
    if (!frame.insertionPoint) {
      frame.insertionPoint = stack.back().insertionPoint;
    }
  }
  stack.push_back(std::move(frame));
}

void popFrame() {
  if (frames().empty()) {
    raise(PyExc_RuntimeError, "unbalanced exit from a Context, Location or InsertionPoint");
  }
  frames().pop_back();
}

PyContext &PyContext::current() {
  if (frames().empty()) {
    raise(PyExc_ValueError, "no Context: write `with ir.Context():` around this, or pass context=");
  }
  return *nb::inst_ptr<PyContext>(frames().back().context);
}

PyContext &PyContext::resolve(nb::handle given) {
  if (!given.is_valid() || given.is_none()) {
    return current();
  }
  return expect<PyContext>(given);
}

static PyContext &contextOf(const PyInsertionPoint &point) { return *nb::inst_ptr<PyBlock>(point.block)->context; }

void PyInsertionPoint::insert(PyOperation &py) const {
  Operation *op = py.get();
  Block *target = nb::inst_ptr<PyBlock>(block)->get();
  Block::iterator place = target->end();
  if (!before.is_none()) {
    Operation *next = nb::inst_ptr<PyOperation>(before)->get();
    if (next->getBlock() != target) {
      raise(PyExc_ValueError,
            "the operation of this InsertionPoint has moved to another block; make a new InsertionPoint");
    }
    place = next->getIterator();
  }
  checkContext(contextOf(*this).context, op->getContext(), "the operation");
  if (op->getBlock()) {
    raise(PyExc_ValueError, "the operation is already in a block; use move_before, move_after or detach_from_parent");
  }
  if (target->getParentOp() && op->isAncestor(target->getParentOp())) {
    raise(PyExc_ValueError, "an operation cannot be inserted into itself");
  }
  target->getOperations().insert(place, op);
  py.owned = false;
  // Its nested Python objects hold this one, which now holds the root.
  py.attachToRoot();
}

static nb::object currentOr(nb::object Frame::*field, const char *what) {
  if (frames().empty() || !(frames().back().*field)) {
    raise(PyExc_ValueError, std::string("no current ") + what);
  }
  return frames().back().*field;
}

static nb::object makePoint(PyBlock &block, Operation *before) {
  nb::object next = before ? PyOperation::forOperation(*block.context, before) : nb::none();
  return nb::cast(PyInsertionPoint{block.object(), std::move(next)});
}

static nb::object homeOf(PyOperation &op) {
  Block *block = op.get()->getBlock();
  if (!block) {
    raise(PyExc_ValueError, "the operation is in no block, so there is no place before or after it");
  }
  return PyBlock::forBlock(*op.context, block);
}

static void bindInsertionPoint(nb::module_ &m) {
  nb::class_<PyInsertionPoint>(m, "InsertionPoint",
                               "A place in a block. As a context manager it is where new operations go.")
      .def(nb::new_([](nb::handle place) {
             if (nb::isinstance<PyBlock>(place)) {
               return PyInsertionPoint{nb::borrow(place), nb::none()};
             }
             auto &op = expect<PyOperation>(place);
             return PyInsertionPoint{homeOf(op), op.object()};
           }),
           "place"_a, "The end of a block, or before an operation.")
      .def_static("at_block_begin",
                  [](PyBlock &block) {
                    Block *b = block.get();
                    return makePoint(block, b->empty() ? nullptr : &b->front());
                  })
      .def_static("at_block_terminator",
                  [](PyBlock &block) {
                    if (!block.get()->mightHaveTerminator()) {
                      raise(PyExc_ValueError, "the block has no terminator");
                    }
                    return makePoint(block, block.get()->getTerminator());
                  })
      .def_static("before", [](PyOperation &op) { return PyInsertionPoint{homeOf(op), op.object()}; })
      .def_static("after",
                  [](PyOperation &op) {
                    nb::object block = homeOf(op);
                    return makePoint(*nb::inst_ptr<PyBlock>(block), op.get()->getNextNode());
                  })
      .def(
          "insert", [](PyInsertionPoint &point, PyOperation &op) { point.insert(op); },
          "Inserts a detached operation here.")
      .def_prop_ro("block", [](PyInsertionPoint &point) { return point.block; })
      .def_prop_ro("ref_operation", [](PyInsertionPoint &point) { return point.before; })
      .def_prop_ro_static("current", [](nb::handle) { return currentOr(&Frame::insertionPoint, "InsertionPoint"); })
      .def("__enter__",
           [](nb::handle self) {
             pushFrame({contextOf(*nb::inst_ptr<PyInsertionPoint>(self)).object(), {}, nb::borrow(self)});
             return nb::borrow(self);
           })
      .def("__exit__", [](nb::handle, nb::args) { popFrame(); });
}

void bindContext(nb::module_ &m) {
  nb::class_<PyContext>(m, "Context", "Owns types, attributes, locations and dialects; everything holds its context.")
      .def(nb::new_([] { return PyContext::create(); }))
      .def_prop_ro_static("current", [](nb::handle) { return PyContext::current().object(); })
      .def("__enter__",
           [](nb::handle self) {
             pushFrame({nb::borrow(self), {}, {}});
             return nb::borrow(self);
           })
      .def("__exit__", [](nb::handle, nb::args) { popFrame(); })
      .def_prop_rw(
          "allow_unregistered_dialects", [](PyContext &c) { return c.context->allowsUnregisteredDialects(); },
          [](PyContext &c, bool allow) { c.context->allowUnregisteredDialects(allow); })
      .def(
          "enable_multithreading", [](PyContext &c, bool enable) { c.context->enableMultithreading(enable); },
          "enable"_a, "Off by default. A pipeline with a Python pass turns it off again.")
      .def("load_all_available_dialects", [](PyContext &c) { c.context->loadAllAvailableDialects(); })
      .def("is_registered_operation",
           [](PyContext &c, const std::string &name) {
             c.context->getOrLoadDialect(StringRef(name).split('.').first);
             return RegisteredOperationName::lookup(name, c.context).has_value();
           })
      .def_prop_ro(
          "dialects",
          [](PyContext &c) {
            nb::list names;
            for (StringRef name : c.context->getAvailableDialects()) {
              names.append(toStr(name));
            }
            return names;
          },
          "Names of the dialects that this build has.")
      .def("_live_operation_count", [](PyContext &c) { return c.operations.size(); });
  bindInsertionPoint(m);
}

} // namespace mlir::ditron::python
