// The dialect's op interfaces and traits as Python classes, which the typed classes of the ops derive from; its
// enumeration attributes; memory effects.
#include "Attributes.h"
#include "dialect/IR/Ditron.h"
#include "mlir/AsmParser/AsmParser.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/StringExtras.h"

namespace mlir::ditron::python {

//===-- enumerations -----------------------------------------------------===//

/// The member of the generated Python enumeration that `attr` is.
template <typename EnumAttr> static nb::object toMember(EnumAttr attr) {
  static auto *cls = new nb::object(
      nb::module_::import_("ditron_compiler.ir.dialects._ditron_enum_gen")
          .attr(llvm::convertToCamelFromSnakeCase(EnumAttr::getMnemonic(), /*capitalizeFirst=*/true).c_str()));
  return (*cls)(int(attr.getValue()));
}

namespace {
/// An attribute that is a case of one of the dialect's enumerations.
struct PyEnumAttr : PyAttribute {
  using PyAttribute::PyAttribute;
};
} // namespace

template <typename... EnumAttrs> static void enterEnums() { (enter<PyEnumAttr, EnumAttrs>(), ...); }

template <typename... EnumAttrs> static nb::object memberOf(Attribute attr) {
  nb::object member;
  (void)((isa<EnumAttrs>(attr) && (member = toMember(cast<EnumAttrs>(attr)), true)) || ...);
  return member;
}

static void bindEnums(nb::module_ &m) {
  enterEnums<
#define GET_ATTRDEF_LIST
#include "dialect/IR/DitronAttrs.cpp.inc"
      >();
  nb::class_<PyEnumAttr, PyAttribute>(m, "EnumAttr", "A case of an enumeration of the ditron dialect.")
      .def_prop_ro(
          "value",
          [](PyEnumAttr &self) {
            return memberOf<
#define GET_ATTRDEF_LIST
#include "dialect/IR/DitronAttrs.cpp.inc"
                >(self.attr);
          },
          "The member of the Python enumeration: Scope.Node of `#ditron.scope<node>`.")
      .def_static(
          "get",
          [](nb::handle member, nb::handle context) {
            std::string name = nb::cast<std::string>(member.type().attr("__name__"));
            std::string text =
                "#ditron." + llvm::convertToSnakeFromCamelCase(name) + "<" + nb::str(member).c_str() + ">";
            PyContext &c = PyContext::resolve(context);
            Attribute attr = parseAttribute(text, c.context);
            if (!attr) {
              raise(PyExc_ValueError,
                    "no enumeration of the ditron dialect has " + std::string(nb::repr(member).c_str()));
            }
            return wrapAttribute(c, attr);
          },
          "member"_a, "context"_a = nb::none(), "`#ditron.scope<node>` of Scope.Node.");
}

//===-- what interface methods return ------------------------------------===//

static nb::object toPython(PyContext &, bool value) { return nb::bool_(value); }

static nb::object toPython(PyContext &context, Value value) {
  return value ? PyValue::forValue(context, value) : nb::none();
}

static nb::object toPython(PyContext &context, Scope value) { return toMember(ScopeAttr::get(context.context, value)); }
static nb::object toPython(PyContext &context, Semantic value) {
  return toMember(SemanticAttr::get(context.context, value));
}
static nb::object toPython(PyContext &context, SignalOp value) {
  return toMember(SignalOpAttr::get(context.context, value));
}
static nb::object toPython(PyContext &context, Cmp value) { return toMember(CmpAttr::get(context.context, value)); }
static nb::object toPython(PyContext &context, Protocol value) {
  return toMember(ProtocolAttr::get(context.context, value));
}

static nb::object toPython(PyContext &context, ArrayRef<RemoteAccess> accesses) {
  nb::list list;
  for (const RemoteAccess &access : accesses) {
    list.append(nb::make_tuple(toPython(context, access.ptr), toPython(context, access.nbytes)));
  }
  return list;
}

//===-- interfaces and traits --------------------------------------------===//

/// Calls `see(cls)` for every op class of the dialect.
template <typename... Ops, typename See> static void forEachOp(See see) { (see(static_cast<Ops *>(nullptr)), ...); }

namespace {
/// Makes the Python classes, and notes which op has which.
struct Classes {
  nb::module_ &module;
  /// Operation name -> list of classes.
  nb::dict byOperation;

