// A Tokenizer made from Hugging Face's tokenizer.json.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/vocabulary/added_tokens_files.h"
#include "tokens/tokenizer.h"

namespace regroup {

/// Whether this build can read tokenizer.json: it needs PCRE2 and utf8proc.
bool reads_tokenizer_json();

/// Opens a tokenizer.json, or a file of which tokenizer_json_from() makes one, with those of the
/// tokens `added` that it does not list. Its post-processor decides about BOS and EOS. Throws
/// kBadInput for a malformed file and anything that is not supported, kUsage in a build without
/// PCRE2 or utf8proc.
std::unique_ptr<Tokenizer> open_tokenizer_json(const std::filesystem::path& file,
                                               const std::vector<StoredAddedToken>& added = {});

/// The same from the contents. Error messages begin with `where` (a file name).
std::unique_ptr<Tokenizer> make_json_tokenizer(const nlohmann::json& tokenizer,
                                               const std::string& where);

}  // namespace regroup
