// Operation: reading, moving, erasing, walking, printing.
#include "Core.h"
#include "Printing.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace mlir::ditron::python {

//===-- attributes as a mapping ------------------------------------------===//

namespace {
struct PyOpAttributes {
  nb::object owner;
  Operation *op() const { return nb::inst_ptr<PyOperation>(owner)->get(); }
  PyContext &context() const { return *nb::inst_ptr<PyOperation>(owner)->context; }
};

enum class WalkOrder { PreOrder, PostOrder };
enum class PyWalkResult { Advance, Interrupt, Skip };
} // namespace

static void setAttribute(PyOpAttributes &self, const std::string &name, PyAttribute &attr) {
  Operation *op = self.op();
  checkContext(op->getContext(), attr.attr.getContext(), "the attribute");
  op->setAttr(name, attr.attr);
}

static void bindAttributeMap(nb::module_ &m) {
  nb::class_<PyOpAttributes>(m, "OpAttributeMap", "The attributes of an operation, as a mapping from str to Attribute.")
      .def("__getitem__",
           [](PyOpAttributes &self, const std::string &name) {
             Attribute attr = self.op()->getAttr(name);
             if (!attr) {
               raise(PyExc_KeyError, "no attribute '" + name + "' on " + self.op()->getName().getStringRef().str());
             }
             return wrapAttribute(self.context(), attr);
           })
      .def(
          "get",
          [](PyOpAttributes &self, const std::string &name, nb::object fallback) {
            Attribute attr = self.op()->getAttr(name);
            return attr ? wrapAttribute(self.context(), attr) : fallback;
          },
          "name"_a, "default"_a = nb::none())
      .def("__setitem__", &setAttribute)
      .def("__delitem__",
           [](PyOpAttributes &self, const std::string &name) {
             if (!self.op()->removeAttr(name)) {
               raise(PyExc_KeyError, "no attribute '" + name + "'");
             }
           })
      .def("__contains__", [](PyOpAttributes &self, const std::string &name) { return self.op()->hasAttr(name); })
      .def("__len__", [](PyOpAttributes &self) { return self.op()->getAttrs().size(); })
      .def("keys",
           [](PyOpAttributes &self) {
             nb::list list;
             for (NamedAttribute attr : self.op()->getAttrs()) {
               list.append(toStr(attr.getName()));
             }
             return list;
           })
      .def("__iter__", [](nb::object self) { return nb::iter(self.attr("keys")()); })
      .def("items",
           [](PyOpAttributes &self) {
             nb::list list;
             for (NamedAttribute attr : self.op()->getAttrs()) {
               list.append(nb::make_tuple(toStr(attr.getName()), wrapAttribute(self.context(), attr.getValue())));
             }
             return list;
           })
      .def("values", [](PyOpAttributes &self) {
        nb::list list;
        for (NamedAttribute attr : self.op()->getAttrs()) {
          list.append(wrapAttribute(self.context(), attr.getValue()));
        }
        return list;
      });
}

//===-- walking ----------------------------------------------------------===//

