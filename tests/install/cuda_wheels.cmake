# Wheels of empty files in the layouts of CUDA 12 (a folder per library) and CUDA 13 (one folder, NCCL apart):
# FindLibTorch finds every header that a process group over NCCL needs. Where the runtime's headers lack those that they
# include, it takes a toolkit's, and of the wheels only NCCL's.
set(cuda12 nvidia/cublas/include/cublas_v2.h nvidia/cuda_cccl/include/nv/target
  nvidia/cuda_nvcc/include/crt/host_config.h nvidia/cuda_nvcc/include/crt/host_defines.h
  nvidia/cuda_runtime/include/cuda_runtime_api.h
  nvidia/cusolver/include/cusolverDn.h nvidia/cusparse/include/cusparse.h nvidia/nccl/include/nccl.h)
set(cuda13 nvidia/cu13/include/cublas_v2.h nvidia/cu13/include/nv/target nvidia/cu13/include/crt/host_config.h
  nvidia/cu13/include/crt/host_defines.h
  nvidia/cu13/include/cuda_runtime_api.h nvidia/cu13/include/cusolverDn.h nvidia/cu13/include/cusparse.h
  nvidia/nccl/include/nccl.h)
set(without_crt nvidia/cu13/include/cuda_runtime_api.h nvidia/cu13/include/nv/target nvidia/nccl/include/nccl.h)
set(without_cccl nvidia/cu13/include/cuda_runtime_api.h nvidia/cu13/include/crt/host_defines.h nvidia/nccl/include/nccl.h)
set(toolkit cuda_runtime_api.h crt/host_defines.h cccl/nv/target)

foreach(header IN LISTS toolkit)
  file(WRITE "${WORK}/toolkit/include/${header}" "")
endforeach()
set(ENV{CUDA_HOME} "${WORK}/toolkit")

foreach(layout IN ITEMS cuda12 cuda13 without_crt without_cccl)
  set(site "${WORK}/${layout}/site-packages")
  file(REMOVE_RECURSE "${WORK}/${layout}")
  foreach(file IN ITEMS ${${layout}} torch/include/ATen/ATen.h torch/lib/libtorch.so torch/lib/libtorch_cpu.so
      torch/lib/libtorch_cuda.so torch/lib/libc10.so torch/lib/libgomp.so)
    file(WRITE "${site}/${file}" "")
  endforeach()
  file(WRITE "${site}/torch/version.py" "__version__ = '2.13.0'\n")
  set(headers ${${layout}})
  set(unwanted /toolkit/)
  if(layout MATCHES "^without")
    set(headers cuda_runtime_api.h crt/host_defines.h nv/target nccl.h)
    set(unwanted /cu13/)
  endif()
  set(checks "if(folders MATCHES \"${unwanted}\")\n  message(FATAL_ERROR \"two toolkits: \${folders}\")\nendif()\n")
  foreach(file IN LISTS headers)
    string(REGEX REPLACE "^nvidia/[^/]+/include/" "" header "${file}")
    string(APPEND checks "unset(found CACHE)\nfind_file(found \"${header}\" PATHS \${folders} NO_DEFAULT_PATH REQUIRED)\n")
  endforeach()
  file(WRITE "${WORK}/${layout}/source/CMakeLists.txt" "cmake_minimum_required(VERSION 3.25)
project(wheels LANGUAGES CXX)
list(APPEND CMAKE_MODULE_PATH \"${SOURCE}/cmake\")
find_package(LibTorch REQUIRED)
get_target_property(folders LibTorch::LibTorch INTERFACE_SYSTEM_INCLUDE_DIRECTORIES)
${checks}")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${WORK}/${layout}/source" -B "${WORK}/${layout}/build" -G "${GENERATOR}"
      "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}" "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DLibTorch_ROOT=${site}/torch"
    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
  if(NOT result EQUAL 0)
    message(FATAL_ERROR "${layout}: ${output}")
  endif()
endforeach()
