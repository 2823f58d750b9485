#include "formats/families/gguf/gguf_hyperparameters.h"

#include "formats/base/error.h"

namespace regroup {

std::optional<std::int64_t> GgufHyperparameters::optional_count(std::string_view name) const {
  const auto value = metadata_.count(key(name));
  if (value && (*value < 1 || *value > kMaxGgufSize)) {
    throw_bad_input("{}: {} is {}, a whole number from 1 to {} is needed", where(), key(name),
                    *value, kMaxGgufSize);
  }
  return value;
}

std::int64_t GgufHyperparameters::count(std::string_view name) const {
  const auto value = optional_count(name);
  if (!value) {
    throw_bad_input("{}: {} is missing", where(), key(name));
  }
  return *value;
}

std::optional<std::vector<std::int64_t>> GgufHyperparameters::per_layer(std::string_view name,
                                                                        std::int64_t layers) const {
  const GgufMetadata::Entry* entry = metadata_.find(key(name));
  if (entry == nullptr) {
    return std::nullopt;
  }
  const bool one_each = entry->type == GgufType::kArray;
  if (one_each && metadata_.array(key(name))->size() != static_cast<std::uint64_t>(layers)) {
    throw_bad_input("{}: {} lists {} layers, the model has {}", where(), key(name),
                    metadata_.array(key(name))->size(), layers);
  }
  auto values = metadata_.counts(key(name));
  for (const std::int64_t value : *values) {
    if (value > kMaxGgufSize) {
      throw_bad_input("{}: {} is {}, at most {} allowed", where(), key(name), value, kMaxGgufSize);
    }
  }
  return one_each ? values : std::vector(static_cast<std::size_t>(layers), values->front());
}

}  // namespace regroup
