// What passes, analyses and lowerings ask of an operation, whichever it is:
// interfaces where an operation has something to tell, traits where it does not.

#ifndef DITRON_INTERFACES_TD
#define DITRON_INTERFACES_TD

include "mlir/IR/Interfaces.td"
include "mlir/IR/OpBase.td"

//===-- traits -----------------------------------------------------------===//

class Ditron_OpTrait<string name, string text> : NativeOpTrait<name> {
  let cppNamespace = "::mlir::ditron";
  string summary = text;
}

def Ditron_ProgramWide : Ditron_OpTrait<"ProgramWide",
  "every thread of the program takes part, as in a barrier: it must not stand in divergent control flow">;
def Ditron_Spins : Ditron_OpTrait<"Spins",
  "waits, by spinning, for what another program or rank does">;
def Ditron_OrdersMemory : Ditron_OpTrait<"OrdersMemory",
  "orders earlier puts and stores of the program before later ones, for each rank separately">;
def Ditron_CompletesTransfers : Ditron_OpTrait<"CompletesTransfers",
  "on return earlier puts and gets of the program are complete, non-blocking ones too">;
def Ditron_ThreadDependent : Ditron_OpTrait<"ThreadDependent",
  "the result differs between the threads of a program">;
def Ditron_RequiresMulticast : Ditron_OpTrait<"RequiresMulticast",
  "needs links that multicast and reduce: NVLink SHARP">;
def Ditron_InProgram : Ditron_OpTrait<"InProgram",
  "stands in a ditron.program, the host's side">;

//===-- interfaces -------------------------------------------------------===//

class Ditron_OpInterface<string name, string text, list<Interface> bases = []>
    : OpInterface<name, bases> {
  let cppNamespace = "::mlir::ditron";
  let description = text;
}

def Ditron_MemoryOrderOpInterface : Ditron_OpInterface<"MemoryOrderOpInterface",
    "An operation with a memory order of its own, and the scope that the order reaches."> {
  let methods = [
    InterfaceMethod<"How far the order reaches.", "::mlir::ditron::Scope", "getScope",
      (ins), "", "return ::mlir::ditron::Scope::World;">,
    InterfaceMethod<"The memory order.", "::mlir::ditron::Semantic", "getSemantic">,
    InterfaceMethod<"Whether later accesses of the program may rely on what this one saw.", "bool", "acquires",
      (ins), "return ::mlir::ditron::isAcquire($_op.getSemantic());">,
    InterfaceMethod<"Whether this publishes what the program stored before.", "bool", "releases",
      (ins), "return ::mlir::ditron::isRelease($_op.getSemantic());">,
  ];
}

def Ditron_AtomicOpInterface : Ditron_OpInterface<"AtomicOpInterface",
    "An atomic access, to one address or to each of a tensor of them.",
    [Ditron_MemoryOrderOpInterface]> {
  let methods = [
    InterfaceMethod<"The address, or a tensor of them.", "::mlir::Value", "getPtr">,
    InterfaceMethod<"Whether it reads memory, other than to update it.", "bool", "readsMemory",
      (ins), "return $_op->getNumResults() != 0;">,
    InterfaceMethod<"Whether it writes memory.", "bool", "writesMemory",
      (ins), "", "return true;">,
    InterfaceMethod<"Whether it reads and writes in one step.", "bool", "isReadModifyWrite",
      (ins), "", "return true;">,
    InterfaceMethod<"Whether a signed integer in memory may be less afterwards.", "bool", "mayDecrease",
      (ins), "", "return $_op.writesMemory();">,
  ];
}

def Ditron_SignalOpInterface : Ditron_OpInterface<"SignalOpInterface",
    "An operation that accesses a signal."> {
  let methods = [
    InterfaceMethod<"The signal, or the first of several.", "::mlir::Value", "getSignal">,
  ];
}

