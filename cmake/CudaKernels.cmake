# The fused CUDA kernels of uptrain/ops/cuda/, compiled by plain commands: CMake's CUDA language does not know the
# layout of the compiler's wheel, and wants to link a program first.

set(REGROUP_CUDA_ARCHITECTURES "80;90;100" CACHE STRING
  "GPUs to compile the fused kernels for, by compute capability, in rising order; later ones compile them again when loaded")

# The nvcc of a wheel next to LibTorch, else of CUDACXX, CUDA_HOME, PATH or /usr/local/cuda. Sets REGROUP_NVCC and its
# version, REGROUP_NVCC_VERSION; both empty if there is none.
function(_regroup_find_nvcc)
  file(GLOB wheels "${LibTorch_FOLDER}/../nvidia/cu*/bin")
  find_program(REGROUP_NVCC nvcc HINTS ${wheels} "$ENV{CUDA_HOME}/bin" PATHS /usr/local/cuda/bin)
  mark_as_advanced(REGROUP_NVCC)
  set(nvcc "${REGROUP_NVCC}")
  if(NOT "$ENV{CUDACXX}" STREQUAL "")
    set(nvcc "$ENV{CUDACXX}")
  endif()
  set(version "")
  if(nvcc)
    execute_process(COMMAND "${nvcc}" --version OUTPUT_VARIABLE output ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+\\.[0-9]+)" found "${output}")
    set(version "${CMAKE_MATCH_1}")
  endif()
  set(REGROUP_NVCC_PROGRAM "${nvcc}" PARENT_SCOPE)
  set(REGROUP_NVCC_VERSION "${version}" PARENT_SCOPE)
endfunction()

# The CUDA version that LibTorch was built for, "13.0"; empty if it does not say.
function(_regroup_cuda_of_libtorch result)
  set(version "")
  if(EXISTS "${LibTorch_FOLDER}/version.py")
    file(STRINGS "${LibTorch_FOLDER}/version.py" line REGEX "^cuda: ")
    string(REGEX MATCH "[0-9]+\\.[0-9]+" version "${line}")
  elseif(EXISTS "${LibTorch_FOLDER}/build-version")
    file(STRINGS "${LibTorch_FOLDER}/build-version" line)
    if(line MATCHES "\\+cu([0-9]+)([0-9])$")
      set(version "${CMAKE_MATCH_1}.${CMAKE_MATCH_2}")
    endif()
  endif()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# CUDA's runtime library: LibTorch's own, else the toolkit's.
