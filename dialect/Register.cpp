#include "dialect/Register.h"

#ifdef DITRON_HAS_DIALECT
#include "dialect/IR/Ditron.h"
#endif

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/Conversion/AffineToStandard/AffineToStandard.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/FuncToLLVM/ConvertFuncToLLVMPass.h"
#include "mlir/Conversion/MathToLLVM/MathToLLVM.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Conversion/MemRefToLLVM/MemRefToLLVM.h"
#include "mlir/Conversion/ReconcileUnrealizedCasts/ReconcileUnrealizedCasts.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Conversion/UBToLLVM/UBToLLVM.h"
#include "mlir/Dialect/Affine/Transforms/Passes.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/Func/Extensions/InlinerExtension.h"
#include "mlir/Dialect/LLVMIR/LLVMAttrs.h"
#include "mlir/Dialect/MemRef/Transforms/Passes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/DialectImplementation.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Support/ThreadLocalCache.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "mlir/Transforms/Passes.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"

// The dialects' classes alone: the headers that also declare their operations
// take 20 seconds to compile.
#include "mlir/Dialect/Affine/IR/AffineOpsDialect.h.inc"
#include "mlir/Dialect/Arith/IR/ArithOpsDialect.h.inc"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOpsDialect.h.inc"
#include "mlir/Dialect/Func/IR/FuncOpsDialect.h.inc"
#include "mlir/Dialect/LLVMIR/LLVMOpsDialect.h.inc"
#include "mlir/Dialect/Math/IR/MathOpsDialect.h.inc"
#include "mlir/Dialect/MemRef/IR/MemRefOpsDialect.h.inc"
#include "mlir/Dialect/SCF/IR/SCFOpsDialect.h.inc"
#include "mlir/Dialect/Tensor/IR/TensorOpsDialect.h.inc"
#include "mlir/Dialect/UB/IR/UBOpsDialect.h.inc"
#include "mlir/Dialect/Vector/IR/VectorDialect.h.inc"

using namespace mlir;

void ditron::registerAllDialects(DialectRegistry &registry) {
  registry
      .insert<affine::AffineDialect, arith::ArithDialect,
              cf::ControlFlowDialect, func::FuncDialect, LLVM::LLVMDialect,
              math::MathDialect, memref::MemRefDialect, scf::SCFDialect,
              tensor::TensorDialect, ub::UBDialect, vector::VectorDialect>();
#ifdef DITRON_HAS_DIALECT
  registerDitronDialects(registry);
#endif
  func::registerInlinerExtension(registry);
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
}

void ditron::registerAllPasses() {
  static const bool once = [] {
    // Clean-up. registerTransformsPasses also brings print-ir,
    // location-snapshot and the like.
    registerTransformsPasses();
    registerPass([] { return arith::createArithExpandOpsPass(); });
    registerPass([] { return memref::createExpandStridedMetadataPass(); });
    registerPass([] { return memref::createFoldMemRefAliasOpsPass(); });
    // The way down to the LLVM dialect.
    registerPass([] { return createLowerAffinePass(); });
    registerPass([] { return createSCFToControlFlowPass(); });
    registerPass([] { return createConvertMathToLLVMPass(); });
    registerPass([] { return createConvertMathToLibmPass(); });
    registerPass([] { return createArithToLLVMConversionPass(); });
    registerPass([] { return createFinalizeMemRefToLLVMConversionPass(); });
    registerPass([] { return createConvertFuncToLLVMPass(); });
    registerPass([] { return createConvertControlFlowToLLVMPass(); });
    registerPass([] { return createUBToLLVMConversionPass(); });
    registerPass([] { return createReconcileUnrealizedCastsPass(); });
    return true;
  }();
  (void)once;
}

LogicalResult ditron::translateToLLVMIR(Operation *module, std::string &text) {
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::Module> llvmModule =
      translateModuleToLLVMIR(module, llvmContext);
  if (!llvmModule) {
    return failure();
  }
  llvm::raw_string_ostream stream(text);
  llvmModule->print(stream, /*AAW=*/nullptr);
  return success();
}
