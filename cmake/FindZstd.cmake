# Debian's libzstd-dev: target Zstd::Zstd. zstd's own CMake package has other targets in each distribution.
include("${CMAKE_CURRENT_LIST_DIR}/FindPlainLibrary.cmake")
regroup_find_plain_library(Zstd Zstd::Zstd zstd.h zstd "regroup will not read .zst")
