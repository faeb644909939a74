// Regions and blocks.
#include "Core.h"
#include "Printing.h"
#include "mlir/IR/Verifier.h"

namespace mlir::ditron::python {

namespace {
struct PyRegions {
  nb::object owner;
  PyOperation &py() const { return *nb::inst_ptr<PyOperation>(owner); }
};
struct PyBlocks {
  PyRegion region;
};
struct PyBlockOperations {
  nb::object owner;
  PyBlock &py() const { return *nb::inst_ptr<PyBlock>(owner); }
};
struct PyBlockArguments {
  nb::object owner;
  PyBlock &py() const { return *nb::inst_ptr<PyBlock>(owner); }
};
} // namespace

//===-- helpers ----------------------------------------------------------===//

static nb::list operationsOf(PyBlock &self) {
  nb::list list;
  for (Operation &op : *self.get()) {
    list.append(PyOperation::forOperation(*self.context, &op));
  }
  return list;
}

static nb::list blocksOf(PyRegion &self) {
  nb::list list;
  for (Block &block : self.get()) {
    list.append(PyBlock::forBlock(*self.operation->context, &block));
  }
  return list;
}

static nb::list argumentsOf(PyBlock &self) {
  nb::list list;
  for (BlockArgument argument : self.get()->getArguments()) {
    list.append(PyValue::forValue(*self.context, argument));
  }
  return list;
}

/// Adds arguments of `types`, located at `locs` (or the current location, or the parent's).
static void addArguments(PyContext &context, Block *block, nb::handle types, nb::handle locs) {
  std::vector<Location> locations;
  if (locs.is_valid() && !locs.is_none()) {
    for (nb::handle loc : locs) {
      locations.push_back(expect<PyLocation>(loc).loc);
    }
  }
  size_t i = 0;
  for (nb::handle type : types) {
    Type t = expect<PyType>(type).type;
    checkContext(context.context, t.getContext(), "an argument type");
    Location loc = i < locations.size()                            ? locations[i]
                   : !frames().empty() && frames().back().location ? PyLocation::resolve(nb::handle(), context)
                                                                   : block->getParentOp()->getLoc();
    block->addArgument(t, loc);
    ++i;
  }
}

static nb::object createBlock(PyRegion &region, Region::iterator place, nb::handle types, nb::handle locs) {
  Block *block = new Block();
  region.get().getBlocks().insert(place, block);
  nb::object self = PyBlock::forBlock(*region.operation->context, block);
  addArguments(*region.operation->context, block, types, locs);
  return self;
}

static nb::object createBeside(PyBlock &self, nb::args types, nb::handle locs, bool after) {
  Block *block = self.get();
  PyRegion region = nb::cast<PyRegion>(PyRegion::forRegion(*self.context, block->getParent()));
  return createBlock(region, after ? std::next(block->getIterator()) : block->getIterator(), types, locs);
}

static void checkNoneRunning(Block *block, const char *action) {
  for (Operation &op : *block) {
    checkNotRunning(&op, action);
  }
}

static void moveBlock(PyBlock &self, Region &region, Region::iterator place) {
  Block *block = self.get();
  if (region.getParentOp() && block->getParentOp() && block->getParentOp() != region.getParentOp()) {
    for (Operation &op : *block) {
      if (op.isAncestor(region.getParentOp())) {
        raise(PyExc_ValueError, "a block cannot be moved into itself");
      }
    }
  }
  checkNoneRunning(block, "move");
  region.getBlocks().splice(place, block->getParent()->getBlocks(), block->getIterator());
  self.attachToRoot();
  for (Operation &op : *block) {
    rebind(*self.context, &op);
  }
}

static void eraseBlock(PyBlock &self) {
  Block *block = self.get();
  if (!block->use_empty()) {
    raise(PyExc_ValueError, "cannot erase the block: operations still branch to it");
  }
  if (isUsedOutside(block)) {
    raise(PyExc_ValueError, "cannot erase the block: values defined in it are still used outside");
  }
  checkNoneRunning(block, "erase");
  for (Operation &op : *block) {
    self.context->invalidate(&op, /*keepRoot=*/false);
  }
  self.context->blocks.erase(block);
  self.block = nullptr;
  block->dropAllReferences();
  block->erase();
}

static void eraseArgument(PyBlock &self, nb::ssize_t index) {
  Block *block = self.get();
  unsigned i = unsigned(checkIndex(index, block->getNumArguments()));
  if (!block->getArgument(i).use_empty()) {
    raise(PyExc_ValueError, "cannot erase the block argument: it is still used");
  }
  block->eraseArgument(i);
}

//===-- bindings ---------------------------------------------------------===//

/// Reading a Python list made by `snapshot`: iteration is over what was there when it began.
template <typename List, typename Snapshot>
static nb::class_<List> &bindList(nb::class_<List> &cls, Snapshot snapshot) {
  return cls.def("__len__", [snapshot](List &self) { return nb::len(snapshot(self)); })
      .def("__getitem__",
           [snapshot](List &self, nb::object index) -> nb::object {
             nb::list list = snapshot(self);
             if (nb::isinstance<nb::int_>(index)) {
               return list[checkIndex(nb::cast<nb::ssize_t>(index), list.size())];
             }
             return nb::steal(PyObject_GetItem(list.ptr(), index.ptr()));
           })
      .def("__iter__", [snapshot](List &self) { return nb::iter(snapshot(self)); });
}

static void bindRegion(nb::module_ &m) {
  nb::class_<PyRegions> regions(m, "RegionSequence");
  bindList(regions, [](PyRegions &self) {
    nb::list list;
    for (unsigned i = 0, n = self.py().get()->getNumRegions(); i < n; ++i) {
      list.append(PyRegion::create(self.py(), i));
    }
    return list;
  });
  nb::class_<PyBlocks> blocks(m, "BlockList");
  bindList(blocks, [](PyBlocks &self) { return blocksOf(self.region); });
  blocks.def(
      "append",
      [](PyBlocks &self, nb::args types, nb::handle locs) {
        return createBlock(self.region, self.region.get().end(), types, locs);
      },
      "types"_a, "arg_locs"_a = nb::none(), "A new block at the end, with arguments of these types.");
  nb::class_<PyRegion>(m, "Region")
      .def_prop_ro("blocks",
                   [](PyRegion &self) {
                     self.get();
                     return PyBlocks{self};
                   })
      .def_prop_ro("owner",
                   [](PyRegion &self) {
                     self.get();
                     return self.owner;
                   })
      .def("__iter__", [](PyRegion &self) { return nb::iter(blocksOf(self)); })
      .def("__len__", [](PyRegion &self) { return self.get().getBlocks().size(); })
      .def("__eq__", [](PyRegion &self,
                        PyRegion &other) { return self.operation == other.operation && self.index == other.index; })
      .def(
          "__eq__", [](PyRegion &, nb::handle) { return false; }, "other"_a.none())
      .def("__hash__", [](PyRegion &self) { return nb::ssize_t(uintptr_t(self.operation) >> 4) + self.index; })
      .def(
          "take_body",
          [](PyRegion &self, PyRegion &other) {
            if (!self.get().empty()) {
              raise(PyExc_ValueError, "the region has blocks already");
            }
            while (!other.get().empty()) {
              nb::object block = PyBlock::forBlock(*self.operation->context, &other.get().front());
              moveBlock(*nb::inst_ptr<PyBlock>(block), self.get(), self.get().end());
            }
          },
          "other"_a, "Moves all blocks of another region into this empty one.");
  auto operation = nb::borrow<nb::class_<PyOperation>>(m.attr("Operation"));
  operation
      .def_prop_ro("regions",
                   [](PyOperation &self) {
                     self.get();
                     return PyRegions{self.object()};
                   })
      .def_prop_ro("successors", [](PyOperation &self) {
        nb::list list;
        for (Block *block : self.get()->getSuccessors()) {
          list.append(PyBlock::forBlock(*self.context, block));
        }
        return list;
      });
}

static void bindBlockLists(nb::module_ &m) {
  nb::class_<PyBlockOperations> operations(m, "OperationList");
  bindList(operations, [](PyBlockOperations &self) { return operationsOf(self.py()); });
  operations.def("append",
                 [](PyBlockOperations &self, PyOperation &op) { PyInsertionPoint{self.owner, nb::none()}.insert(op); });
  nb::class_<PyBlockArguments> arguments(m, "BlockArgumentList");
  bindList(arguments, [](PyBlockArguments &self) { return argumentsOf(self.py()); });
  arguments
      .def_prop_ro("types",
                   [](PyBlockArguments &self) {
                     nb::list list;
                     for (Type type : self.py().get()->getArgumentTypes()) {
                       list.append(wrapType(*self.py().context, type));
                     }
                     return list;
                   })
      .def("__add__", [](nb::object self, nb::handle other) { return nb::list(self) + nb::list(nb::borrow(other)); });
}

void bindBlocks(nb::module_ &m) {
  bindRegion(m);
  bindBlockLists(m);
  nb::class_<PyBlock>(m, "Block", "A block. There is one Python object for each; touching an erased one raises.")
      .def_static(
          "create_at_start",
          [](PyRegion &parent, nb::sequence types, nb::handle locs) {
            return createBlock(parent, parent.get().begin(), types, locs);
          },
          "parent"_a, "arg_types"_a = nb::list(), "arg_locs"_a = nb::none())
      .def(
          "create_before",
          [](PyBlock &self, nb::args types, nb::handle locs) { return createBeside(self, types, locs, false); },
          "arg_types"_a, "arg_locs"_a = nb::none())
      .def(
          "create_after",
          [](PyBlock &self, nb::args types, nb::handle locs) { return createBeside(self, types, locs, true); },
          "arg_types"_a, "arg_locs"_a = nb::none())
      .def_prop_ro("operations",
                   [](PyBlock &self) {
                     self.get();
                     return PyBlockOperations{self.object()};
                   })
      .def_prop_ro("arguments",
                   [](PyBlock &self) {
                     self.get();
                     return PyBlockArguments{self.object()};
                   })
      .def_prop_ro(
          "owner", [](PyBlock &self) { return PyOperation::forOperation(*self.context, self.get()->getParentOp()); },
          "The operation that the block is in.")
      .def_prop_ro("region", [](PyBlock &self) { return PyRegion::forRegion(*self.context, self.get()->getParent()); })
      .def_prop_ro(
          "terminator",
          [](PyBlock &self) -> nb::object {
            Block *block = self.get();
            if (block->empty() || !block->back().mightHaveTrait<OpTrait::IsTerminator>()) {
              return nb::none();
            }
            return PyOperation::forOperation(*self.context, &block->back());
          },
          "The last operation if it is (or may be) a terminator, else None.")
      .def_prop_ro("next_in_region",
                   [](PyBlock &self) -> nb::object {
                     Block *next = self.get()->getNextNode();
                     return next ? PyBlock::forBlock(*self.context, next) : nb::none();
                   })
      .def_prop_ro("successors",
                   [](PyBlock &self) {
                     nb::list list;
                     for (Block *block : self.get()->getSuccessors()) {
                       list.append(PyBlock::forBlock(*self.context, block));
                     }
                     return list;
                   })
      .def_prop_ro("predecessors",
                   [](PyBlock &self) {
                     nb::list list;
                     for (Block *block : self.get()->getPredecessors()) {
                       // A detached branch is in no block.
                       if (block) {
                         list.append(PyBlock::forBlock(*self.context, block));
                       }
                     }
                     return list;
                   })
      .def(
          "add_argument",
          [](PyBlock &self, PyType &type, nb::handle loc) {
            checkContext(self.context->context, type.type.getContext(), "the type");
            return PyValue::forValue(*self.context,
                                     self.get()->addArgument(type.type, PyLocation::resolve(loc, *self.context)));
          },
          "type"_a, "loc"_a = nb::none())
      .def(
          "insert_argument",
          [](PyBlock &self, unsigned index, PyType &type, nb::handle loc) {
            if (index > self.get()->getNumArguments()) {
              raise(PyExc_IndexError, "the block has " + std::to_string(self.get()->getNumArguments()) + " arguments");
            }
            checkContext(self.context->context, type.type.getContext(), "the type");
            return PyValue::forValue(
                *self.context, self.get()->insertArgument(index, type.type, PyLocation::resolve(loc, *self.context)));
          },
          "index"_a, "type"_a, "loc"_a = nb::none())
      .def("erase_argument", &eraseArgument, "index"_a)
      .def(
          "append", [](PyBlock &self, PyOperation &op) { PyInsertionPoint{self.object(), nb::none()}.insert(op); },
          "Appends a detached operation.")
      .def(
          "append_to", [](PyBlock &self, PyRegion &region) { moveBlock(self, region.get(), region.get().end()); },
          "Moves the block to the end of a region.")
      .def(
          "split_before",
          [](PyBlock &self, PyOperation &op) {
            if (op.get()->getBlock() != self.get()) {
              raise(PyExc_ValueError, "the operation is not in this block");
            }
            checkNoneRunning(self.get(), "split the block of");
            return PyBlock::forBlock(*self.context, self.get()->splitBlock(op.get()));
          },
          "op"_a, "Moves `op` and what follows into a new block after this one, and returns that.")
      .def("erase", &eraseBlock)
      .def("__iter__", [](PyBlock &self) { return nb::iter(operationsOf(self)); })
      .def("__str__", [](PyBlock &self) {
        Block *block = self.get();
        Operation *parent = block->getParentOp();
        if (!parent) {
          return print(*block);
        }
        std::string text;
        llvm::raw_string_ostream stream(text);
        AsmState state(rootOf(parent), printable(parent));
        block->print(stream, state);
        return text;
      });
}

} // namespace mlir::ditron::python
