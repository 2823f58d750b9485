# The system's C++ library is the first one that the program names: LibTorch's libraries export parts of an older one
# (docs/gpu.md), and the dynamic linker takes the first library's names.
execute_process(COMMAND readelf --dynamic "${PROGRAM}" OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "lib(stdc\\+\\+|c\\+\\+|torch|torch_cpu|c10)\\.so" named "${dynamic}")
list(GET named 0 first)
if(NOT first MATCHES "c\\+\\+")
  message(FATAL_ERROR "${PROGRAM} names ${named}: the C++ library must come before LibTorch's")
endif()
