// Enumerations. The integer values are ABI: the simulator and the device
// libraries take them as arguments, so cases are only ever appended.

#ifndef DITRON_ENUMS_TD
#define DITRON_ENUMS_TD

include "DitronDialect.td"

class Ditron_Enum<string name, string summary, list<EnumCase> cases, string text>
    : I32Enum<name, summary, cases> {
  let cppNamespace = "::mlir::ditron";
  let description = text;
}

// Stand-alone form `#ditron.scope<node>`; operations print the bare keyword.
class Ditron_EnumAttr<EnumInfo info, string mnemonic>
    : EnumAttr<Ditron_Dialect, info, mnemonic> {
  let assemblyFormat = "`<` $value `>`";
}

def Ditron_Scope : Ditron_Enum<"Scope", "who takes part in the memory order", [
    I32EnumCase<"GPU", 0, "gpu">, I32EnumCase<"Node", 1, "node">,
    I32EnumCase<"World", 2, "world">], [{
  How far an atomic access reaches: to every program of this GPU, to every GPU
  and the host of this node (what PTX calls `sys`), or to every rank, also
  through a network card.
}]>;
def Ditron_Semantic : Ditron_Enum<"Semantic", "memory order of an atomic access", [
    I32EnumCase<"Relaxed", 0, "relaxed">, I32EnumCase<"Acquire", 1, "acquire">,
    I32EnumCase<"Release", 2, "release">, I32EnumCase<"AcqRel", 3, "acq_rel">], [{
  The C++ memory orders. What only reads is relaxed or acquire; what only writes
  is relaxed or release; what reads and writes may be any.
}]>;
def Ditron_SignalOp : Ditron_Enum<"SignalOp", "what a notifier does to a signal", [
    I32EnumCase<"Set", 0, "set">, I32EnumCase<"Add", 1, "add">], [{
  `SHMEM_SIGNAL_SET` and `SHMEM_SIGNAL_ADD`: store the value, or add it
  atomically when several notifiers share one signal.
}]>;
def Ditron_Cmp : Ditron_Enum<"Cmp", "comparison of a signal with a value", [
    I32EnumCase<"EQ", 0, "eq">, I32EnumCase<"NE", 1, "ne">,
    I32EnumCase<"GT", 2, "gt">, I32EnumCase<"GE", 3, "ge">,
    I32EnumCase<"LT", 4, "lt">, I32EnumCase<"LE", 5, "le">], [{
  `SHMEM_CMP_*`: signal on the left, value on the right, signed. Signals only
  grow, so `ge` is what a protocol should use.
}]>;
def Ditron_Granularity : Ditron_Enum<"Granularity", "threads that share one transfer", [
    I32EnumCase<"Thread", 0, "thread">, I32EnumCase<"Warp", 1, "warp">,
    I32EnumCase<"Block", 2, "block">], [{
  The threads of the program that carry out one transfer together. It changes
  the speed, never the result: the transfer happens once.
}]>;
def Ditron_Protocol : Ditron_Enum<"Protocol", "how data and its signal travel", [
    I32EnumCase<"Simple", 0, "simple">, I32EnumCase<"LL", 1, "ll">,
    I32EnumCase<"LL128", 2, "ll128">], [{
  `simple` writes data, then a signal. `ll` stores a flag beside each 4 bytes,
  so that data announces itself at half the bandwidth; `ll128` a flag beside
  each 120 bytes, where the link keeps 128-byte stores whole.
}]>;
def Ditron_SwizzleMode : Ditron_Enum<"SwizzleMode", "order in which ranks visit tiles", [
    I32EnumCase<"Gather", 0, "gather">, I32EnumCase<"Scatter", 1, "scatter">], [{
  `gather`: the own shard is there at once, so begin with it, then take the
  others as they arrive. `scatter`: others wait for their part, so begin with
  the farthest node's shards and end with the own one.
}]>;
def Ditron_Team : Ditron_Enum<"Team", "set of ranks an operation speaks of", [
    I32EnumCase<"Group", 0, "group">, I32EnumCase<"Node", 1, "node">,
    I32EnumCase<"World", 2, "world">], [{
  `group` is the group that the kernel was launched in, `node` the ranks of that
  group on this node, `world` all ranks of the job.
}]>;
def Ditron_ReduceOp : Ditron_Enum<"ReduceOp", "how values are combined", [
    I32EnumCase<"Add", 0, "add">, I32EnumCase<"Min", 1, "min">,
    I32EnumCase<"Max", 2, "max">], [{
  Integers are signed under `min` and `max`.
}]>;
def Ditron_ShflMode : Ditron_Enum<"ShflMode", "which lane a value is read from", [
    I32EnumCase<"Idx", 0, "idx">, I32EnumCase<"Up", 1, "up">,
    I32EnumCase<"Down", 2, "down">, I32EnumCase<"Bfly", 3, "bfly">], [{
  With operand `lane` = n, lane l reads lane n (`idx`), l - n (`up`), l + n
  (`down`) or l xor n (`bfly`).
}]>;
def Ditron_MemorySpace : Ditron_Enum<"MemorySpace", "who can reach a buffer", [
    I32EnumCase<"Local", 0, "local">, I32EnumCase<"Symmetric", 1, "symmetric">], [{
  `local` memory is this rank's alone. `symmetric` memory is allocated with the
  same size on every rank, so that a copy or a signal can name a peer's.
}]>;
def Ditron_Cost : Ditron_Enum<"Cost", "what a program spends time on", [
    I32EnumCase<"Dot8", 0, "dot8">, I32EnumCase<"Dot16", 1, "dot16">,
    I32EnumCase<"Dot32", 2, "dot32">, I32EnumCase<"Load", 3, "load">,
    I32EnumCase<"Store", 4, "store">, I32EnumCase<"Vector", 5, "vector">,
    I32EnumCase<"Special", 6, "special">, I32EnumCase<"Loop", 7, "loop">,
    I32EnumCase<"Latency", 8, "latency">, I32EnumCase<"Operand", 9, "operand">], [{
  Multiplications and additions of matrix products, by the bits of an operand
  (`dot8`, `dot16`, `dot32`), bytes that are loaded or stored, and operations on
  elements: additions and the like (`vector`), exponentials and the like
  (`special`). In front of a loop over K: all operations of its products
  (`loop`), nanoseconds that its loads take at least (`latency`), and bytes of
  an operand (`operand`), which programs share that read them at one time.
}]>;

