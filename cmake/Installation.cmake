# Install rules, and the packages that cpack makes: a relocatable .tar.gz and a .deb. The component "programs" is what
# users of the program need: cmake/wheel packs it.

include(PublicHeaders)

# The packages include libraries that distributions may lack: libfmt and those that read tokenizers and compressed text, in lib/regroup.
# LibTorch is found through a link from lib/regroup/torch to the torch/ folder of a wheel, or else where it
# was at build time.
set(REGROUP_PRIVATE_LIBRARIES "${CMAKE_INSTALL_LIBDIR}/regroup")

# Programs are built as they are installed, so that nothing is linked twice. CMake adds by itself only
# those folders of libraries that lie outside this one.
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)
set(CMAKE_INSTALL_RPATH_USE_LINK_PATH ON)
set(CMAKE_INSTALL_RPATH ${LibTorch_LIBRARY_DIRS}
  "${PROJECT_SOURCE_DIR}/.deps/usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}")

# regroup_install_program(<target> <folder>)
function(regroup_install_program target folder)
  file(RELATIVE_PATH up "/prefix/${folder}" "/prefix/${REGROUP_PRIVATE_LIBRARIES}")
  set_target_properties(${target} PROPERTIES
    INSTALL_RPATH "$ORIGIN/${up};$ORIGIN/${up}/torch/lib;${CMAKE_INSTALL_RPATH}")
  install(TARGETS ${target} RUNTIME DESTINATION "${folder}" COMPONENT programs)
endfunction()

# The libraries and their headers, for others to link as regroup::formats and regroup::converter.
function(_regroup_install_libraries)
  include(CMakePackageConfigHelpers)
  set(cmake_folder "${CMAKE_INSTALL_LIBDIR}/cmake/regroup")
  foreach(folder IN ITEMS formats converter)
    set_target_properties(regroup_${folder} PROPERTIES EXPORT_NAME ${folder})
    # A file of targets for each: that of converter names LibTorch, which a user of formats may lack.
    install(TARGETS regroup_${folder} EXPORT regroup_${folder} ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
    install(EXPORT regroup_${folder} NAMESPACE regroup:: FILE regroup_${folder}.cmake DESTINATION "${cmake_folder}")
  endforeach()
  regroup_headers_to_install(headers)
  foreach(header IN LISTS headers)
    cmake_path(GET header PARENT_PATH folder)
    install(FILES "${PROJECT_SOURCE_DIR}/${header}" DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/regroup/${folder}")
  endforeach()
  configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/regroupConfig.cmake.in"
    "${PROJECT_BINARY_DIR}/regroupConfig.cmake" INSTALL_DESTINATION "${cmake_folder}")
  write_basic_package_version_file("${PROJECT_BINARY_DIR}/regroupConfigVersion.cmake"
    COMPATIBILITY SameMinorVersion)
  install(FILES "${PROJECT_BINARY_DIR}/regroupConfig.cmake" "${PROJECT_BINARY_DIR}/regroupConfigVersion.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindLibTorch.cmake" DESTINATION "${cmake_folder}")
endfunction()

function(_regroup_configure_cpack)
  set(CPACK_PACKAGE_NAME regroup)
  set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
  set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Turns multi-head attention checkpoints into grouped-query ones")
  set(CPACK_PACKAGE_VENDOR regroup)
  set(CPACK_PACKAGE_CONTACT "The regroup authors")
  set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
  set(CPACK_GENERATOR TGZ DEB)
  set(CPACK_STRIP_FILES ON)
  set(CPACK_VERBATIM_VARIABLES ON)
  set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/forget_build_folders.cmake")
  # dpkg-shlibdeps finds no package for LibTorch. What else is needed is what it was built with, or newer.
  execute_process(COMMAND getconf GNU_LIBC_VERSION OUTPUT_VARIABLE libc OUTPUT_STRIP_TRAILING_WHITESPACE)
  string(REGEX MATCH "[0-9.]+" libc "${libc}")
  string(REGEX MATCH "^[0-9]+" compiler "${CMAKE_CXX_COMPILER_VERSION}")
  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION science)
  set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= ${libc}), libgcc-s1, libstdc++6")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    string(APPEND CPACK_DEBIAN_PACKAGE_DEPENDS " (>= ${compiler})")
  endif()
  include(CPack)
endfunction()

# _regroup_install_private_library(<file> <name>): under the name that programs ask for, with the terms of its licence
# where Debian's packages have them.
function(_regroup_install_private_library file name)
  file(REAL_PATH "${file}" file)
  install(FILES "${file}" DESTINATION "${REGROUP_PRIVATE_LIBRARIES}" RENAME "${name}" COMPONENT programs)
  string(REGEX REPLACE "([0-9])\\.so\\." "\\1-" package "${name}") # libpcre2-8.so.0: libpcre2-8-0
  string(REPLACE ".so." "" package "${package}")
  cmake_path(GET file PARENT_PATH folder)
  set(terms "${folder}/../../share/doc/${package}/copyright")
  if(EXISTS "${terms}")
    install(FILES "${terms}" DESTINATION "${CMAKE_INSTALL_DOCDIR}" RENAME "copyright.${package}" COMPONENT programs)
  endif()
endfunction()

# regroup_install_package(): all but the programs and what they say of themselves, see cli/.
macro(regroup_install_package)
  get_target_property(_fmt fmt::fmt IMPORTED_LOCATION_NONE)
  if(NOT _fmt)
    get_target_property(_fmt fmt::fmt LOCATION)
  endif()
  if(_fmt MATCHES "\\.so")
    string(REGEX MATCH "^[0-9]+" _fmt_abi "${fmt_VERSION}")
    _regroup_install_private_library("${_fmt}" "libfmt.so.${_fmt_abi}")
  endif()
  foreach(_library IN ITEMS SentencePiece PCRE2 Utf8proc Zstd)
    if(${_library}_FOUND AND ${_library}_LIBRARY MATCHES "([^/]+)\\.so")
      set(_library_name "${CMAKE_MATCH_1}")
      file(REAL_PATH "${${_library}_LIBRARY}" _library_file)
      string(REGEX MATCH "\\.so\\.[0-9]+" _library_abi "${_library_file}")
      _regroup_install_private_library("${_library_file}" "${_library_name}${_library_abi}")
    endif()
  endforeach()
  install(FILES "${PROJECT_SOURCE_DIR}/LICENSE" DESTINATION "${CMAKE_INSTALL_DOCDIR}" COMPONENT programs)
  _regroup_install_libraries()
  _regroup_configure_cpack()
endmacro()
