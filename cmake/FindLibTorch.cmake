# Finds LibTorch without asking for a CUDA toolkit, as find_package(Torch) does on CUDA builds.
#
# Looked for, in this order:
#   1. LibTorch_ROOT (-D or environment): an unpacked official zip, or the torch/ folder of a wheel
#   2. the torch wheel in this project's .venv
#   3. the torch wheel of the active python3
#   4. find_package(Torch CONFIG), for what a distribution installs
#
# Gives LibTorch::LibTorch, LibTorch_VERSION, LibTorch_FOLDER (the one used), LibTorch_LIBRARY_DIRS
# and REGROUP_CUDA. Users of the target see REGROUP_CUDA=1 where the CUDA libraries are part of it
# (else 0), and REGROUP_CUDA_HEADERS=1 where the CUDA headers are too.

function(_libtorch_usable result folder)
  if(EXISTS "${folder}/include/ATen/ATen.h" AND EXISTS "${folder}/lib/libtorch.so")
    set(${result} TRUE PARENT_SCOPE)
  else()
    set(${result} FALSE PARENT_SCOPE)
  endif()
endfunction()

function(_libtorch_find_folder result)
  # `-DLibTorch_ROOT` or the environment: explicit, so there is no fallback if it is wrong.
  foreach(root IN ITEMS "${LibTorch_ROOT}" "$ENV{LibTorch_ROOT}")
    if(root)
      _libtorch_usable(usable "${root}")
      if(NOT usable)
        message(FATAL_ERROR "LibTorch_ROOT is ${root}, but include/ATen/ATen.h and lib/libtorch.so "
                            "are not both there")
      endif()
      set(${result} "${root}" PARENT_SCOPE)
      return()
    endif()
  endforeach()

  file(GLOB candidates
    "${CMAKE_CURRENT_FUNCTION_LIST_DIR}/../.venv/lib/python3*/site-packages/torch")
  # find_spec looks the wheel up without importing it, which would take seconds.
  execute_process(
    COMMAND python3 -c "import importlib.util as u; print(*u.find_spec('torch').submodule_search_locations)"
    OUTPUT_VARIABLE active OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  foreach(folder IN LISTS candidates active)
    _libtorch_usable(usable "${folder}")
    if(usable)
      cmake_path(NORMAL_PATH folder)
      set(${result} "${folder}" PARENT_SCOPE)
      return()
    endif()
  endforeach()
  set(${result} "" PARENT_SCOPE)
endfunction()

# A wheel has its version in version.py, the zip in build-version: "2.13.0+cpu" -> "2.13.0".
function(_libtorch_read_version result folder)
  set(version "")
  foreach(name IN ITEMS version.py build-version)
    if(NOT version AND EXISTS "${folder}/${name}")
      file(STRINGS "${folder}/${name}" lines REGEX "^(__version__ = )?'?[0-9]+\\.[0-9]+")
      string(REGEX MATCH "[0-9]+\\.[0-9]+(\\.[0-9]+)?" version "${lines}")
    endif()
  endforeach()
  set(${result} "${version}" PARENT_SCOPE)
endfunction()

# The folders of CUDA's headers: those of the packages next to the wheel if they are complete, else those of one toolkit,
# since headers of two toolkits do not mix. The runtime's headers include crt/host_defines.h and nv/target, which are in
# separate packages, and so is NCCL's header in both cases. `complete`: whether CUDA's headers are among the folders.
function(_libtorch_cuda_headers folders complete folder)
  set(headers 1)
  foreach(header IN ITEMS cuda_runtime_api.h crt/host_defines.h nv/target)
    file(GLOB found "${folder}/../nvidia/*/include/${header}" "${folder}/../nvidia/*/include/cccl/${header}")
    if(NOT found)
      set(headers 0)
    endif()
  endforeach()
  if(headers)
    file(GLOB includes "${folder}/../nvidia/*/include" "${folder}/../nvidia/*/include/cccl")
  else()
    file(GLOB includes "${folder}/../nvidia/nccl/include")
    foreach(include IN ITEMS "$ENV{CUDA_HOME}/include" /usr/local/cuda/include)
      if(NOT headers AND EXISTS "${include}/cuda_runtime_api.h")
        file(GLOB toolkit "${include}" "${include}/cccl")  # CUDA 13 has nv/target in cccl/
        list(APPEND includes ${toolkit})
        set(headers 1)
      endif()
    endforeach()
  endif()
  set(${folders} "${includes}" PARENT_SCOPE)
  set(${complete} ${headers} PARENT_SCOPE)
endfunction()

function(_libtorch_import folder)
  add_library(LibTorch::LibTorch INTERFACE IMPORTED)
  target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE
    "${folder}/include" "${folder}/include/torch/csrc/api/include")
  target_compile_features(LibTorch::LibTorch INTERFACE cxx_std_20)
  # One header per operator: a file includes the few it uses and compiles in half the time.
  target_compile_definitions(LibTorch::LibTorch INTERFACE AT_PER_OPERATOR_HEADERS)
  # Nothing calls torch_cuda by name: it registers itself when loaded, so the linker must keep it.
  target_link_options(LibTorch::LibTorch INTERFACE LINKER:--no-as-needed)

  # LibTorch's libraries export parts of an older C++ library, some with the same names: 2.11's libtorch.so has a
  # std::filesystem::remove_all that crashes. The dynamic linker takes the first library's, so the system's comes first.
  target_link_libraries(LibTorch::LibTorch INTERFACE stdc++)

  set(cuda 0)
  if(EXISTS "${folder}/lib/libtorch_cuda.so")
    set(cuda 1)
    # CUDA wheels have NVIDIA's libraries and headers in packages next to torch/: nvidia/cu13 for CUDA 13, one
    # folder per library before.
    file(GLOB nvidia_libraries "${folder}/../nvidia/*/lib")
    foreach(path IN LISTS nvidia_libraries)
      cmake_path(NORMAL_PATH path)
      target_link_options(LibTorch::LibTorch INTERFACE "LINKER:-rpath,${path}")
    endforeach()
    # The driver's library is missing on build machines without a GPU.
    target_link_options(LibTorch::LibTorch INTERFACE LINKER:--allow-shlib-undefined)

    _libtorch_cuda_headers(nvidia_headers headers "${folder}")
    foreach(include IN LISTS nvidia_headers)
      cmake_path(NORMAL_PATH include)
      target_include_directories(LibTorch::LibTorch SYSTEM INTERFACE "${include}")
    endforeach()
    target_compile_definitions(LibTorch::LibTorch INTERFACE REGROUP_CUDA_HEADERS=${headers})
  endif()
  target_compile_definitions(LibTorch::LibTorch INTERFACE REGROUP_CUDA=${cuda})

  # at::parallel_for must use the same OpenMP as LibTorch's own loops. The wheel and the zip contain it; a
  # second one would start its own threads.
  file(GLOB openmp "${folder}/lib/libgomp*.so*")
  if(openmp)
    target_link_libraries(LibTorch::LibTorch INTERFACE ${openmp})
  else()
    find_package(OpenMP REQUIRED COMPONENTS CXX)
    target_link_libraries(LibTorch::LibTorch INTERFACE OpenMP::OpenMP_CXX)
  endif()

  # By full path, which makes CMake add the folder to the program's RPATH.
  foreach(name IN ITEMS torch torch_cpu torch_cuda c10 c10_cuda)
    if(EXISTS "${folder}/lib/lib${name}.so")
      target_link_libraries(LibTorch::LibTorch INTERFACE "${folder}/lib/lib${name}.so")
    endif()
  endforeach()

  set(REGROUP_CUDA ${cuda} PARENT_SCOPE)
