# ditron_python_module(<target> <package>): installs a nanobind module into a package, or, in place, puts it there.
function(ditron_python_module target package)
  install(TARGETS ${target} LIBRARY DESTINATION ${package})
  if(DITRON_IN_PLACE)
    set_target_properties(${target} PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_SOURCE_DIR}/${package})
  endif()
endfunction()

# ditron_op_classes(<dialect> <td> [ENUMS <td>]): typed op classes for ditron_compiler.ir.dialects, from the ODS.
function(ditron_op_classes dialect td)
  cmake_parse_arguments(PARSE_ARGV 2 arg "" "ENUMS" "")
  set(package ditron_compiler/ir/dialects)
  if(DITRON_IN_PLACE)
    set(out ${PROJECT_SOURCE_DIR}/${package})
  else()
    set(out ${PROJECT_BINARY_DIR}/${package})
  endif()
  _ditron_generate(${out}/_${dialect}_ops_gen.py ${td} -gen-python-op-bindings -bind-dialect=${dialect})
  set(files ${out}/_${dialect}_ops_gen.py)
  if(arg_ENUMS)
    _ditron_generate(${out}/_${dialect}_enum_gen.py ${arg_ENUMS} -gen-python-enum-bindings -bind-dialect=${dialect})
    list(APPEND files ${out}/_${dialect}_enum_gen.py)
  endif()
  add_custom_target(op_classes_${dialect} ALL DEPENDS ${files})
  install(FILES ${files} DESTINATION ${package})
endfunction()

function(_ditron_generate output td)
  # Two things differ from upstream: `dialects` is inside `ir` and not beside it; and a typed class is the operation
  # itself, so accessors may not hide `name` and `block`.
  set(includes -I ${PROJECT_SOURCE_DIR} -I ${PROJECT_SOURCE_DIR}/dialect/IR)
  foreach(directory IN LISTS MLIR_INCLUDE_DIRS)
    list(APPEND includes -I ${directory})
  endforeach()
  get_filename_component(stem ${output} NAME)
  set(raw ${CMAKE_CURRENT_BINARY_DIR}/${stem}.raw)
  add_custom_command(OUTPUT ${output}
    COMMAND ${MLIR_TABLEGEN_EXE} ${ARGN} ${includes} ${td} -o ${raw} -d ${raw}.d
    COMMAND sed -e "s/^from \\.\\.ir import/from .. import/"
                -e "s/^  def \\(name\\|block\\)(self/  def \\1_(self/"
                -e "s/^  @\\(name\\|block\\)\\.\\(setter\\|deleter\\)/  @\\1_.\\2/" ${raw} > ${output}
    # In development bytecode is made here: it also serves where Python is told not to write any.
    COMMAND ${Python_EXECUTABLE} -m py_compile ${output}
    # tblgen's dependency file names its own output; ninja wants ours.
    COMMAND sed -i -e "s|^[^:]*:|${output}:|" ${raw}.d
    DEPENDS ${td} ${MLIR_TABLEGEN_EXE} DEPFILE ${raw}.d VERBATIM
    COMMENT "op classes ${stem}")
endfunction()