def Ditron_SignalReadOpInterface : Ditron_OpInterface<"SignalReadOpInterface",
    "An operation that reads signals of this rank, waiting for them or not.",
    [Ditron_SignalOpInterface, Ditron_MemoryOrderOpInterface]> {
  let methods = [
    InterfaceMethod<"The number of consecutive signals; null for one.", "::mlir::Value", "getCount",
      (ins), "", "return {};">,
  ];
}

def Ditron_SignalWaitOpInterface : Ditron_OpInterface<"SignalWaitOpInterface",
    "An operation that waits until signals of this rank satisfy a comparison.",
    [Ditron_SignalReadOpInterface]> {
  let methods = [
    InterfaceMethod<"What each signal is compared with.", "::mlir::Value", "getValue">,
    InterfaceMethod<"The comparison.", "::mlir::ditron::Cmp", "getCmp">,
  ];
}

def Ditron_RemoteAccessOpInterface : Ditron_OpInterface<"RemoteAccessOpInterface", [{
    An operation that accesses symmetric memory of another rank, which this
    rank's own addresses name.
  }]> {
  let methods = [
    InterfaceMethod<"The rank of the group whose memory is accessed.", "::mlir::Value", "getRank">,
    InterfaceMethod<"The addresses there, each with the number of bytes (null: one signal).",
      "::llvm::SmallVector<::mlir::ditron::RemoteAccess>", "getRemoteAccesses">,
  ];
}

def Ditron_SignalUpdateOpInterface : Ditron_OpInterface<"SignalUpdateOpInterface",
    "An operation that updates a signal of a rank.",
    [Ditron_SignalOpInterface, Ditron_RemoteAccessOpInterface]> {
  let methods = [
    InterfaceMethod<"What is stored or added.", "::mlir::Value", "getValue">,
    InterfaceMethod<"Whether the value is stored or added.", "::mlir::ditron::SignalOp", "getSignalOp",
      (ins), "return $_op.getOp();">,
  ];
}

def Ditron_MemoryTransferOpInterface : Ditron_OpInterface<"MemoryTransferOpInterface",
    "An operation that copies contiguous bytes between this rank and another.",
    [Ditron_RemoteAccessOpInterface]> {
  let methods = [
    InterfaceMethod<"The first byte written.", "::mlir::Value", "getDst">,
    InterfaceMethod<"The first byte read.", "::mlir::Value", "getSrc">,
    InterfaceMethod<"The number of bytes.", "::mlir::Value", "getNbytes">,
    InterfaceMethod<"Whether it returns before the transfer is complete.", "bool", "isNbi",
      (ins), "return $_op.getNbi();">,
    InterfaceMethod<"Whether it writes at the other rank; if not, it reads there.", "bool", "isPut",
      (ins), "", "return true;">,
    InterfaceMethod<"The side at the other rank, by its address here: the destination of a put.",
      "::mlir::Value", "getRemote", (ins), [{
        if ($_op.isPut()) {
          return $_op.getDst();
        }
        return $_op.getSrc();
      }]>,
    InterfaceMethod<"The side at this rank.", "::mlir::Value", "getLocal",
      (ins), [{
        if ($_op.isPut()) {
          return $_op.getSrc();
        }
        return $_op.getDst();
      }]>,
  ];
}

def Ditron_PacketOpInterface : Ditron_OpInterface<"PacketOpInterface",
    "An operation that sends or takes a message of packets, each of which carries the epoch as its flag."> {
  let methods = [
    InterfaceMethod<"Where the packets begin.", "::mlir::Value", "getPackets">,
    InterfaceMethod<"The number of bytes of the message, unpacked.", "::mlir::Value", "getNbytes">,
    InterfaceMethod<"The flag.", "::mlir::Value", "getEpoch">,
    InterfaceMethod<"How packets are made.", "::mlir::ditron::Protocol", "getProtocol">,
  ];
}

#endif // DITRON_INTERFACES_TD