/// Walks over what is there when the walk begins, so that the callback may erase, move and create as it likes:
/// erased operations are skipped, new ones are not visited.
static bool walk(PyOperation &self, nb::callable callback, WalkOrder order) {
  struct Entry {
    nb::object op;
    size_t end; // PreOrder: first entry after the nested ones
  };
  std::vector<Entry> entries;
  auto collect = [&](auto &&recurse, Operation *op) -> void {
    size_t position = entries.size();
    if (order == WalkOrder::PreOrder) {
      entries.push_back({PyOperation::forOperation(*self.context, op), 0});
    }
    for (Region &region : op->getRegions()) {
      for (Block &block : region) {
        for (Operation &inner : block) {
          recurse(recurse, &inner);
        }
      }
    }
    if (order == WalkOrder::PreOrder) {
      entries[position].end = entries.size();
    } else {
      entries.push_back({PyOperation::forOperation(*self.context, op), 0});
    }
  };
  collect(collect, self.get());
  for (size_t i = 0; i < entries.size();) {
    if (!nb::inst_ptr<PyOperation>(entries[i].op)->op) {
      ++i;
      continue;
    }
    nb::object answer = callback(entries[i].op);
    // Not a cast: that takes any number, and True is one.
    if (!answer.is_none() && !nb::isinstance<PyWalkResult>(answer)) {
      raise(PyExc_TypeError, "the callback of walk returned " + std::string(nb::repr(answer).c_str()) +
                                 "; return None to go on, or a WalkResult (ADVANCE, INTERRUPT, SKIP)");
    }
    auto result = answer.is_none() ? PyWalkResult::Advance : nb::cast<PyWalkResult>(answer);
    if (result == PyWalkResult::Interrupt) {
      return true;
    }
    if (result == PyWalkResult::Skip && order == WalkOrder::PostOrder) {
      raise(PyExc_ValueError, "WalkResult.SKIP needs a pre-order walk: in post-order the nested operations came first");
    }
    i = result == PyWalkResult::Skip ? entries[i].end : i + 1;
  }
  return false;
}

//===-- moving and erasing -----------------------------------------------===//

static void move(PyOperation &self, PyOperation &other, bool after) {
  Operation *op = self.get(), *anchor = other.get();
  checkContext(anchor->getContext(), op->getContext(), "the operation");
  if (!anchor->getBlock()) {
    raise(PyExc_ValueError, "the target operation is in no block");
  }
  if (op == anchor) {
    return;
  }
  if (op->isAncestor(anchor)) {
    raise(PyExc_ValueError, "an operation cannot be moved into itself");
  }
  checkNotRunning(op, "move");
  Block *block = anchor->getBlock();
  Block::iterator place = after ? std::next(anchor->getIterator()) : anchor->getIterator();
  if (op->getBlock()) {
    op->moveBefore(block, place);
  } else {
    block->getOperations().insert(place, op);
    self.owned = false;
  }
  rebind(*self.context, op);
}

static void erase(PyOperation &self) {
  Operation *op = self.get();
  checkNotRunning(op, "erase");
  checkUnused(op, "erase");
  self.context->invalidate(op, /*keepRoot=*/false);
  eraseOperation(op);
}

static nb::object detach(PyOperation &self) {
  Operation *op = self.get();
  if (!op->getBlock()) {
    raise(PyExc_ValueError, "the operation has no parent");
  }
  checkNotRunning(op, "detach");
  op->remove();
  self.owned = true;
  rebind(*self.context, op);
  return self.object();
}

//===-- printing ---------------------------------------------------------===//

static std::string getAsm(PyOperation &self, bool debugInfo, bool pretty, bool generic, bool localScope,
                          bool nameLocAsPrefix, bool assumeVerified, bool skipRegions,
                          std::optional<int64_t> largeElements) {
  OpPrintingFlags flags;
  if (debugInfo) {
    flags.enableDebugInfo(true, pretty);
  }
  flags.printGenericOpForm(generic).assumeVerified(assumeVerified).skipRegions(skipRegions);
  flags.printNameLocAsPrefix(nameLocAsPrefix);
  if (localScope) {
    flags.useLocalScope();
  }
  if (largeElements) {
    flags.elideLargeElementsAttrs(*largeElements);
  }
  Operation *op = self.get();
  std::string text;
  llvm::raw_string_ostream stream(text);
  // Printing checks the operation first and falls back to the generic form; what it says is not for the user.
  ScopedDiagnosticHandler quiet(op->getContext(), [](Diagnostic &) { return success(); });
  op->print(stream, printable(op, flags));
  return text;
}

static std::string str(PyOperation &self) { return getAsm(self, false, false, false, false, false, false, false, {}); }

