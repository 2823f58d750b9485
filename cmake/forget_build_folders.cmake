# Runs in cpack before packing: removes the build machine's folders from the programs' RPATH, so that they
# look for libraries only in their own installation.
file(GLOB_RECURSE programs
  "${CPACK_TEMPORARY_DIRECTORY}/regroup" "${CPACK_TEMPORARY_DIRECTORY}/regroup-compute")
list(FILTER programs INCLUDE REGEX "/(bin|libexec/regroup)/")
foreach(program IN LISTS programs)
  file(READ_ELF "${program}" RUNPATH folders)
  string(REPLACE ":" ";" folders "${folders}")
  list(FILTER folders INCLUDE REGEX "^\\$ORIGIN")
  list(JOIN folders ":" folders)
  file(RPATH_SET FILE "${program}" NEW_RPATH "${folders}")
endforeach()
