// Facts of a conversion's record. Functions throw kBadInput, prefixed with `where`, for facts of
// another type.
#pragma once

#include <cstdint>
#include <string>

#include "formats/json/json.h"

namespace regroup {

/// A word, such as a method's name; `usual` if the record has none.
std::string recorded_word(const Json& facts, const char* key, const std::string& usual,
                          const std::string& where);

/// The seed of random pooling; 0 if the record has none.
std::uint64_t recorded_seed(const Json& facts, const std::string& where);

/// The kind of device that solved for heads, as LibTorch names it; "cpu" if the record has none.
std::string recorded_device(const Json& facts, const std::string& where);

}  // namespace regroup
