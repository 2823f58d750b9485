# Checks the installed headers: the public ones, each of which compiles alone, and what they include.
include("${CMAKE_CURRENT_LIST_DIR}/check.cmake")
include("${SOURCE}/cmake/PublicHeaders.cmake")
set(work "${BUILD}/headers_test")
file(REMOVE_RECURSE "${work}")
install_into("${work}/prefix")
set(folder "${work}/prefix/include/regroup")

# The documentation names the same headers.
file(STRINGS "${SOURCE}/docs/installing.md" rows REGEX "^\\| `.*\\.h` \\|")
list(TRANSFORM rows REPLACE "^\\| `([^`]*)`.*" "\\1" OUTPUT_VARIABLE documented)
if(NOT documented STREQUAL REGROUP_PUBLIC_HEADERS)
  message(FATAL_ERROR "the table in docs/installing.md and the list in cmake/PublicHeaders.cmake differ:\n"
    "${documented}\n${REGROUP_PUBLIC_HEADERS}")
endif()

# All included headers are installed, and none needs LibTorch's.
file(GLOB_RECURSE headers RELATIVE "${folder}" "${folder}/*")
foreach(header IN LISTS headers)
  file(STRINGS "${folder}/${header}" includes REGEX "^#include")
  foreach(include IN LISTS includes)
    if(include MATCHES "<(ATen|c10|torch)/")
      message(FATAL_ERROR "${header} is installed, but needs LibTorch: ${include}")
    elseif(include MATCHES "\"(.*)\"")
      if(NOT EXISTS "${folder}/${CMAKE_MATCH_1}")
        message(FATAL_ERROR "${header}: ${CMAKE_MATCH_1} is not installed")
      endif()
    endif()
  endforeach()
endforeach()

# Internal headers are not: one of each library, and one that needs LibTorch.
foreach(header IN ITEMS formats/tensors/unpickler.h converter/convert/equivalence.h
    converter/pooling/combination.h)
  if(NOT EXISTS "${SOURCE}/${header}")
    message(FATAL_ERROR "${header} is no longer a header: name another one here")
  elseif(header IN_LIST headers)
    message(FATAL_ERROR "${header} is internal, but installed")
  endif()
endforeach()

# Programs need only public headers.
foreach(program IN ITEMS examples/cache_of_model/main.cpp tests/install/public_headers/user.cpp)
  file(STRINGS "${SOURCE}/${program}" includes REGEX "^#include \"")
  foreach(include IN LISTS includes)
    string(REGEX REPLACE "^#include \"(.*)\"" "\\1" header "${include}")
    if(NOT header IN_LIST REGROUP_PUBLIC_HEADERS)
      message(FATAL_ERROR "${program} includes ${header}, which is not public")
    endif()
  endforeach()
endforeach()

build_user("${SOURCE}/tests/install/public_headers" "${work}/user" "${work}/prefix" "-DLibTorch_ROOT=${LIBTORCH}"
  "-DHEADERS=${REGROUP_PUBLIC_HEADERS}")
check_output("the user" "llama, gqa: 512 bytes per token, at least 128; verified\nslope 0.5\nrefused"
  "${work}/user/user" "${SOURCE}/tests/golden/llama" "${work}/result")
file(REMOVE_RECURSE "${work}")