endfunction()

_libtorch_find_folder(_libtorch_folder)
if(_libtorch_folder)
  _libtorch_read_version(LibTorch_VERSION "${_libtorch_folder}")
  set(LibTorch_FOLDER "${_libtorch_folder}")
  set(LibTorch_LIBRARY_DIRS "${_libtorch_folder}/lib")
else()
  find_package(Torch CONFIG QUIET)
  set(LibTorch_VERSION "${Torch_VERSION}")
  set(LibTorch_FOLDER "${TORCH_INSTALL_PREFIX}")
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(LibTorch
  REQUIRED_VARS LibTorch_FOLDER
  VERSION_VAR LibTorch_VERSION
  REASON_FAILURE_MESSAGE
    "Run scripts/setup, or pass -DLibTorch_ROOT=DIR, or build without it: -DREGROUP_LIBTORCH=OFF")

if(LibTorch_FOUND AND NOT TARGET LibTorch::LibTorch AND NOT CMAKE_SCRIPT_MODE_FILE)
  if(_libtorch_folder)
    _libtorch_import("${_libtorch_folder}")
  else()
    add_library(LibTorch::LibTorch INTERFACE IMPORTED)
    target_link_libraries(LibTorch::LibTorch INTERFACE torch)
    set(REGROUP_CUDA 0)
    if(TARGET torch_cuda)
      set(REGROUP_CUDA 1)
    endif()
    target_compile_definitions(LibTorch::LibTorch INTERFACE
      AT_PER_OPERATOR_HEADERS REGROUP_CUDA=${REGROUP_CUDA})
  endif()
endif()
