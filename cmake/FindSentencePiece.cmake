# Debian's libsentencepiece-dev: target SentencePiece::SentencePiece.
include("${CMAKE_CURRENT_LIST_DIR}/FindPlainLibrary.cmake")
regroup_find_plain_library(SentencePiece SentencePiece::SentencePiece sentencepiece_processor.h sentencepiece "regroup tokenize will not read tokenizer.model")
