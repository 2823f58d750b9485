# regroup_find_plain_library(<package> <target> <header> <library> <without>): finds a library that comes without a CMake
# package. It defines an imported target. <without> says what regroup does not do without it.
include(FindPackageHandleStandardArgs)
macro(regroup_find_plain_library package target header library without)
  find_path(${package}_INCLUDE_DIR ${header})
  find_library(${package}_LIBRARY ${library})
  mark_as_advanced(${package}_INCLUDE_DIR ${package}_LIBRARY)
  find_package_handle_standard_args(${package}
    REQUIRED_VARS ${package}_LIBRARY ${package}_INCLUDE_DIR
    REASON_FAILURE_MESSAGE "${without}, until scripts/setup has installed it")
  if(${package}_FOUND AND NOT TARGET ${target})
    add_library(${target} UNKNOWN IMPORTED)
    set_target_properties(${target} PROPERTIES
      IMPORTED_LOCATION "${${package}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${${package}_INCLUDE_DIR}")
  endif()
endmacro()
