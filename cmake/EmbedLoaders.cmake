# Writes OUTPUT, a source file that defines embedded_loader_files(): the names and texts of all Python files in FOLDER.
function(regroup_embed_loaders folder output)
  file(GLOB files CONFIGURE_DEPENDS "${folder}/*.py")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${files})
  set(entries "")
  foreach(file IN LISTS files)
    file(READ "${file}" text)
    get_filename_component(name "${file}" NAME)
    string(APPEND entries "    {\"${name}\", R\"python(${text})python\"},\n")
  endforeach()
  list(LENGTH files count)
  set(source "// Made by cmake/EmbedLoaders.cmake.
#include <array>

#include \"formats/families/loader_files.h\"

namespace regroup {

std::span<const LoaderFile> embedded_loader_files() {
  static constexpr std::array<LoaderFile, ${count}> kFiles{{
${entries}  }};
  return kFiles;
}

}  // namespace regroup
")
  set(before "")
  if(EXISTS "${output}")
    file(READ "${output}" before)
  endif()
  if(NOT before STREQUAL source)
    file(WRITE "${output}" "${source}")
  endif()
endfunction()
