# ditron_unity_group(<target> <group> <file>...): these files of a target are compiled as one (see DITRON_UNITY).
function(ditron_unity_group target group)
  if(DITRON_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_MODE GROUP)
    set_source_files_properties(${ARGN} PROPERTIES UNITY_GROUP ${group})
  endif()
endfunction()
