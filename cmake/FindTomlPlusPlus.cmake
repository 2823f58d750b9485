# The headers of toml++ (Debian's libtomlplusplus-dev): target TomlPlusPlus::TomlPlusPlus. Headers alone,
# also where a distribution builds a library of them: one file of regroup includes them.
find_path(TomlPlusPlus_INCLUDE_DIR toml++/toml.h)
mark_as_advanced(TomlPlusPlus_INCLUDE_DIR)

set(TomlPlusPlus_VERSION "")
foreach(header IN ITEMS version.h version.hpp)
  if(EXISTS "${TomlPlusPlus_INCLUDE_DIR}/toml++/impl/${header}")
    file(STRINGS "${TomlPlusPlus_INCLUDE_DIR}/toml++/impl/${header}" lines REGEX "TOML_LIB_(MAJOR|MINOR|PATCH) +[0-9]+")
    string(REGEX MATCHALL "[0-9]+" TomlPlusPlus_VERSION "${lines}")
    string(REPLACE ";" "." TomlPlusPlus_VERSION "${TomlPlusPlus_VERSION}")
  endif()
endforeach()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(TomlPlusPlus
  REQUIRED_VARS TomlPlusPlus_INCLUDE_DIR
  VERSION_VAR TomlPlusPlus_VERSION
  REASON_FAILURE_MESSAGE "scripts/setup installs it")

if(TomlPlusPlus_FOUND AND NOT TARGET TomlPlusPlus::TomlPlusPlus)
  add_library(TomlPlusPlus::TomlPlusPlus INTERFACE IMPORTED)
  set_target_properties(TomlPlusPlus::TomlPlusPlus PROPERTIES
    INTERFACE_INCLUDE_DIRECTORIES "${TomlPlusPlus_INCLUDE_DIR}"
    INTERFACE_COMPILE_DEFINITIONS "TOML_HEADER_ONLY=1;TOML_ENABLE_FORMATTERS=0")
endif()