function(_regroup_find_cudart result nvcc)
  file(REAL_PATH "${nvcc}" program)
  cmake_path(GET program PARENT_PATH bin)
  set(${result} "" PARENT_SCOPE)
  foreach(folder IN ITEMS "${LibTorch_FOLDER}/../nvidia/*/lib" "${LibTorch_FOLDER}/lib" "${bin}/../lib64"
      "${bin}/../lib" "$ENV{CUDA_HOME}/lib64" /usr/local/cuda/lib64)
    file(GLOB found "${folder}/libcudart*.so*")
    if(found)
      list(GET found 0 library)
      cmake_path(NORMAL_PATH library)
      set(${result} "${library}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
endfunction()

# Why the kernels are not compiled into the library; empty if they are.
function(_regroup_obstacle_to_cuda_kernels result cudart)
  _regroup_cuda_of_libtorch(wanted)
  string(REGEX MATCH "^[0-9]+" wanted_major "${wanted}")
  string(REGEX MATCH "^[0-9]+" major "${REGROUP_NVCC_VERSION}")
  if(NOT REGROUP_CUDA)
    set(obstacle "LibTorch has no CUDA")
  elseif(NOT REGROUP_NVCC_VERSION)
    set(obstacle "no nvcc was found, LibTorch's operators are used")
  elseif(wanted AND NOT wanted_major STREQUAL major)
    set(obstacle "nvcc is of CUDA ${REGROUP_NVCC_VERSION} and LibTorch of ${wanted}, LibTorch's operators are used")
  elseif(NOT cudart)
    set(obstacle "no libcudart.so was found, LibTorch's operators are used")
  else()
    set(obstacle "")
  endif()
  set(${result} "${obstacle}" PARENT_SCOPE)
endfunction()

# The GPUs to compile for: without those of compute capability 10.0 and later if nvcc is older than 12.8.
function(_regroup_architectures result)
  set(architectures ${REGROUP_CUDA_ARCHITECTURES})
  if(REGROUP_NVCC_VERSION VERSION_LESS 12.8)
    list(FILTER architectures EXCLUDE REGEX "^[0-9][0-9][0-9]")
  endif()
  set(${result} ${architectures} PARENT_SCOPE)
endfunction()

# The flags of nvcc that choose the GPUs.
function(_regroup_gencodes result)
  set(flags "")
  foreach(architecture IN LISTS ARGN)
    list(APPEND flags "-gencode=arch=compute_${architecture},code=sm_${architecture}")
  endforeach()
  # The last one's intermediate code, too, which drivers compile for later GPUs.
  if(ARGN)
    list(GET ARGN -1 last)
    list(APPEND flags "-gencode=arch=compute_${last},code=compute_${last}")
  endif()
  set(${result} ${flags} PARENT_SCOPE)
endfunction()

# Compiles a small kernel. Why that fails; empty if it does not: nvcc refuses host compilers that it does not know.
function(_regroup_try_nvcc result)
  set(folder "${CMAKE_CURRENT_BINARY_DIR}/cuda")
  file(WRITE "${folder}/try.cu" "#include <cuda_bf16.h>\n#include <vector>\n__global__ void set(float* x) { *x = 1.0f; }\n")
  execute_process(COMMAND ${ARGN} -c "${folder}/try.cu" -o "${folder}/try.o"
    RESULT_VARIABLE status OUTPUT_VARIABLE output ERROR_VARIABLE output)
  set(${result} "" PARENT_SCOPE)
  if(NOT status EQUAL 0)
    string(REGEX MATCH "[^\n]*(error|fatal|warning)[^\n]*" line "${output}")
    set(${result} "nvcc failed with ${CMAKE_CXX_COMPILER} (${line}), LibTorch's operators are used" PARENT_SCOPE)
  endif()
endfunction()

# regroup_cuda_kernels(<target> <file>...)
# Compiles the files into the target if LibTorch is a CUDA build and nvcc is there, and says so. Where there is an nvcc,
# the target regroup_cuda_objects compiles them in any case.
function(regroup_cuda_kernels target)
  _regroup_find_nvcc()
  _regroup_architectures(architectures)
  set(objects "")
  if(REGROUP_NVCC_VERSION)
    _regroup_gencodes(gencodes ${architectures})
    # The headers of wheels that have a folder per library. A single folder is known to its nvcc.
    file(GLOB headers "${LibTorch_FOLDER}/../nvidia/cuda_*/include")
    list(TRANSFORM headers PREPEND "-isystem=")
    set(errors "")
    if(REGROUP_WERROR)
      set(errors -Werror=all-warnings)
    endif()
    set(compile "${REGROUP_NVCC_PROGRAM}" -std=c++20 -O3 -ccbin "${CMAKE_CXX_COMPILER}" -Xcompiler=-fPIC,-Wall
      ${errors} ${gencodes} "-I${PROJECT_SOURCE_DIR}" ${headers})
    foreach(file IN LISTS ARGN)
      cmake_path(GET file STEM name)
      set(object "${CMAKE_CURRENT_BINARY_DIR}/cuda/${name}.o")
      add_custom_command(OUTPUT "${object}"
        COMMAND ${compile} -MD -MF "${object}.d" -MT "${object}"
          -c "${CMAKE_CURRENT_SOURCE_DIR}/${file}" -o "${object}"
        DEPENDS "${file}" DEPFILE "${object}.d" COMMENT "Compiling CUDA kernels ${file}" VERBATIM)
      list(APPEND objects "${object}")
    endforeach()
    file(MAKE_DIRECTORY "${CMAKE_CURRENT_BINARY_DIR}/cuda")
    add_custom_target(regroup_cuda_objects DEPENDS ${objects})
  endif()

  _regroup_find_cudart(cudart "${REGROUP_NVCC_PROGRAM}")
  _regroup_obstacle_to_cuda_kernels(obstacle "${cudart}")
  if(NOT obstacle AND NOT architectures)
    set(obstacle "nvcc ${REGROUP_NVCC_VERSION} knows none of ${REGROUP_CUDA_ARCHITECTURES}, LibTorch's operators are used")
  elseif(NOT obstacle)
    _regroup_try_nvcc(obstacle ${compile})
  endif()
  set(summary "for ${architectures}, by ${REGROUP_NVCC_PROGRAM} ${REGROUP_NVCC_VERSION}")
  if(obstacle)
    set(summary "not compiled in, ${obstacle}")
  endif()
  message(STATUS "Fused CUDA kernels: ${summary}")
  # For bench/gpu.sh, which reads it in CMakeCache.txt.
  set(REGROUP_FUSED_KERNELS "${summary}" CACHE INTERNAL "Whether the fused CUDA kernels are compiled in")
  if(obstacle)
    return()
  endif()
  target_sources(${target} PRIVATE ${objects})
  set_source_files_properties(${objects} PROPERTIES EXTERNAL_OBJECT TRUE GENERATED TRUE)
  set_source_files_properties(ops/device_kernels.cpp PROPERTIES COMPILE_DEFINITIONS REGROUP_CUDA_KERNELS=1
    SKIP_UNITY_BUILD_INCLUSION TRUE SKIP_PRECOMPILE_HEADERS TRUE)
  target_link_libraries(${target} PUBLIC "${cudart}")
endfunction()
