// Triton's operations: what they do to memory, and how they are written.
//
// Names, effects and forms are those of Triton 3.6 to 3.9. Attributes that are
// not the same in all of them (`cache` and `evict`, later `cachePolicy`) are
// declared side by side: an operation has those of its version.

#include "dialect/IR/TritonOpTable.h"
#include "dialect/IR/TritonOpModel.h"

#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace mlir::ditron;
using tt::Access;
using tt::Structure;

namespace {

struct Row {
  const char *name;
  Access access;
  tt::OpDeclaration declaration = {};
  Structure structure = Structure::Plain;
};

// Shapes that several operations share.
constexpr tt::OpDeclaration cast = {
    "src", "result", "", "$src attr-dict `:` type($src) `->` type($result)"};
constexpr tt::OpDeclaration unary = {"x", "result: same(x)", "",
                                     "$x attr-dict `:` type($x)"};
constexpr tt::OpDeclaration binary = {"x, y: same(x)", "result: same(x)", "",
                                      "$x `,` $y attr-dict `:` type($x)"};
constexpr tt::OpDeclaration combination = {
    "lhs, rhs: same(lhs)", "result", "",
    "$lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)"};
constexpr tt::OpDeclaration programId = {"", "result", "axis: ProgramIDDim",
                                         "$axis attr-dict `:` type($result)"};
constexpr tt::OpDeclaration regionReturn = {
    "result*", "", "", "$result attr-dict `:` type($result)"};
constexpr tt::OpDeclaration noOperands = {"", "", "", "attr-dict"};

constexpr Row rows[] = {
    // who am I
    {"tt.get_num_programs", Access::None, programId},
    {"tt.get_program_id", Access::None, programId},
    // pointers and shapes
    {"tt.addptr",
     Access::None,
     {"ptr: same(result), offset", "result", "",
      "$ptr `,` $offset attr-dict `:` type($result) `,` type($offset)"}},
    {"tt.advance",
     Access::None,
     {"ptr: same(result), offsets*: i32", "result", "",
      "$ptr `,` `[` $offsets `]` attr-dict `:` pointer-type($result)"}},
    {"tt.bitcast", Access::None, cast},
    {"tt.broadcast", Access::None, cast},
    {"tt.cat", Access::None, combination},
    {"tt.expand_dims",
     Access::None,
     {"src", "result", "axis",
      "$src attr-dict `:` type($src) `->` type($result)"}},
    {"tt.gather",
     Access::None,
     {"src, indices", "result", "axis, efficient_layout",
      "$src `[` $indices `]` attr-dict `:` functional-type(operands, "
      "results)"}},
    {"tt.int_to_ptr", Access::None, cast},
    {"tt.join", Access::None, combination},
    {"tt.make_range",
     Access::None,
     {"", "result", "start, end", "attr-dict `:` type($result)"}},
    {"tt.make_tensor_descriptor",
     Access::None,
     {"base, shape*: i32, strides*: i64", "result", "padding = 1",
      "$base `,` `[` $shape `]` `,` `[` $strides `]` attr-dict `:` "
      "pointer-type($base) `,` descriptor-type($result)"}},
    {"tt.make_tensor_ptr",
     Access::None,
     {"base: element_pointer(result), shape*: i64, strides*: i64, offsets*: "
      "i32",
      "result", "order",
      "$base `,` `[` $shape `]` `,` `[` $strides `]` `,` `[` $offsets `]` "
      "attr-dict `:` pointer-type($result)"}},
    {"tt.ptr_to_int", Access::None, cast},
    {"tt.reshape",
     Access::None,
     {"src", "result", "allow_reorder: unit, efficient_layout: unit",
      "$src (`allow_reorder` $allow_reorder^)? "
      "(`efficient_layout` $efficient_layout^)? attr-dict `:` type($src) `->` "
      "type($result)"}},
    {"tt.splat", Access::None, cast},
    {"tt.split",
     Access::None,
     {"src", "outLHS, outRHS: same(outLHS)", "",
      "$src attr-dict `:` type($src) `->` type($outLHS)"}},
    {"tt.trans",
     Access::None,
     {"src", "result", "order",
      "$src attr-dict `:` type($src) `->` type($result)"}},
    {"tt.unsplat",
     Access::None,
     {"src", "result: element(src)", "", "$src attr-dict `:` type($src)"}},
    // arithmetic
    {"tt.approx_divf", Access::None, binary},
    {"tt.clampf",
     Access::None,
     {"x, min: same(x), max: same(x)", "result: same(x)",
      "propagateNan: PropagateNan",
      "$x `,` $min `,` $max `,` `propagateNan` `=` $propagateNan attr-dict "
      "`:` type($x)"}},
    {"tt.dot",
     Access::None,
     {"a, b, c: same(d)", "d",
      "inputPrecision: InputPrecision = ieee, maxNumImpreciseAcc = 0",
      "$a `,` $b `,` $c (`,` `inputPrecision` `=` $inputPrecision^)? attr-dict "
      "`:` type($a) `*` type($b) `->` type($d)"}},
    {"tt.dot_scaled",
     Access::None,
     {"a, b, c: same(d), a_scale?, b_scale?", "d",
      "a_elem_type: ScaleDotElemType, b_elem_type: ScaleDotElemType, fastMath, "
      "lhs_k_pack = true, rhs_k_pack = true, operandSegmentSizes",
      "$a (`scale` $a_scale^)? `,` $b (`scale` $b_scale^)? `,` $c `lhs` `=` "
      "$a_elem_type `rhs` `=` $b_elem_type attr-dict `:` type($a) "
      "(`,` type($a_scale)^)? `*` type($b) (`,` type($b_scale)^)? `->` "
      "type($d)"}},
    {"tt.fp_to_fp",
     Access::None,
     {"src", "result", "rounding: RoundingMode",
      "$src attr-dict (`,` `rounding` `=` $rounding^)? `:` type($src) `->` "
      "type($result)"}},
    {"tt.histogram",
     Access::None,
     {"src, mask?: mask(src)", "result", "",
      "$src (`,` $mask^)? attr-dict `:` type($src) `->` type($result)"}},
    {"tt.mulhiui", Access::None, binary},
    {"tt.precise_divf", Access::None, binary},
    {"tt.precise_sqrt", Access::None, unary},
    {"tt.reduce", Access::None},
    {"tt.scan", Access::None},
    // memory
    {"tt.atomic_cas",
     Access::ReadWrite,
     {"ptr, cmp, val", "result", "sem: MemSemantic, scope: MemSyncScope",
      "$sem `,` $scope `,` $ptr `,` $cmp `,` $val attr-dict `:` "
      "functional-type(operands, results)"}},
    {"tt.atomic_load",
     Access::ReadWrite,
     {"ptr, mask?", "result", "sem: MemSemantic, scope: MemSyncScope",
      "$sem `,` $scope `,` $ptr (`,` $mask^)? attr-dict `:` "
      "functional-type(operands, results)"}},
    {"tt.atomic_poll",
     Access::ReadWrite,
     {"ptr, expected, timeout?: i64", "result",
      "sem: MemSemantic, scope: MemSyncScope",
      "$sem `,` $scope `,` $ptr `,` $expected (`timeout` $timeout^)? attr-dict "
      "`:` type($ptr) `,` type($expected) `->` type($result)"}},
    {"tt.atomic_rmw",
     Access::ReadWrite,
     {"ptr, val, mask?", "result",
      "atomic_rmw_op: RMWOp, sem: MemSemantic, scope: MemSyncScope",
      "$atomic_rmw_op `,` $sem `,` $scope `,` $ptr `,` $val (`,` $mask^)? "
      "attr-dict `:` functional-type(operands, results)"}},
    {"tt.atomic_store",
     Access::ReadWrite,
     {"ptr, value: pointee(ptr), mask?: mask(ptr)", "",
      "sem: MemSemantic, scope: MemSyncScope",
      "$sem `,` $scope `,` $ptr `,` $value (`,` $mask^)? attr-dict `:` "
      "type($ptr)"}},
    {"tt.descriptor_gather",
     Access::Read,
     {"desc, x_offsets, y_offset", "result", "",
      "$desc `[` $x_offsets `,` $y_offset `]` attr-dict `:` "
      "functional-type(operands, results)"}},
    {"tt.descriptor_load",
     Access::Read,
     {"desc, indices*: i32", "result",
      "cache: CacheModifier = none, evict: EvictionPolicy = evict_normal, "
      "cachePolicy",
      "$desc `[` $indices `]` (`cacheModifier` `=` $cache^)? "
      "(`evictionPolicy` `=` $evict^)? attr-dict `:` type($desc) `->` "
      "type($result)"}},
    {"tt.descriptor_reduce",
     Access::ReadWrite,
     {"desc, src, indices*: i32", "", "kind: DescriptorReduceKind",
      "$kind `,` $desc `[` $indices `]` `,` $src attr-dict `:` type($desc) `,` "
      "type($src)"}},
    {"tt.descriptor_scatter",
     Access::Write,
     {"desc, x_offsets, y_offset, src", "", "",
      "$desc `[` $x_offsets `,` $y_offset `]` `,` $src attr-dict `:` "
      "type(operands)"}},
    {"tt.descriptor_store",
     Access::Write,
     {"desc, src, indices*: i32", "", "",
      "$desc `[` $indices `]` `,` $src attr-dict `:` type($desc) `,` "
      "type($src)"}},
    {"tt.load",
     Access::Load,
     {"ptr, mask?: mask(ptr), other?: pointee(ptr)", "result: pointee(ptr)",
      "boundaryCheck = [], padding, cache: CacheModifier = none, "
      "evict: EvictionPolicy = evict_normal, isVolatile = false, cachePolicy, "
      "operandSegmentSizes",
      "$ptr (`,` $mask^)? (`,` $other^)? (`cacheModifier` `=` $cache^)? "
      "(`evictionPolicy` `=` $evict^)? attr-dict `:` type($ptr)"}},
    {"tt.store",
     Access::Write,
     {"ptr, value: pointee(ptr), mask?: mask(ptr)", "",
      "boundaryCheck = [], cache: CacheModifier = none, "
      "evict: EvictionPolicy = evict_normal, cachePolicy",
      "$ptr `,` $value (`,` $mask^)? (`cacheModifier` `=` $cache^)? "
      "(`evictionPolicy` `=` $evict^)? attr-dict `:` type($ptr)"}},
    // calls and what speaks to the user
    {"tt.assert",
     Access::Write,
     {"condition", "", "message",
      "$condition `,` $message attr-dict `:` type($condition)"}},
    {"tt.call",
     Access::Unknown,
     {"operands*", "results*", "callee, arg_attrs = [], res_attrs = []",
      "$callee `(` $operands `)` attr-dict `:` "
      "functional-type(operands, results)"}},
    {"tt.elementwise_inline_asm",
     Access::Call,
     {"args*", "result*", "asm_string, constraints, pure, packed_element",
      "$asm_string attr-dict ($args^ `:` type($args))? `->` type($result)"}},
    {"tt.extern_elementwise",
     Access::Call,
     {"srcs*", "result", "libname, libpath, symbol, pure",
      "$srcs attr-dict `:` functional-type(operands, results)"}},
    {"tt.print",
     Access::Write,
     {"args*", "", "prefix, hex, isSigned",
      "$prefix attr-dict (`:` $args^ `:` type($args))?"}},
    // structure
    {"tt.func",
     Access::Unknown,
     {"", "",
      "sym_name, function_type, sym_visibility, arg_attrs = [], "
      "res_attrs = []"},
     Structure::Function},
    {"tt.grid_dependency_launch_dependents", Access::Unknown, noOperands},
    {"tt.grid_dependency_wait", Access::Unknown, noOperands},
    {"tt.map_elementwise.return", Access::None, regionReturn,
     Structure::Terminator},
    {"tt.reduce.return", Access::None, regionReturn, Structure::Terminator},
    {"tt.return",
     Access::None,
     {"srcs*", "", "", "attr-dict ($srcs^ `:` type($srcs))?"},
     Structure::Terminator},
    {"tt.scan.return", Access::None, regionReturn, Structure::Terminator},
};

const llvm::StringMap<tt::TritonOp> &getTable() {
  static const auto table = [] {
    llvm::StringMap<tt::TritonOp> ops;
    for (const Row &row : rows) {
      ops.try_emplace(row.name, tt::TritonOp{row.access, row.structure,
                                             tt::OpFormat(row.declaration)});
    }
    return ops;
  }();
  return table;
}

} // namespace

const tt::TritonOp *tt::lookUpTritonOp(StringRef name) {
  auto found = getTable().find(name);
  return found == getTable().end() ? nullptr : &found->second;
}

void tt::registerTritonOps(Dialect &dialect, TypeIDAllocator &ids) {
  for (const auto &entry : getTable()) {
    RegisteredOperationName::insert(
        std::make_unique<TritonOpModel>(entry.getKey(), &dialect,
                                        ids.allocate(), entry.getValue()),
        /*attrNames=*/{});
  }
}
