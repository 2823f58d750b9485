// Special tokens that training needs to know and a config does not say.
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

/// What the tokenizer files of a model directory (tokenizer_config.json, added_tokens.json,
/// tokenizer.json) say of sentinels; none where they name no <extra_id_0>. Throws kBadInput for a
/// file that is malformed, or that numbers them in another way.
std::optional<Sentinels> find_sentinels(const std::filesystem::path& directory);

/// The config's eos_token_id, where it is one number.
std::optional<std::int64_t> end_token_of(const Model& model);

}  // namespace regroup
