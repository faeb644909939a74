// How Python objects are found, kept and marked as erased; see Core.h for the rules.
#include "Core.h"
#include "dialect/Register.h"

namespace mlir::ditron::python {

//===-- errors -----------------------------------------------------------===//

void raise(PyObject *type, const std::string &message) {
  PyErr_SetString(type, message.c_str());
  throw nb::python_error();
}

void checkContext(MLIRContext *expected, MLIRContext *actual, const char *what) {
  if (expected != actual) {
    raise(PyExc_ValueError,
          std::string(what) + " belongs to another Context; everything in one operation must share one");
  }
}

size_t checkIndex(nb::ssize_t index, size_t size) {
  nb::ssize_t given = index;
  if (index < 0) {
    index += nb::ssize_t(size);
  }
  if (index < 0 || size_t(index) >= size) {
    raise(PyExc_IndexError,
          "index " + std::to_string(given) + " is out of range, the length is " + std::to_string(size));
  }
  return size_t(index);
}

//===-- contexts ---------------------------------------------------------===//

static llvm::DenseMap<MLIRContext *, PyContext *> &liveContexts() {
  static auto *map = new llvm::DenseMap<MLIRContext *, PyContext *>();
  return *map;
}

void checkNotRunning(Operation *op, const char *action) {
  PyContext &context = *liveContexts().at(op->getContext());
  for (Operation *root : context.running) {
    if (op->isAncestor(root)) {
      raise(PyExc_ValueError, std::string("cannot ") + action + " '" + op->getName().getStringRef().str() +
                                  "': a pass is running on " + (op == root ? "it" : "an operation in it") +
                                  "; a pass may change only what is in the operation that it gets");
    }
  }
}

PyContext::PyContext(MLIRContext *context, bool owned) : context(context), owned(owned) {
  liveContexts()[context] = this;
}

PyContext::~PyContext() {
  if (!context) {
    return;
  }
  liveContexts().erase(context);
  if (owned) {
    // Orphans may use one another's results: first cut every edge.
    for (Operation *op : orphans) {
      op->dropAllReferences();
      op->dropAllUses();
    }
    for (Operation *op : orphans) {
      op->destroy();
    }
    delete context;
  }
}

static nb::object makeContext(MLIRContext *context, bool owned) {
  nb::object self = nb::inst_alloc(nb::type<PyContext>());
  auto *py = new (nb::inst_ptr<void>(self)) PyContext(context, owned);
  nb::inst_mark_ready(self);
  py->self = self;
  return self;
}

nb::object PyContext::create() {
  static const DialectRegistry *registry = [] {
    auto *all = new DialectRegistry();
    registerAllDialects(*all);
    return all;
  }();
  // No thread pool: modules are one kernel, passes may be Python, and processes fork.
  return makeContext(new MLIRContext(*registry, MLIRContext::Threading::DISABLED), /*owned=*/true);
}

nb::object PyContext::forContext(MLIRContext *context) {
  auto it = liveContexts().find(context);
  return it != liveContexts().end() ? it->second->object() : makeContext(context, /*owned=*/false);
}

void PyContext::invalidate(Operation *top, bool keepRoot) {
  for (auto it = operations.begin(), end = operations.end(); it != end; ++it) {
    auto [op, py] = *it;
    if (top->isAncestor(op) && !(keepRoot && op == top)) {
      py->op = nullptr;
      py->owned = false;
      operations.erase(it);
    }
  }
  for (auto it = blocks.begin(), end = blocks.end(); it != end; ++it) {
    auto [block, py] = *it;
    if (Operation *parent = block->getParentOp(); parent && top->isAncestor(parent)) {
      py->block = nullptr;
      blocks.erase(it);
    }
  }
}

void PyContext::abandon() {
  for (auto [op, py] : operations) {
    py->op = nullptr;
    py->owned = false;
  }
  for (auto [block, py] : blocks) {
    py->block = nullptr;
  }
  operations.clear();
  blocks.clear();
  liveContexts().erase(context);
  context = nullptr;
}

//===-- operations -------------------------------------------------------===//

PyOperation::PyOperation(nb::handle self, PyContext &context, Operation *op, bool owned)
    : op(op), name(op->getName()), self(self), context(&context), contextObject(context.object()), owned(owned) {
  context.operations[op] = this;
}

/// Whether something for which `inside` does not hold uses a result, an argument or a block of `top` or below.
static bool isUsed(Operation *top, function_ref<bool(Operation *)> inside) {
  auto outside = [inside](auto &&used) { return !llvm::all_of(used.getUsers(), inside); };
  return top
      ->walk([&](Operation *op) {
        bool used = llvm::any_of(op->getResults(), outside);
        for (Region &region : op->getRegions()) {
          for (Block &block : region) {
            used = used || outside(block) || llvm::any_of(block.getArguments(), outside);
          }
        }
        return used ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

static bool isUsedOutside(Operation *op) {
  return isUsed(op, [op](Operation *user) { return op->isAncestor(user); });
}

bool isUsedOutside(Block *block) {
  auto inside = [block](Operation *user) { return block->findAncestorOpInBlock(*user) != nullptr; };
  return llvm::any_of(block->getArguments(),
                      [&](BlockArgument argument) { return !llvm::all_of(argument.getUsers(), inside); }) ||
         llvm::any_of(*block, [&](Operation &op) { return isUsed(&op, inside); });
}

void checkUnused(Operation *op, const char *action) {
  if (op->getNumRegions() == 0 ? !op->use_empty() : isUsedOutside(op)) {
    raise(PyExc_ValueError,
          std::string("cannot ") + action + " '" + op->getName().getStringRef().str() +
              "': its values are still used outside; call replace_all_uses_with, or erase the users, first");
  }
}

void eraseOperation(Operation *op) {
  // Regions are destroyed one by one, and in IR that does not verify one may use values of another.
  op->dropAllReferences();
  op->erase();
}

PyOperation::~PyOperation() {
  if (!op) {
    return;
  }
  context->operations.erase(op);
  if (owned) {
    if (isUsedOutside(op)) {
      context->orphans.insert(op);
    } else {
      eraseOperation(op);
    }
  }
}

Operation *PyOperation::get() const {
  if (!op) {
    raise(PyExc_RuntimeError, "this '" + name.getStringRef().str() +
                                  "' was erased, or a pass ran over it since; get it again from the module");
  }
  return op;
}

static Operation *rootOf(Operation *op) {
  while (Operation *parent = op->getParentOp()) {
    op = parent;
  }
  return op;
}

void PyOperation::attachToRoot() {
  Operation *top = rootOf(op);
  root = top == op ? nb::object() : PyOperation::forOperation(*context, top);
}

nb::object classForOperation(PyContext &context, OperationName name);

nb::object PyOperation::forOperation(PyContext &context, Operation *op, bool owned) {
  auto it = context.operations.find(op);
  if (it != context.operations.end()) {
    return it->second->object();
  }
  nb::object cls = classForOperation(context, op->getName());
  // Finding the class may import a module, which lets other threads run: one of them may have made the object.
  if (it = context.operations.find(op); it != context.operations.end()) {
    return it->second->object();
  }
  nb::object self = nb::inst_alloc(cls);
  owned |= context.orphans.erase(op);
  auto *py = new (nb::inst_ptr<void>(self)) PyOperation(self, context, op, owned);
  nb::inst_mark_ready(self);
  if (op->getBlock()) {
    py->attachToRoot();
  }
  return self;
}

void rebind(PyContext &context, Operation *op) {
  op->walk([&](Operation *inner) {
    if (auto it = context.operations.find(inner); it != context.operations.end()) {
      it->second->attachToRoot();
    }
    for (Region &region : inner->getRegions()) {
      for (Block &block : region) {
        if (auto it = context.blocks.find(&block); it != context.blocks.end()) {
          it->second->attachToRoot();
        }
      }
    }
  });
}

//===-- regions, blocks, values ------------------------------------------===//

Region &PyRegion::get() const {
  Operation *op = operation->get();
  return op->getRegion(unsigned(checkIndex(index, op->getNumRegions())));
}

nb::object PyRegion::create(PyOperation &op, unsigned index) { return nb::cast(PyRegion{op.object(), &op, index}); }

nb::object PyRegion::forRegion(PyContext &context, Region *region) {
  nb::object owner = PyOperation::forOperation(context, region->getParentOp());
  return create(*nb::inst_ptr<PyOperation>(owner), region->getRegionNumber());
}

PyBlock::PyBlock(nb::handle self, PyContext &context, Block *block)
    : block(block), self(self), context(&context), contextObject(context.object()) {
  context.blocks[block] = this;
}

PyBlock::~PyBlock() {
  if (block) {
    context->blocks.erase(block);
  }
}

Block *PyBlock::get() const {
  if (!block) {
    raise(PyExc_RuntimeError, "this block was erased, or a pass ran over it since; get it again from its region");
  }
  return block;
}

void PyBlock::attachToRoot() { root = PyOperation::forOperation(*context, rootOf(block->getParentOp())); }

nb::object PyBlock::forBlock(PyContext &context, Block *block) {
  auto it = context.blocks.find(block);
  if (it != context.blocks.end()) {
    return it->second->object();
  }
  nb::object self = nb::inst_alloc(nb::type<PyBlock>());
  auto *py = new (nb::inst_ptr<void>(self)) PyBlock(self, context, block);
  nb::inst_mark_ready(self);
  py->attachToRoot();
  return self;
}

Value PyValue::get() {
  if (operation) {
    operation->get();
    return raw;
  }
  Block *home = block->get();
  if (index < home->getNumArguments() && home->getArgument(index) == raw) {
    return raw;
  }
  // Arguments before this one may have been erased or inserted.
  for (BlockArgument argument : home->getArguments()) {
    if (argument == raw) {
      index = argument.getArgNumber();
      return raw;
    }
  }
  raise(PyExc_RuntimeError, "this block argument was erased");
}

nb::object PyValue::forValue(PyContext &context, Value value) {
  if (!value) {
    return nb::none();
  }
  if (auto result = dyn_cast<OpResult>(value)) {
    nb::object owner = PyOperation::forOperation(context, result.getOwner());
    auto *py = nb::inst_ptr<PyOperation>(owner);
    return nb::cast(PyOpResult{{std::move(owner), py, nullptr, result.getResultNumber(), value}});
  }
  auto argument = cast<BlockArgument>(value);
  nb::object owner = PyBlock::forBlock(context, argument.getOwner());
  auto *py = nb::inst_ptr<PyBlock>(owner);
  return nb::cast(PyBlockArgument{{std::move(owner), nullptr, py, argument.getArgNumber(), value}});
}

} // namespace mlir::ditron::python