static bool verify(PyOperation &self) {
  if (!canBeVerified(self.get())) {
    raiseMLIRError("verification failed: a result of an operation that is in no block is used", {});
  }
  ErrorCollector errors(*self.context);
  if (failed(mlir::verify(self.get()))) {
    errors.raise("verification failed");
  }
  return true;
}

//===-- the class --------------------------------------------------------===//

static nb::object neighbour(PyOperation &self, Operation *op) {
  return op ? PyOperation::forOperation(*self.context, op) : nb::none();
}

void bindOperations(nb::module_ &m) {
  nb::enum_<WalkOrder>(m, "WalkOrder")
      .value("PRE_ORDER", WalkOrder::PreOrder)
      .value("POST_ORDER", WalkOrder::PostOrder);
  nb::enum_<PyWalkResult>(m, "WalkResult")
      .value("ADVANCE", PyWalkResult::Advance)
      .value("INTERRUPT", PyWalkResult::Interrupt)
      .value("SKIP", PyWalkResult::Skip);
  bindAttributeMap(m);

  nb::class_<PyOperation>(m, "Operation", nb::dynamic_attr(),
                          "An operation. There is one Python object for each, so `is` compares operations.\n"
                          "Touching it after it was erased raises RuntimeError.")
      .def_prop_ro("name", [](PyOperation &self) { return toStr(self.get()->getName().getStringRef()); })
      .def_prop_ro("operation",
                   [](PyOperation &self) {
                     self.get();
                     return self.object();
                   })
      .def_prop_ro("opview",
                   [](PyOperation &self) {
                     self.get();
                     return self.object();
                   })
      .def_prop_ro("context", [](PyOperation &self) { return self.contextObject; })
      .def_prop_ro(
          "is_valid", [](PyOperation &self) { return self.op != nullptr; }, "False once erased.")
      .def_prop_ro("attached", [](PyOperation &self) { return self.get()->getBlock() != nullptr; })
      .def_prop_ro("is_registered", [](PyOperation &self) { return self.get()->isRegistered(); })
      .def_prop_ro("attributes",
                   [](PyOperation &self) {
                     self.get();
                     return PyOpAttributes{self.object()};
                   })
      .def_prop_rw(
          "location", [](PyOperation &self) { return PyLocation(*self.context, self.get()->getLoc()); },
          [](PyOperation &self, PyLocation &loc) {
            checkContext(self.get()->getContext(), loc.loc.getContext(), "the location");
            self.get()->setLoc(loc.loc);
          })
      .def_prop_ro(
          "parent", [](PyOperation &self) { return neighbour(self, self.get()->getParentOp()); },
          "The operation that this one is nested in, or None.")
      .def_prop_ro("block",
                   [](PyOperation &self) {
                     Block *block = self.get()->getBlock();
                     return block ? PyBlock::forBlock(*self.context, block) : nb::none();
                   })
      .def_prop_ro("next_op",
                   [](PyOperation &self) {
                     return neighbour(self, self.get()->getBlock() ? self.get()->getNextNode() : nullptr);
                   })
      .def_prop_ro("prev_op",
                   [](PyOperation &self) {
                     return neighbour(self, self.get()->getBlock() ? self.get()->getPrevNode() : nullptr);
                   })
      .def("is_before_in_block",
           [](PyOperation &self, PyOperation &other) {
             if (!self.get()->getBlock() || self.get()->getBlock() != other.get()->getBlock()) {
               raise(PyExc_ValueError, "the operations are in different blocks");
             }
             return self.get()->isBeforeInBlock(other.get());
           })
      .def(
          "is_ancestor", [](PyOperation &self, PyOperation &other) { return self.get()->isAncestor(other.get()); },
          "Whether `other` is this operation or nested in it.")
      .def_prop_ro("is_terminator", [](PyOperation &self) { return self.get()->hasTrait<OpTrait::IsTerminator>(); })
      .def_prop_ro(
          "is_memory_effect_free", [](PyOperation &self) { return isMemoryEffectFree(self.get()); },
          "Whether the operation, with everything in it, touches no memory.")
      .def_prop_ro("is_pure", [](PyOperation &self) { return isPure(self.get()); })
      .def("move_before", [](PyOperation &self, PyOperation &other) { move(self, other, false); })
      .def("move_after", [](PyOperation &self, PyOperation &other) { move(self, other, true); })
      .def("detach_from_parent", &detach)
      .def("erase", &erase, "Erases the operation with all that is in it. ValueError if its results are still used.")
      .def("walk", &walk, "callback"_a, "walk_order"_a = WalkOrder::PostOrder,
           "Calls `callback(op)` for this operation and all below it; it returns a WalkResult or None (ADVANCE).\n"
           "The callback may erase, move and create: erased operations are skipped, new ones not visited.\n"
           "Returns whether the walk was interrupted.")
      .def("verify", &verify, "True, or raises MLIRError.")
      .def(
          "replace_all_uses_with",
          [](PyOperation &self, nb::object values) {
            Operation *op = self.get();
            std::vector<Value> replacements;
            if (nb::isinstance<PyOperation>(values)) {
              for (Value result : expect<PyOperation>(values).get()->getResults()) {
                replacements.push_back(result);
              }
            } else if (nb::isinstance<PyValue>(values)) {
              replacements.push_back(expect<PyValue>(values).get());
            } else {
              for (nb::handle value : values) {
                replacements.push_back(valueOf(value));
              }
            }
            if (replacements.size() != op->getNumResults()) {
              raise(PyExc_ValueError, "expected " + std::to_string(op->getNumResults()) + " replacements, got " +
                                          std::to_string(replacements.size()));
            }
            op->replaceAllUsesWith(replacements);
          },
          "values"_a, "Replaces each result; `values` is an operation, a value or a sequence of values.")
      .def("replace_uses_of_with",
           [](PyOperation &self, PyValue &of, PyValue &with) { self.get()->replaceUsesOfWith(of.get(), with.get()); })
      .def("get_asm", &getAsm, nb::kw_only(), "enable_debug_info"_a = false, "pretty_debug_info"_a = false,
           "print_generic_op_form"_a = false, "use_local_scope"_a = false, "use_name_loc_as_prefix"_a = false,
           "assume_verified"_a = false, "skip_regions"_a = false, "large_elements_limit"_a = nb::none(),
           "The operation as text.")
      .def(
          "print",
          [](PyOperation &self, nb::object file, nb::kwargs flags) {
            nb::object text = self.object().attr("get_asm")(**flags);
            nb::object out = file.is_none() ? nb::object(nb::module_::import_("sys").attr("stdout")) : file;
            out.attr("write")(text + nb::str("\n"));
          },
          "file"_a = nb::none(), "flags"_a, "Prints to `file` (stdout); flags are get_asm's.")
      .def(
          "emit_error",
          [](nb::object self, nb::object message, nb::object notes) {
            self.attr("location").attr("emit_error")(message, notes);
          },
          "message"_a, "notes"_a = nb::none(),
          "Reports an error at this operation; a pass that does fails. `notes`: sequence of\n"
          "(Location | Operation | None, text).")
      .def(
          "emit_warning",
          [](nb::object self, nb::object message, nb::object notes) {
            self.attr("location").attr("emit_warning")(message, notes);
          },
          "message"_a, "notes"_a = nb::none())
      .def(
          "emit_remark",
          [](nb::object self, nb::object message, nb::object notes) {
            self.attr("location").attr("emit_remark")(message, notes);
          },
          "message"_a, "notes"_a = nb::none())
      .def("__str__", &str)
      .def("__repr__", [](PyOperation &self) {
        return self.op ? str(self) : "<erased operation '" + self.name.getStringRef().str() + "'>";
      });
}

} // namespace mlir::ditron::python
