# Installs into a new prefix, moves the prefix, and uses the program and the example that links the
# libraries.
include("${CMAKE_CURRENT_LIST_DIR}/check.cmake")
set(work "${BUILD}/install_test")
file(REMOVE_RECURSE "${work}")
execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${work}/first" OUTPUT_QUIET
  COMMAND_ERROR_IS_FATAL ANY)
file(RENAME "${work}/first" "${work}/moved")
check_programs("${work}/moved")

# All included headers are installed, and none needs LibTorch's.
file(GLOB_RECURSE headers "${work}/moved/include/regroup/*.h")
foreach(header IN LISTS headers)
  file(STRINGS "${header}" includes REGEX "^#include")
  foreach(include IN LISTS includes)
    if(include MATCHES "<(ATen|torch|c10)/" OR
        (include MATCHES "\"(.*)\"" AND NOT EXISTS "${work}/moved/include/regroup/${CMAKE_MATCH_1}"))
      message(FATAL_ERROR "${header}: ${include} is not installed: leave the header out in cmake/Installation.cmake")
    endif()
  endforeach()
endforeach()

execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${SOURCE}/examples/cache_of_model" -B "${work}/example" -G "${GENERATOR}"
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DLibTorch_ROOT=${LIBTORCH}"
    "-DCMAKE_PREFIX_PATH=${work}/moved;${SOURCE}/.deps/usr"
  OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${work}/example" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
# Two layers of 4 kv heads of 8 in F32: keys and values of one token are 2 x 2 x 4 x 8 x 4 bytes.
check_output("the example" "k_proj.weight becomes .*KV cache per token: 512 -> 128 bytes"
  "${work}/example/cache_of_model" "${SOURCE}/tests/golden/llama" 1)

# Without LibTorch only the formats are available, and the error names what is missing.
file(WRITE "${work}/formats/CMakeLists.txt" [[
cmake_minimum_required(VERSION 3.25)
project(formats_alone LANGUAGES CXX)
find_package(regroup 0.1 REQUIRED)
add_executable(names main.cpp)
target_link_libraries(names PRIVATE regroup::formats)
]])
file(WRITE "${work}/formats/main.cpp" [[
#include <cstdio>
#include "formats/model/model.h"
int main(int, char** words) { std::puts(regroup::open_model(words[1]).spec.architecture.c_str()); }
]])
execute_process(
  COMMAND "${CMAKE_COMMAND}" -S "${work}/formats" -B "${work}/formats/build" -G "${GENERATOR}"
    "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${COMPILER}"
    -DCMAKE_DISABLE_FIND_PACKAGE_LibTorch=ON "-DCMAKE_PREFIX_PATH=${work}/moved;${SOURCE}/.deps/usr"
  OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
if(LIBTORCH AND NOT output MATCHES "but not regroup::converter")
  message(FATAL_ERROR "the output does not say that regroup::converter is missing:\n${output}")
endif()
execute_process(COMMAND "${CMAKE_COMMAND}" --build "${work}/formats/build" OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
check_output("formats alone" "LlamaForCausalLM" "${work}/formats/build/names" "${SOURCE}/tests/golden/llama")
file(REMOVE_RECURSE "${work}")
