# Debian's libutf8proc-dev: target Utf8proc::Utf8proc.
include("${CMAKE_CURRENT_LIST_DIR}/FindPlainLibrary.cmake")
regroup_find_plain_library(Utf8proc Utf8proc::Utf8proc utf8proc.h utf8proc "regroup tokenize will not read tokenizer.json")
