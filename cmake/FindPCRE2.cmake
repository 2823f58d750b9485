# Debian's libpcre2-dev: target PCRE2::8BIT.
include("${CMAKE_CURRENT_LIST_DIR}/FindPlainLibrary.cmake")
regroup_find_plain_library(PCRE2 PCRE2::8BIT pcre2.h pcre2-8 "regroup tokenize will not read tokenizer.json")
