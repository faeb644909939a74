# Finds MLIR and gives one target to link to: mlir_for_ditron.
#
# MLIR is linked statically, from the distribution's archives, so that the module needs no LLVM where it is installed.
option(DITRON_SHARED_MLIR "Link the distribution's libMLIR.so instead of the archives (development only)" OFF)

set(ZLIB_USE_STATIC_LIBS ON) # CMake 3.24; earlier ones link libz.so, which every Python has
find_package(MLIR 22.1 REQUIRED CONFIG HINTS /usr/lib/llvm-22/lib/cmake/mlir)
include(${LLVM_CMAKE_DIR}/TableGen.cmake)
include(${LLVM_CMAKE_DIR}/AddLLVM.cmake)
include(${MLIR_CMAKE_DIR}/AddMLIR.cmake)
message(STATUS "MLIR ${LLVM_PACKAGE_VERSION} in ${MLIR_DIR}")

# mlir_tablegen reads the directory's include path, not a target's.
include_directories(SYSTEM ${LLVM_INCLUDE_DIRS} ${MLIR_INCLUDE_DIRS})

add_library(mlir_for_ditron INTERFACE)
target_compile_features(mlir_for_ditron INTERFACE cxx_std_17)
target_compile_options(mlir_for_ditron INTERFACE -ffunction-sections -fdata-sections -Wno-comment)

if(DITRON_SHARED_MLIR)
  target_link_libraries(mlir_for_ditron INTERFACE MLIR LLVM)
  return()
endif()

# The archives name zstd's shared target; without libzstd-dev a stand-in of the runtime library will do.
# Where there is an archive it is taken: libzstd.so is not on every machine that a wheel meets.
find_library(ZSTD_LIBRARY NAMES libzstd.a zstd libzstd.so.1 REQUIRED)
if(NOT TARGET zstd::libzstd_shared)
  add_library(zstd::libzstd_shared SHARED IMPORTED)
endif()
set_target_properties(zstd::libzstd_shared PROPERTIES
  IMPORTED_LOCATION ${ZSTD_LIBRARY} IMPORTED_LOCATION_RELEASE ${ZSTD_LIBRARY} IMPORTED_LOCATION_NONE ${ZSTD_LIBRARY})

# The distribution's archives ask for libLLVM.so. They must get LLVM's archives instead, or two copies of LLVM
# meet in one process. Replace, do not remove: the order on the link line depends on it.
add_library(llvm_archives INTERFACE)
llvm_map_components_to_libnames(archives
  Analysis AsmParser BitReader BitWriter Core FrontendOpenMP Remarks Support SupportLSP TargetParser TransformUtils)
target_link_libraries(llvm_archives INTERFACE ${archives})
get_property(mlir_libs GLOBAL PROPERTY MLIR_ALL_LIBS)
list(REMOVE_ITEM mlir_libs MLIR)
foreach(lib IN LISTS mlir_libs)
  get_target_property(deps ${lib} INTERFACE_LINK_LIBRARIES)
  if(deps)
    list(TRANSFORM deps REPLACE "^LLVM$" "llvm_archives")
    set_property(TARGET ${lib} PROPERTY INTERFACE_LINK_LIBRARIES "${deps}")
  endif()
endforeach()

target_link_libraries(mlir_for_ditron INTERFACE
  # dialects
  MLIRAffineDialect MLIRArithDialect MLIRControlFlowDialect MLIRFuncDialect MLIRLLVMDialect MLIRMathDialect
  MLIRMemRefDialect MLIRSCFDialect MLIRTensorDialect MLIRUBDialect MLIRVectorDialect
  # passes
  MLIRAffineToStandard MLIRArithToLLVM MLIRArithTransforms MLIRControlFlowToLLVM MLIRFuncInlinerExtension
  MLIRFuncToLLVM MLIRMathToLLVM MLIRMathToLibm MLIRMemRefToLLVM MLIRMemRefTransforms
  MLIRReconcileUnrealizedCasts MLIRSCFToControlFlow MLIRTransforms MLIRUBToLLVM
  # tools
  MLIROptLib MLIRLspServerLib MLIRBuiltinToLLVMIRTranslation MLIRLLVMToLLVMIRTranslation MLIRTargetLLVMIRExport)
target_link_options(mlir_for_ditron INTERFACE
  LINKER:--as-needed LINKER:--gc-sections LINKER:--exclude-libs,ALL $<$<CONFIG:Release>:LINKER:-s>)
