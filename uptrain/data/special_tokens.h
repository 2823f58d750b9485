// Special tokens that training needs and a config does not name.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "formats/model/model.h"

namespace regroup {

/// T5's sentinels <extra_id_0>, <extra_id_1>, …: their ids count down from the first.
struct Sentinels {
  std::int64_t first = 0;
  std::int64_t count = 100;  ///< as many as T5 has, where it is not known
};

/// Reads the sentinels from the tokenizer files of a model directory (tokenizer_config.json,
/// added_tokens.json, tokenizer.json); none if they name no <extra_id_0>. Throws kBadInput for a
/// file that is malformed or numbers the sentinels in another way.
std::optional<Sentinels> find_sentinels(const std::filesystem::path& directory);

/// The id of <mask> in the same files; none if they do not name it. Throws kBadInput for a
/// malformed file.
std::optional<std::int64_t> find_mask_token(const std::filesystem::path& directory);

/// The config's bos_token_id, if it is a number.
std::optional<std::int64_t> start_token_of(const Model& model);

/// The config's eos_token_id, if it is a single number.
std::optional<std::int64_t> end_token_of(const Model& model);

}  // namespace regroup
