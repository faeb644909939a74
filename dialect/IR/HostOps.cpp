// Host programs and their streams: text, verifiers.

#include "dialect/IR/Checks.h"

#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace mlir::ditron;

//===----------------------------------------------------------------------===//
// ditron.program
//===----------------------------------------------------------------------===//

LogicalResult ditron::verifyInProgram(Operation *op) {
  if (op->getParentOfType<ProgramOp>()) {
    return success();
  }
  return op->emitOpError(
      "expected to be in a ditron.program: it is an operation of the host");
}

ParseResult ProgramOp::parse(OpAsmParser &parser, OperationState &result) {
  Builder &builder = parser.getBuilder();
  StringAttr name;
  SmallVector<OpAsmParser::Argument> arguments;
  if (parser.parseSymbolName(name, getSymNameAttrName(result.name),
                             result.attributes) ||
      parser.parseArgumentList(arguments, AsmParser::Delimiter::Paren,
                               /*allowType=*/true) ||
      parser.parseOptionalAttrDictWithKeyword(result.attributes)) {
    return failure();
  }
  SmallVector<Attribute> names;
  for (const OpAsmParser::Argument &argument : arguments) {
    names.push_back(
        builder.getStringAttr(argument.ssaName.name.drop_front())); // the `%`
  }
  result.addAttribute(getArgNamesAttrName(result.name),
                      builder.getArrayAttr(names));
  Region *body = result.addRegion();
  if (parser.parseRegion(*body, arguments)) {
    return failure();
  }
  if (body->empty()) {
    body->emplaceBlock();
  }
  return success();
}

void ProgramOp::print(OpAsmPrinter &printer) {
  printer << ' ';
  printer.printSymbolName(getSymName());
  printer << '(';
  llvm::interleaveComma(
      getBody().getArguments(), printer,
      [&](BlockArgument argument) { printer.printRegionArgument(argument); });
  printer << ')';
  printer.printOptionalAttrDictWithKeyword(
      (*this)->getAttrs(), {getSymNameAttrName(), getArgNamesAttrName()});
  printer << ' ';
  printer.printRegion(getBody(), /*printEntryBlockArgs=*/false,
                      /*printBlockTerminators=*/true);
}

void ProgramOp::getAsmBlockArgumentNames(Region &region,
                                         OpAsmSetValueNameFn setName) {
  for (auto [argument, name] :
       llvm::zip(region.getArguments(), getArgNames())) {
    setName(argument, cast<StringAttr>(name).getValue());
  }
}

LogicalResult ProgramOp::verify() {
  Block::BlockArgListType arguments = getBody().getArguments();
  if (arguments.size() != getArgNames().size()) {
    return emitOpError("expected a name for each of its ")
           << arguments.size() << " arguments, got " << getArgNames().size();
  }
  llvm::StringSet<> seen;
  for (auto [argument, attribute] : llvm::zip(arguments, getArgNames())) {
    StringRef name = cast<StringAttr>(attribute).getValue();
    if (name.empty() || !seen.insert(name).second) {
      return emitOpError("expected names of arguments that differ and are not "
                         "empty, got '")
             << name << "'";
    }
    Type type = argument.getType();
    if (!isa<BufferType>(type) && !type.isSignlessIntOrFloat()) {
      return emitOpError("expected argument '")
             << name << "' to be a buffer, an integer or a float, got " << type;
    }
  }
  return success();
}

/// Whether an operation of a kernel got into a program.
static bool isOfKernels(Operation *op) {
  if (isa<RankOp, NumRanksOp, LocalRankOp, NumLocalRanksOp, NodeOp>(op) ||
      op->hasTrait<InProgram>()) {
    return false;
  }
  StringRef dialect = op->getName().getDialectNamespace();
  return dialect == "ditron" || dialect == "tt";
}

LogicalResult ProgramOp::verifyRegions() {
  llvm::StringMap<Operation *> labels;
  WalkResult result = getBody().walk([&](Operation *op) {
    if (isOfKernels(op)) {
      op->emitOpError("is an operation of kernels and cannot stand in a "
                      "ditron.program; put it in a kernel and launch that");
      return WalkResult::interrupt();
    }
    if (auto alloc = dyn_cast<AllocOp>(op)) {
      auto [it, fresh] = labels.insert({alloc.getLabel(), op});
      if (!fresh) {
        InFlightDiagnostic error =
            alloc.emitOpError("expected a label of its own, got \"")
            << alloc.getLabel() << "\" again";
        error.attachNote(it->second->getLoc()) << "first here";
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

//===----------------------------------------------------------------------===//
// ditron.stream
//===----------------------------------------------------------------------===//

void StreamOp::getAsmResultNames(OpAsmSetValueNameFn setName) {
  setName(getResult(), getLabel().empty() ? "main" : getLabel());
}

LogicalResult StreamOp::verify() {
  if (getLabel().empty() && getIndex()) {
    return emitOpError("expected a label for streams that have an index: the "
                       "program is called on one stream");
  }
  return success();
}