  template <template <typename> typename Trait> nb::object add(const char *name, const char *doc, nb::tuple bases) {
    nb::dict members;
    members["__slots__"] = nb::tuple();
    members["__doc__"] = doc;
    members["__module__"] = module.attr("__name__");
    nb::object cls = nb::borrow(reinterpret_cast<PyObject *>(&PyType_Type))(name, bases, members);
    module.attr(name) = cls;
    forEachOp<
#define GET_OP_LIST
#include "dialect/IR/DitronOps.cpp.inc"
        >([&](auto *op) {
      using Op = std::remove_pointer_t<decltype(op)>;
      if constexpr (Op::template hasTrait<Trait>()) {
        nb::str operation = toStr(Op::getOperationName());
        if (!byOperation.contains(operation)) {
          byOperation[operation] = nb::list();
        }
        nb::cast<nb::list>(byOperation[operation]).append(cls);
      }
    });
    return cls;
  }
};

template <typename Interface> struct InterfaceClass {
  nb::object cls;

  template <typename... Bases>
  InterfaceClass(Classes &classes, const char *name, const char *doc, const Bases &...bases)
      : cls(classes.add<Interface::template Trait>(name, doc, nb::make_tuple(bases.cls...))) {}

  template <typename Method> InterfaceClass &property(const char *name, Method method, const char *doc) {
    auto getter = [method](PyOperation &self) -> nb::object {
      auto op = dyn_cast<Interface>(self.get());
      if (!op) {
        raise(PyExc_TypeError, "'" + self.get()->getName().getStringRef().str() + "' does not have the interface");
      }
      return toPython(*self.context, (op.*method)());
    };
    nb::object type = nb::borrow(reinterpret_cast<PyObject *>(&PyProperty_Type));
    cls.attr(name) = type(nb::cpp_function(getter), nb::none(), nb::none(), doc);
    return *this;
  }
};
} // namespace

static void bindClasses(nb::module_ &m) {
  Classes classes{m, nb::dict()};
  auto memoryOrder = InterfaceClass<MemoryOrderOpInterface>(classes, "MemoryOrderOpInterface",
                                                            "An op with a memory order and a scope of its own.")
                         .property("scope", &MemoryOrderOpInterface::getScope, "How far the order reaches.")
                         .property("semantic", &MemoryOrderOpInterface::getSemantic, "The memory order.")
                         .property("acquires", &MemoryOrderOpInterface::acquires, "Whether it is acquire or acq_rel.")
                         .property("releases", &MemoryOrderOpInterface::releases, "Whether it is release or acq_rel.");
  InterfaceClass<AtomicOpInterface>(classes, "AtomicOpInterface",
                                    "An atomic access, to one address or to each of a tensor.", memoryOrder)
      .property("ptr", &AtomicOpInterface::getPtr, "The address, or a tensor of them.")
      .property("reads_memory", &AtomicOpInterface::readsMemory, "Whether it returns what it read.")
      .property("writes_memory", &AtomicOpInterface::writesMemory, "Whether it writes memory.")
      .property("is_read_modify_write", &AtomicOpInterface::isReadModifyWrite, "Whether it reads and writes at once.")
      .property("may_decrease", &AtomicOpInterface::mayDecrease,
                "Whether an integer in memory may be less afterwards.");
  auto signal = InterfaceClass<SignalOpInterface>(classes, "SignalOpInterface", "An op that accesses a signal.")
                    .property("signal", &SignalOpInterface::getSignal, "The signal, or the first of several.");
  auto signalRead =
      InterfaceClass<SignalReadOpInterface>(classes, "SignalReadOpInterface",
                                            "An op that reads signals of this rank, waiting for them or not.", signal,
                                            memoryOrder)
          .property("count", &SignalReadOpInterface::getCount, "The number of consecutive signals; None for one.");
  InterfaceClass<SignalWaitOpInterface>(classes, "SignalWaitOpInterface", "An op that waits for signals of this rank.",
                                        signalRead)
      .property("value", &SignalWaitOpInterface::getValue, "What each signal is compared with.")
      .property("cmp", &SignalWaitOpInterface::getCmp, "The comparison.");
  auto remote =
      InterfaceClass<RemoteAccessOpInterface>(classes, "RemoteAccessOpInterface",
                                              "An op that accesses symmetric memory of another rank.")
          .property("rank", &RemoteAccessOpInterface::getRank, "The rank of the group whose memory is accessed.")
          .property("remote_accesses", &RemoteAccessOpInterface::getRemoteAccesses,
                    "(address, number of bytes) of each; None bytes: one signal.");
  InterfaceClass<SignalUpdateOpInterface>(classes, "SignalUpdateOpInterface", "An op that updates a signal of a rank.",
                                          signal, remote)
      .property("value", &SignalUpdateOpInterface::getValue, "What is stored or added.")
      .property("signal_op", &SignalUpdateOpInterface::getSignalOp, "Whether it is stored or added.");
  InterfaceClass<MemoryTransferOpInterface>(classes, "MemoryTransferOpInterface",
                                            "An op that copies bytes between this rank and another.", remote)
      .property("dst", &MemoryTransferOpInterface::getDst, "The first byte written.")
      .property("src", &MemoryTransferOpInterface::getSrc, "The first byte read.")
      .property("nbytes", &MemoryTransferOpInterface::getNbytes, "The number of bytes.")
      .property("is_nbi", &MemoryTransferOpInterface::isNbi, "Whether it returns before the transfer is complete.")
      .property("is_put", &MemoryTransferOpInterface::isPut, "Whether it writes at the other rank, or reads there.")
      .property("remote", &MemoryTransferOpInterface::getRemote, "The side at the other rank: dst of a put.")
      .property("local", &MemoryTransferOpInterface::getLocal, "The side at this rank: src of a put.");
  InterfaceClass<PacketOpInterface>(classes, "PacketOpInterface", "An op that sends or takes a message of packets.")
      .property("packets", &PacketOpInterface::getPackets, "Where the packets begin.")
      .property("nbytes", &PacketOpInterface::getNbytes, "The number of bytes of the message.")
      .property("epoch", &PacketOpInterface::getEpoch, "The flag that each packet carries.")
      .property("protocol", &PacketOpInterface::getProtocol, "How packets are made.");

  classes.add<ProgramWide>("ProgramWide", "Every thread of the program takes part.", nb::tuple());
  classes.add<Spins>("Spins", "Waits, by spinning, for another program or rank.", nb::tuple());
  classes.add<OrdersMemory>("OrdersMemory", "Orders earlier puts and stores before later ones.", nb::tuple());
  classes.add<CompletesTransfers>("CompletesTransfers", "Earlier puts and gets are complete after it.", nb::tuple());
  classes.add<ThreadDependent>("ThreadDependent", "The result differs between the threads of a program.", nb::tuple());
  classes.add<RequiresMulticast>("RequiresMulticast", "Needs NVLink SHARP.", nb::tuple());
  classes.add<InProgram>("InProgram", "Stands in a ditron.program, the host's side.", nb::tuple());
  classes.add<OpTrait::OneTypedResult<TokenType>::Impl>("ReturnsToken", "Returns a !ditron.token.", nb::tuple());
  m.attr("_ditron_interfaces") = classes.byOperation;
}

//===-- memory effects ---------------------------------------------------===//

static nb::object memoryEffects(PyOperation &self) {
  auto op = dyn_cast<MemoryEffectOpInterface>(self.get());
  if (!op) {
    return nb::none();
  }
  SmallVector<MemoryEffects::EffectInstance> effects;
  op.getEffects(effects);
  nb::list list;
  for (const MemoryEffects::EffectInstance &effect : effects) {
    const char *kind = isa<MemoryEffects::Read>(effect.getEffect())       ? "read"
                       : isa<MemoryEffects::Write>(effect.getEffect())    ? "write"
                       : isa<MemoryEffects::Allocate>(effect.getEffect()) ? "allocate"
                                                                          : "free";
    list.append(nb::make_tuple(kind, toPython(*self.context, effect.getValue())));
  }
  return list;
}

void bindInterfaces(nb::module_ &m) {
  bindEnums(m);
  bindClasses(m);
  nb::borrow<nb::class_<PyOperation>>(m.attr("Operation"))
      .def_prop_ro("memory_effects", &memoryEffects,
                   "(kind, value) of each effect: kind is read, write, allocate or free; the value, the operand\n"
                   "whose memory is meant, is None where the op as a whole is. None for an op that does not say.");
}

} // namespace mlir::ditron::python