def Ditron_ScopeAttr : Ditron_EnumAttr<Ditron_Scope, "scope">;
def Ditron_SemanticAttr : Ditron_EnumAttr<Ditron_Semantic, "semantic">;
def Ditron_SignalOpAttr : Ditron_EnumAttr<Ditron_SignalOp, "signal_op">;
def Ditron_CmpAttr : Ditron_EnumAttr<Ditron_Cmp, "cmp">;
def Ditron_GranularityAttr : Ditron_EnumAttr<Ditron_Granularity, "granularity">;
def Ditron_ProtocolAttr : Ditron_EnumAttr<Ditron_Protocol, "protocol">;
def Ditron_SwizzleModeAttr : Ditron_EnumAttr<Ditron_SwizzleMode, "swizzle_mode">;
def Ditron_TeamAttr : Ditron_EnumAttr<Ditron_Team, "team">;
def Ditron_ReduceOpAttr : Ditron_EnumAttr<Ditron_ReduceOp, "reduce_op">;
def Ditron_ShflModeAttr : Ditron_EnumAttr<Ditron_ShflMode, "shfl_mode">;
def Ditron_CostAttr : Ditron_EnumAttr<Ditron_Cost, "cost">;
def Ditron_MemorySpaceAttr : Ditron_EnumAttr<Ditron_MemorySpace, "memory_space">;

// Attributes with their defaults, as operations take them. They have no names of their own, so that Python builds them
// by the names of the enumerations' attributes.
class WithDefault<Attr attr, string value> : DefaultValuedAttr<attr, "::mlir::ditron::" # value>;

class SemanticIn<string values, string cases, string why> : ConfinedAttr<Ditron_SemanticAttr, [
    AttrConstraint<CPred<"::llvm::is_contained({" # cases # "}, "
      "::llvm::cast<::mlir::ditron::SemanticAttr>($_self).getValue())">,
      "that is " # values # ", because " # why>]>;
defvar Ditron_LoadSemantic = SemanticIn<"relaxed or acquire",
  "::mlir::ditron::Semantic::Relaxed, ::mlir::ditron::Semantic::Acquire",
  "this operation only reads; release belongs to the store or notify that publishes">;
defvar Ditron_StoreSemantic = SemanticIn<"relaxed or release",
  "::mlir::ditron::Semantic::Relaxed, ::mlir::ditron::Semantic::Release",
  "this operation returns nothing that was read; acquire belongs to the load or wait">;

defvar Ditron_Team_Group = WithDefault<Ditron_TeamAttr, "Team::Group">;
defvar Ditron_Scope_GPU = WithDefault<Ditron_ScopeAttr, "Scope::GPU">;
defvar Ditron_Scope_Node = WithDefault<Ditron_ScopeAttr, "Scope::Node">;
defvar Ditron_Load_Relaxed = WithDefault<Ditron_LoadSemantic, "Semantic::Relaxed">;
defvar Ditron_Load_Acquire = WithDefault<Ditron_LoadSemantic, "Semantic::Acquire">;
defvar Ditron_Store_Relaxed = WithDefault<Ditron_StoreSemantic, "Semantic::Relaxed">;
defvar Ditron_Relaxed = WithDefault<Ditron_SemanticAttr, "Semantic::Relaxed">;
defvar Ditron_Set = WithDefault<Ditron_SignalOpAttr, "SignalOp::Set">;
defvar Ditron_GE = WithDefault<Ditron_CmpAttr, "Cmp::GE">;
defvar Ditron_Block = WithDefault<Ditron_GranularityAttr, "Granularity::Block">;
defvar Ditron_Sum = WithDefault<Ditron_ReduceOpAttr, "ReduceOp::Add">;
defvar Ditron_Shfl_Idx = WithDefault<Ditron_ShflModeAttr, "ShflMode::Idx">;

#endif // DITRON_ENUMS_TD
