# The fused CUDA kernels with compilers that are shell scripts: what an old nvcc does not know is left out, and an nvcc
# that refuses the host compiler makes the build use LibTorch's operators.
file(REMOVE_RECURSE "${WORK}")
foreach(file IN ITEMS libtorch_cuda.so libcudart.so.12)
  file(WRITE "${WORK}/torch/lib/${file}" "")
endforeach()
file(WRITE "${WORK}/torch/version.py" "cuda: Optional[str] = '12.6'\n")
file(WRITE "${WORK}/source/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(kernels LANGUAGES CXX)
set(REGROUP_CUDA 1)
set(LibTorch_FOLDER \"${WORK}/torch\")
include(\"${SOURCE}/cmake/CudaKernels.cmake\")
add_library(some STATIC some.cpp)
regroup_cuda_kernels(some one.cu)
")
file(WRITE "${WORK}/source/some.cpp" "")

# expect(<release of nvcc> <command after it is asked to compile> <REGROUP_FUSED_KERNELS, a regex> <definition>...)
function(expect release command expected)
  file(WRITE "${WORK}/nvcc" "#!/bin/sh\n[ \"$1\" = --version ] && echo 'release ${release}, V${release}.1' && exit\n${command}\n")
  file(CHMOD "${WORK}/nvcc" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
  set(ENV{CUDACXX} "${WORK}/nvcc")
  file(REMOVE_RECURSE "${WORK}/build")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${WORK}/source" -B "${WORK}/build" -G "${GENERATOR}" -DREGROUP_WERROR=ON
      "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${COMPILER}" ${ARGN}
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  file(READ "${WORK}/build/CMakeCache.txt" cache)
  if(NOT result EQUAL 0 OR NOT cache MATCHES "REGROUP_FUSED_KERNELS:INTERNAL=${expected}" OR
      NOT output MATCHES "Fused CUDA kernels: ${expected}")
    message(FATAL_ERROR "nvcc ${release}, ${command}: not \"${expected}\": ${output}")
  endif()
endfunction()

expect(12.6 "exit 0" "for 80;90, by ")
expect(12.8 "exit 0" "for 80;90;100, by ")
expect(12.6 "case \"$*\" in *_100*) exit 1 ;; esac" "for 80;90, by ")
expect(12.6 "exit 0" "not compiled in, nvcc 12.6 knows none of 100" -DREGROUP_CUDA_ARCHITECTURES=100)
expect(13.0 "exit 0" "not compiled in, nvcc is of CUDA 13.0 and LibTorch of 12.6")
expect(12.8 "echo 'host_config.h:143:2: error: unsupported GNU version! later than 13' >&2; exit 1"
  "not compiled in, nvcc failed with .*unsupported GNU version")
