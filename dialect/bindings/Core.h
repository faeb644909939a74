// The Python objects of the IR module, and how they stay valid.
//
// Operations and blocks have at most one Python object each (the context's live maps), so identity works and an erased
// operation can be marked: touching it afterwards raises RuntimeError. Regions and values are (owner, index) pairs and
// so are checked through their owner. Everything holds its root operation, and the root holds the context; nothing
// points downwards, so that reference counting alone frees it all.
#ifndef DITRON_BINDINGS_CORE_H
#define DITRON_BINDINGS_CORE_H

#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Operation.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringMap.h"
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

namespace nb = nanobind;
using namespace nb::literals;

namespace mlir::ditron::python {

struct PyOperation;
struct PyBlock;

struct PyContext {
  MLIRContext *context;
  bool owned;
  nb::handle self;
  llvm::DenseMap<Operation *, PyOperation *> operations;
  llvm::DenseMap<Block *, PyBlock *> blocks;
  /// Python class by operation name; borrowed, the classes live in the registry.
  llvm::DenseMap<const void *, nb::handle> classes;
  /// Detached operations whose Python object is gone while others still use their results. Owned here until Python
  /// meets one again.
  llvm::DenseSet<Operation *> orphans;
  /// What Python passes are running on, the innermost last: the pass manager goes on with it, so it has to stay.
  SmallVector<Operation *> running;

  PyContext(MLIRContext *context, bool owned);
  ~PyContext();
  nb::object object() const { return nb::borrow(self); }

  /// A new context with our dialects registered.
  static nb::object create();
  /// The Python object of a context that C++ made (ditron-opt).
  static nb::object forContext(MLIRContext *context);
  /// The innermost context of the `with` statements; raises if there is none.
  static PyContext &current();
  /// `given` (a Context or None) or the current one.
  static PyContext &resolve(nb::handle given);
  /// Marks everything below `root` (and `root` itself unless `keepRoot`) as erased; C++ may have changed it.
  void invalidate(Operation *root, bool keepRoot);
  /// Marks everything as erased because C++ destroys the context.
  void abandon();
};

struct PyOperation {
  Operation *op;
  OperationName name;
  nb::handle self;
  PyContext *context;
  nb::object contextObject;
  /// The outermost operation, kept alive; null if it is this one.
  nb::object root;
  /// Python destroys the operation together with this object.
  bool owned;

  PyOperation(nb::handle self, PyContext &context, Operation *op, bool owned);
  ~PyOperation();
  /// The operation; raises RuntimeError if it was erased.
  Operation *get() const;
  nb::object object() const { return nb::borrow(self); }
  void attachToRoot();

  static nb::object forOperation(PyContext &context, Operation *op, bool owned = false);
};

/// Same layout; the base of the typed classes.
struct PyOpView : PyOperation {
  using PyOperation::PyOperation;
};

struct PyModule {
  nb::object operation;
  PyOperation &get() const { return *nb::inst_ptr<PyOperation>(operation); }
};

struct PyRegion {
  nb::object owner;
  PyOperation *operation;
  unsigned index;
  Region &get() const;
  static nb::object create(PyOperation &op, unsigned index);
  static nb::object forRegion(PyContext &context, Region *region);
};

struct PyBlock {
  Block *block;
  nb::handle self;
  PyContext *context;
  nb::object contextObject;
  nb::object root;

  PyBlock(nb::handle self, PyContext &context, Block *block);
  ~PyBlock();
  Block *get() const;
  nb::object object() const { return nb::borrow(self); }
  void attachToRoot();

  static nb::object forBlock(PyContext &context, Block *block);
};

struct PyValue {
  nb::object owner;
  PyOperation *operation; // an OpResult's
  PyBlock *block;         // a BlockArgument's
  unsigned index;
  Value raw;

