#include "converter/target/recorded_target.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "converter/target/equivalence.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/checkpoint/tensor_reader.h"
#include "formats/dtype/numbers.h"
#include "formats/families/family.h"
#include "formats/json/json.h"

namespace regroup {
namespace {

// Ignores differences that llama.cpp's graphs cannot express. Rows of the output projection that
// were normalised when the file was written do not change when they are normalised again.
ModelSpec as_recorded(ModelSpec stored, const ModelSpec& recorded) {
  stored.activation = recorded.activation;
  use_windows_of(stored, recorded);
  stored.rope.scaling = recorded.rope.scaling;
  stored.lm_head_normalised = recorded.lm_head_normalised;
  return stored;
}

// Clears the name of a tensor that the file has and the model lacks, if it has no effect.
void drop_filler(std::string& stored, const std::string& recorded, const Checkpoint& checkpoint) {
  if (recorded.empty() && !stored.empty() && holds_only_zeros(checkpoint, checkpoint.at(stored))) {
    stored.clear();
  }
}

void drop_fillers(LayerTensors& stored, const LayerTensors& recorded,
                  const Checkpoint& checkpoint) {
  const auto drop = [&](auto& from, const auto& like) {
    drop_filler(from.bias, like.bias, checkpoint);
  };
  drop(stored.attention.q, recorded.attention.q);
  drop(stored.attention.k, recorded.attention.k);
  drop(stored.attention.v, recorded.attention.v);
  drop(stored.attention.o, recorded.attention.o);
  drop(stored.gate, recorded.gate);
  drop(stored.up, recorded.up);
  drop(stored.down, recorded.down);
  drop(stored.attention_norm, recorded.attention_norm);
  drop(stored.mlp_norm, recorded.mlp_norm);
}

// The file's model without tensors that only a graph of llama.cpp requires: zero biases, and a copy
// of the embedding as the output.
ModelSpec without_fillers(ModelSpec stored, const ModelSpec& recorded,
                          const Checkpoint& checkpoint) {
  for (std::size_t i = 0; i < stored.layers.size(); ++i) {
    drop_fillers(stored.layers[i], recorded.layers[i], checkpoint);
  }
  drop_filler(stored.final_norm.bias, recorded.final_norm.bias, checkpoint);
  drop_filler(stored.lm_head_bias, recorded.lm_head_bias, checkpoint);
  if (recorded.lm_head.empty() && !stored.lm_head.empty() &&
      repeats(checkpoint, checkpoint.at(stored.lm_head), stored.token_embedding)) {
    stored.lm_head.clear();
  }
  return stored;
}

}  // namespace

void use_windows_of(ModelSpec& spec, const ModelSpec& other) {
  spec.sliding_window = other.sliding_window;
  spec.window_rope = other.window_rope;
  for (std::size_t i = 0; i < std::min(spec.layers.size(), other.layers.size()); ++i) {
    spec.layers[i].without_window = other.layers[i].without_window;
  }
}

bool holds_only_zeros(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  bool zeros = can_decode(tensor.dtype);
  for_each_part(TensorReader(checkpoint, tensor),
                [&](std::uint64_t, std::span<const std::byte> bytes) {
                  zeros = zeros && std::all_of(bytes.begin(), bytes.end(),
                                               [](std::byte byte) { return byte == std::byte{}; });
                });
  return zeros;
}

bool repeats(const Checkpoint& checkpoint, const TensorInfo& tensor, const std::string& other) {
  const TensorInfo* original = checkpoint.find(other);
  return original != nullptr && same_contents(checkpoint, tensor, *original);
}

void record_source(GgufMetadata& metadata, const Model& source, const std::string& config_text) {
  Json dtypes = Json::object();
  for (const TensorInfo& tensor : source.checkpoint.tensors()) {
    dtypes[tensor.name] = std::string(name_of(tensor.dtype));
  }
  metadata.set_string(kSourceConfigKey, config_text);
  metadata.set_string(kSourceDtypesKey,
                      dtypes.dump(-1, ' ', false, Json::error_handler_t::replace));
}

std::optional<Target> recorded_target(const Model& source, const ModelSpec& grouped) {
  if (!source.gguf || !source.gguf->contains(kSourceConfigKey)) {
    return std::nullopt;
  }
  const std::string where =
      printable(source.path.string(), 0) + ": " + std::string(kSourceConfigKey);
  Target target;
  target.in_place = false;
  target.config_text = *source.gguf->text(kSourceConfigKey);
  target.spec = describe_model(parse_json_object(target.config_text, where), Checkpoint({}), where);
  if (target.spec.layers.size() != grouped.layers.size()) {
    throw_bad_input("{} has {} layers, the file has {}", where, target.spec.layers.size(),
                    grouped.layers.size());
  }
  target.spec.kv_heads = grouped.kv_heads;
  target.spec.alibi.slopes = grouped.alibi.slopes;  // from the file, or of the heads that move now
  const ModelSpec stored = without_fillers(grouped, target.spec, source.checkpoint);
  if (!stored.lm_head.empty() && target.spec.lm_head.empty()) {  // see settle_ties()
    target.spec.lm_head = target.spec.tied_head;
  }
  const auto obstacles = obstacles_between(as_recorded(stored, target.spec), target.spec);
  if (!obstacles.empty()) {
    throw_bad_input("{} does not describe the model in the file: {}", where, obstacles.front());
  }
  return target;
}

std::optional<DType> recorded_dtype(const Model& source, const std::string& tensor) {
  if (!source.gguf || !source.gguf->contains(kSourceDtypesKey)) {
    return std::nullopt;
  }
  const Json dtypes = Json::parse(*source.gguf->text(kSourceDtypesKey), nullptr, false);
  const auto found = dtypes.is_object() ? dtypes.find(tensor) : dtypes.end();
  return found != dtypes.end() && found->is_string() ? dtype_from_name(found->get<std::string>())
                                                     : std::nullopt;
}

}  // namespace regroup
