// How a registered operation behaves of which only the name is known.

#ifndef DITRON_TRITON_OP_MODEL_H
#define DITRON_TRITON_OP_MODEL_H

#include "dialect/IR/TritonOpTable.h"

namespace mlir::ditron::tt {

/// Model of an operation without a C++ class: any operands, results, regions
/// and properties; it prints in the form of the table where that says all, in
/// generic form otherwise. Properties are one dictionary, without those that
/// have their default value. Unlike an unknown operation it is known not to be
/// a terminator, which is what lets it be erased when unused.
class TritonOpModel final : public OperationName::Impl {
public:
  /// `op` must outlive the model.
  TritonOpModel(StringRef name, Dialect *dialect, TypeID id,
                const TritonOp &op);

  LogicalResult foldHook(Operation *, ArrayRef<Attribute>,
                         SmallVectorImpl<OpFoldResult> &) override;
  void getCanonicalizationPatterns(RewritePatternSet &, MLIRContext *) override;
  bool hasTrait(TypeID trait) override;
  OperationName::ParseAssemblyFn getParseAssemblyFn() override;
  void populateDefaultAttrs(const OperationName &, NamedAttrList &) override;
  void printAssembly(Operation *, OpAsmPrinter &, StringRef) override;
  LogicalResult verifyInvariants(Operation *) override;
  LogicalResult verifyRegionInvariants(Operation *) override;

  std::optional<Attribute> getInherentAttr(Operation *op,
                                           StringRef name) override;
  void setInherentAttr(Operation *op, StringAttr name,
                       Attribute value) override;
  void populateInherentAttrs(Operation *op, NamedAttrList &attrs) override;
  LogicalResult
  verifyInherentAttrs(OperationName, NamedAttrList &,
                      function_ref<InFlightDiagnostic()>) override;
  int getOpPropertyByteSize() override;
  void initProperties(OperationName, OpaqueProperties storage,
                      OpaqueProperties init) override;
  void deleteProperties(OpaqueProperties) override;
  void populateDefaultProperties(OperationName, OpaqueProperties) override;
  LogicalResult
      setPropertiesFromAttr(OperationName, OpaqueProperties, Attribute,
                            function_ref<InFlightDiagnostic()>) override;
  Attribute getPropertiesAsAttr(Operation *) override;
  void copyProperties(OpaqueProperties to, OpaqueProperties from) override;
  bool compareProperties(OpaqueProperties, OpaqueProperties) override;
  llvm::hash_code hashProperties(OpaqueProperties) override;

private:
  const TritonOp &op;
};

} // namespace mlir::ditron::tt

#endif // DITRON_TRITON_OP_MODEL_H
