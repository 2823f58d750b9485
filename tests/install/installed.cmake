# Installs into a new prefix, moves the prefix, and uses the program and the example that links the
# libraries.
include("${CMAKE_CURRENT_LIST_DIR}/check.cmake")
set(work "${BUILD}/install_test")
file(REMOVE_RECURSE "${work}")
install_into("${work}/first")
file(RENAME "${work}/first" "${work}/moved")
check_programs("${work}/moved")

build_user("${SOURCE}/examples/cache_of_model" "${work}/example" "${work}/moved" "-DLibTorch_ROOT=${LIBTORCH}")
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
build_user("${work}/formats" "${work}/formats/build" "${work}/moved" -DCMAKE_DISABLE_FIND_PACKAGE_LibTorch=ON)
if(LIBTORCH AND NOT output MATCHES "but not regroup::converter")
  message(FATAL_ERROR "the output does not say that regroup::converter is missing:\n${output}")
endif()
check_output("formats alone" "LlamaForCausalLM" "${work}/formats/build/names" "${SOURCE}/tests/golden/llama")
file(REMOVE_RECURSE "${work}")
