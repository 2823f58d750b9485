# Runs in cpack, on what is about to be packed: programs forget the folders of the machine that built
# them and look for libraries beside themselves only.
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
