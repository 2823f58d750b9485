# cmake -P: prints "LibTorch 2.13.0", the version that the build will find, to stderr.
cmake_minimum_required(VERSION 3.25)
list(APPEND CMAKE_MODULE_PATH "${CMAKE_CURRENT_LIST_DIR}/..")
find_package(LibTorch QUIET)
message(NOTICE "LibTorch ${LibTorch_VERSION}")