  Value get();
  PyContext &context() const { return operation ? *operation->context : *block->context; }
  static nb::object forValue(PyContext &context, Value value);
};
struct PyOpResult : PyValue {};
struct PyBlockArgument : PyValue {};

struct PyType {
  Type type;
  PyContext *context;
  nb::object contextObject;
  PyType(PyContext &context, Type type) : type(type), context(&context), contextObject(context.object()) {}
};
nb::object wrapType(PyContext &context, Type type);

struct PyAttribute {
  Attribute attr;
  PyContext *context;
  nb::object contextObject;
  PyAttribute(PyContext &context, Attribute attr) : attr(attr), context(&context), contextObject(context.object()) {}
};
/// None for a null attribute.
nb::object wrapAttribute(PyContext &context, Attribute attr);

struct PyLocation {
  Location loc;
  PyContext *context;
  nb::object contextObject;
  PyLocation(PyContext &context, Location loc) : loc(loc), context(&context), contextObject(context.object()) {}
  /// `given` (a Location or None) or the current one; raises if there is neither.
  static Location resolve(nb::handle given, PyContext &context);
};

struct PyInsertionPoint {
  nb::object block;
  nb::object before; // an operation, or None for the end of the block
  /// Inserts a detached operation; raises if the place is gone.
  void insert(PyOperation &op) const;
};

/// What `with Context() / Location / InsertionPoint` put in place for this thread.
struct Frame {
  nb::object context, location, insertionPoint;
};
std::vector<Frame> &frames();
void pushFrame(Frame frame);
void popFrame();

struct DiagnosticInfo {
  DiagnosticSeverity severity;
  nb::object location;
  std::string message;
  std::vector<DiagnosticInfo> notes;
};

/// Collects the errors of a scope; other diagnostics go on to the handlers outside.
class ErrorCollector {
public:
  explicit ErrorCollector(PyContext &context);
  bool hasErrors() const { return !errors.empty(); }
  /// Raises MLIRError with what was collected; `what` is the message when nothing was.
  [[noreturn]] void raise(const std::string &what);
  std::vector<DiagnosticInfo> errors;

private:
  PyContext &context;
  ScopedDiagnosticHandler handler;
};
DiagnosticInfo makeDiagnosticInfo(PyContext &context, Diagnostic &diagnostic);
[[noreturn]] void raiseMLIRError(const std::string &what, const std::vector<DiagnosticInfo> &errors);

[[noreturn]] void raise(PyObject *type, const std::string &message);
/// `object` as a `T`; raises TypeError. nanobind's cast takes None for a null pointer, and names no type when it fails.
template <typename T> T &expect(nb::handle object) {
  T *found = nullptr;
  if (!nb::try_cast(object, found) || !found) {
    raise(PyExc_TypeError, "expected " + std::string(nb::str(nb::type<T>().attr("__name__")).c_str()) + ", got " +
                               nb::repr(object).c_str());
  }
  return *found;
}
/// Raises ValueError if the two contexts differ; `what` names the thing that came from elsewhere.
void checkContext(MLIRContext *expected, MLIRContext *actual, const char *what);
/// None, or an Attribute of `context`; `what` names it in the error.
Attribute optionalAttribute(PyContext &context, nb::handle object, const char *what);
/// Raises ValueError if destroying or moving what is in `op` would take away the operation that a Python pass runs on.
void checkNotRunning(Operation *op, const char *action);
/// The index of a Python sequence, negative ones from the end; raises IndexError.
size_t checkIndex(nb::ssize_t index, size_t size);
/// Raises ValueError if something outside `op` uses a value defined in it: destroying it would leave danglers.
void checkUnused(Operation *op, const char *action);
/// Whether something outside uses a value or a block that is defined in `block`; branches to it do not count.
bool isUsedOutside(Block *block);
/// Destroys an operation, detached or not, that nothing outside uses.
void eraseOperation(Operation *op);
/// After `op` moved below another root: its Python objects hold the new root.
void rebind(PyContext &context, Operation *op);
/// A value given as a Value, or as an operation with one result.
Value valueOf(nb::handle object);

template <typename T> std::string print(T &&thing) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  thing.print(stream);
  return text;
}

inline StringRef ref(std::string_view text) { return {text.data(), text.size()}; }
inline nb::str toStr(StringRef text) { return nb::str(text.data(), text.size()); }

void bindContext(nb::module_ &m);
void bindDiagnostics(nb::module_ &m);
void bindLocations(nb::module_ &m);
void bindOperations(nb::module_ &m);
void bindCreation(nb::module_ &m);
void bindBlocks(nb::module_ &m);
void bindInterfaces(nb::module_ &m);
void bindValues(nb::module_ &m);
void bindTypes(nb::module_ &m);
void bindAttributes(nb::module_ &m);
void bindPassManager(nb::module_ &m);
void bindOpt(nb::module_ &m);
void bindLsp(nb::module_ &m);

} // namespace mlir::ditron::python

#endif // DITRON_BINDINGS_CORE_H
