#include "formats/model/model_summary.h"

#include <algorithm>
#include <array>
#include <set>

#include "formats/base/error.h"
#include "formats/base/name_table.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/families/loader_code.h"
#include "formats/model/model.h"
#include "formats/model/model_directory.h"
#include "formats/model/weight_index.h"
#include "formats/tensors/gguf.h"

namespace regroup {

namespace {

// Adds the parameters and bytes of the layer's tensors that belong to the summary's role.
void count_tensors(LayerSummary& summary, const LayerTensors& layer, const Checkpoint& checkpoint) {
  for (const auto& [name, part] : parts_of_layer(layer)) {
    const bool of_cross = part == ModelPart::kCross;
    const TensorInfo* tensor = checkpoint.find(name);
    if (of_cross == (summary.role == AttentionRole::kCross) && tensor != nullptr) {
      summary.parameters += static_cast<std::uint64_t>(tensor->elements());
      summary.bytes += tensor->bytes();
    }
  }
}

std::optional<std::uint64_t> kv_bytes(const std::optional<KvCacheCost>& cache, AttentionRole role,
                                      std::size_t layer) {
  if (!cache || role == AttentionRole::kEncoder) {
    return std::nullopt;
  }
  return (role == AttentionRole::kCross ? cache->cross : cache->self)[layer];
}

// The names that `for_each` passes to its argument. A tensor belongs to the first part that names
// it, since fused queries, keys and values are one tensor.
template <typename ForEach>
ModelParts first_parts(std::size_t layers, const ForEach& for_each) {
  constexpr std::size_t kUsualTensors = 9;  // per layer
  ModelParts parts;
  parts.reserve(kUsualTensors * layers);
  NameTable known(kUsualTensors * layers);
  for_each([&](std::string_view name, ModelPart part) {
    if (!name.empty() && !known.insert(name, parts.size())) {
      parts.emplace_back(name, part);
    }
  });
  return parts;
}

}  // namespace

std::vector<LayerSummary> summarize_layers(const ModelSpec& config, const Checkpoint& checkpoint) {
  const ModelSpec spec = with_stored_heads(config, checkpoint);
  const auto cache = kv_cache_cost(spec, cache_dtype_of(spec, checkpoint));
  std::vector<LayerSummary> layers;
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
      LayerSummary layer{role, i, spec.attention(role, i).present() ? spec.query_heads : 0,
                         spec.kv_heads_of(role)[i], config.kv_heads_of(role)[i]};
      // Cross-attention sees the whole source. No known encoder has a window either.
      layer.window = role == AttentionRole::kSelf ? spec.window_of(spec.layers[i]) : std::nullopt;
      count_tensors(layer, spec.stack(role)[i], checkpoint);
      layer.kv_bytes_per_token = kv_bytes(cache, role, i);
      layers.push_back(layer);
    }
  }
  return layers;
}

std::string_view name_of(ModelPart part) {
  // In the order of the enumeration.
  constexpr std::array<std::string_view, 9> kNames{"embedding", "positions",       "encoder",
                                                   "attention", "cross-attention", "mlp",
                                                   "experts",   "norms",           "output"};
  return kNames[static_cast<std::size_t>(part)];
}

ModelParts parts_of_layer(const LayerTensors& layer) {
  return first_parts(1, [&](const auto& visit) { for_each_tensor(layer, visit); });
}

ModelParts parts_of(const ModelSpec& spec) {
  return first_parts(spec.encoder_layers.size() + spec.layers.size(),
                     [&](const auto& visit) { for_each_tensor_of_model(spec, visit); });
}

std::vector<std::string> names_read_per_step(const ModelSpec& spec) {
  std::vector<std::string> names;
  for (const auto& [name, part] : parts_of(spec)) {
    // An embedding that is also the output matrix is read completely.
    const bool tied = name == spec.token_embedding && spec.lm_head.empty();
    if (part != ModelPart::kEncoder && part != ModelPart::kPositions &&
        (part != ModelPart::kEmbedding || tied || name == spec.project_in.weight)) {
      names.emplace_back(name);
    }
  }
  return names;
}

std::uint64_t bytes_of_experts(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::uint64_t bytes = 0;
  for (const LayerTensors& layer : spec.layers) {
    for (const auto& [name, part] : parts_of_layer(layer)) {
      const bool counts = part == ModelPart::kExperts && name != layer.experts.router;
      const TensorInfo* tensor = counts ? checkpoint.find(name) : nullptr;
      bytes += tensor != nullptr ? tensor->bytes() : 0;
    }
  }
  return bytes;
}

std::uint64_t bytes_read_per_step(const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::uint64_t bytes = 0;
  for (const std::string& name : names_read_per_step(spec)) {
    const TensorInfo* tensor = checkpoint.find(name);
    bytes += tensor != nullptr ? tensor->bytes() : 0;
  }
  const double idle =
      static_cast<double>(bytes_of_experts(spec, checkpoint)) * (1.0 - spec.share_of_experts(1));
  return bytes - static_cast<std::uint64_t>(idle);
}

namespace {

namespace fs = std::filesystem;

void count_tensors(ModelSummary& summary, const Checkpoint& checkpoint) {
  summary.tensors = checkpoint.tensors().size();
  summary.files = checkpoint.files().size();
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    summary.bytes += tensor.bytes();
    summary.bytes_by_dtype[std::string(name_of(tensor.dtype))] += tensor.bytes();
    summary.parameters += static_cast<std::uint64_t>(tensor.elements());
  }
  const auto most = std::ranges::max_element(
      summary.bytes_by_dtype, [](const auto& a, const auto& b) { return a.second < b.second; });
  summary.dtype = most == summary.bytes_by_dtype.end() ? "" : most->first;
}

std::string attention_kind(std::int64_t query_heads, const std::vector<std::int64_t>& kv_heads) {
  std::set<std::int64_t> attending(kv_heads.begin(), kv_heads.end());
  attending.erase(0);  // layers without attention
  std::set<std::string> kinds;
  for (const std::int64_t heads : attending) {
    kinds.insert(heads == query_heads ? "mha" : heads == 1 ? "mqa" : "gqa");
  }
  const bool same_count = attending.size() <= 1;
  return kinds.empty() ? "" : same_count ? *kinds.begin() : "mixed";
}

// Does not count buffers such as GPT-2's causal mask.
void count_parameters(ModelSummary& summary, const ModelSpec& spec, const Checkpoint& checkpoint) {
  std::map<ModelPart, std::uint64_t> counts;
  for (const auto& [name, part] : parts_of(spec)) {
    if (const TensorInfo* tensor = checkpoint.find(name)) {
      counts[part] += static_cast<std::uint64_t>(tensor->elements());
    }
  }
  std::uint64_t all = 0;
  for (const auto& [part, count] : counts) {
    summary.parameters_by_part[std::string(name_of(part))] = count;
    all += count;
  }
  if (!spec.attention_only()) {
    summary.parameters = all;
    if (spec.routing.experts > 0) {
      summary.active_parameters = all - static_cast<std::uint64_t>(spec.idle_expert_weights());
    }
  }
}

AttentionSummary summarize_attention(const ModelSpec& config, const Checkpoint& checkpoint,
                                     AttentionRole role) {
  AttentionSummary summary;
  summary.role = role;
  summary.config_kv_heads = config.kv_heads_of(role);
  summary.kv_heads = kv_heads_from_shapes(config, checkpoint, role);
  summary.attention = attention_kind(config.query_heads, summary.kv_heads);
  return summary;
}

// Costs depend on the stored kv heads, even if the config disagrees.
void describe_attention(ModelSummary& summary, const Checkpoint& checkpoint) {
  const ModelSpec& config = *summary.spec;
  std::map<AttentionRole, AttentionSummary> found;
  for (const AttentionRole role : config.roles()) {
    found.emplace(role, summarize_attention(config, checkpoint, role));
  }
  AttentionSummary& self = found[AttentionRole::kSelf];
  AttentionSummary& cross = found[AttentionRole::kCross];
  summary.cache_dtype = cache_dtype_of(config, checkpoint);
  summary.kv_cache = kv_cache_cost(config, self.kv_heads, cross.kv_heads, summary.cache_dtype);
  if (summary.kv_cache) {
    self.kv_bytes_per_token = summary.kv_cache->per_token();
    cross.kv_bytes_per_token = summary.kv_cache->cross_per_token();
  }
  static_cast<AttentionSummary&>(summary) = self;
  if (config.has_encoder()) {
    for (const AttentionRole role : config.roles()) {
      summary.roles.push_back(found[role]);
    }
  }
}

void describe_with_spec(ModelSummary& summary, ModelSpec described, const Checkpoint& checkpoint,
                        const Json& config) {
  summary.spec = std::move(described);
  const ModelSpec& spec = *summary.spec;
  summary.family = spec.family;
  summary.architecture = spec.architecture;
  summary.layers = spec.layer_count();
  summary.hidden_size = spec.hidden_size;
  summary.query_heads = spec.query_heads;
  summary.head_dim = spec.head_dim;
  if (!spec.attention_only()) {
    summary.vocab_size = spec.vocab_size;
  }
  if (!spec.attention_only() || spec.positions != PositionKind::kNone) {
    summary.positions = name_of(spec.positions);
  }
  describe_attention(summary, checkpoint);
  count_parameters(summary, spec, checkpoint);
  summary.disagreements = disagreements_in(spec, checkpoint, config);
  if (spec.positions == PositionKind::kAlibi) {
    summary.alibi_slopes = alibi_slopes_per_layer(spec);
  }
}

std::optional<std::int64_t> number_in(const Json& value) {
  return value.is_number_integer() && value > 0 ? std::optional(value.get<std::int64_t>())
                                                : std::nullopt;
}

// The number of layers according to the names: how many different "<n>" there are in "….<n>.…".
std::int64_t count_layers(const Checkpoint& checkpoint) {
  std::set<std::string_view> seen;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    const std::string_view name = tensor.name;
    for (std::size_t dot = name.find('.'); dot != std::string_view::npos;
         dot = name.find('.', dot + 1)) {
      const std::string_view part = name.substr(dot + 1, name.find('.', dot + 1) - dot - 1);
      if (!part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos) {
        seen.insert(part);
        break;
      }
    }
  }
  return static_cast<std::int64_t>(seen.size());
}

// The recorded values, one per layer: the record holds one value for all layers or a list. Returns
// nothing if it holds neither.
template <typename T, typename Accept>
std::vector<T> per_layer_in(const Json& recorded, std::int64_t layers, Accept accept) {
  const auto count = static_cast<std::size_t>(layers);
  if (accept(recorded)) {
    return std::vector<T>(count, recorded.get<T>());
  }
  const bool one_each =
      recorded.is_array() && recorded.size() == count && std::ranges::all_of(recorded, accept);
  return one_each ? recorded.get<std::vector<T>>() : std::vector<T>();
}

// Describes a weight file without a config by its metadata, if regroup wrote it.
void describe_bare_file(ModelSummary& summary, const Checkpoint& checkpoint) {
  const ConversionRecord& record = summary.record;
  summary.family = "unknown";
  if (record.architecture.value) {
    summary.architecture = *record.architecture.value;
    summary.family = family_of_architecture(summary.architecture);
  }
  summary.layers = count_layers(checkpoint);
  summary.query_heads = number_in(record.query_heads.stored);
  summary.head_dim = number_in(record.head_dim.stored);
  if (!summary.query_heads || !summary.head_dim) {
    return;
  }
  const std::int64_t query_heads = *summary.query_heads;
  summary.kv_heads =
      per_layer_in<std::int64_t>(record.kv_heads.stored, summary.layers, [&](const Json& heads) {
        return heads.is_number_unsigned() && heads > 0 && heads <= query_heads;
      });
  summary.attention = attention_kind(query_heads, summary.kv_heads);
  summary.alibi_slopes = per_layer_in<std::vector<double>>(
      record.alibi_slopes.stored, summary.layers, [&](const Json& slopes) {
        return slopes.is_array() && slopes.size() == static_cast<std::size_t>(query_heads) &&
               std::ranges::all_of(slopes, [](const Json& slope) { return slope.is_number(); });
      });
  summary.positions = summary.alibi_slopes.empty() ? "" : "alibi";
}

// For a graph that is not known, the summary only adds the architecture's name.
void name_unknown_graph(ModelSummary& summary, const GgufMetadata& metadata) {
  const GgufMetadata::Entry* architecture = metadata.find("general.architecture");
  if (architecture != nullptr && architecture->type == GgufType::kString) {
    summary.architecture = *metadata.text("general.architecture");
  }
}

// Kv heads are compared apart, and a base model may lack its head.
void add_tensor_faults(const ModelSpec& spec, const Checkpoint& checkpoint,
                       std::vector<std::string>& found) {
  constexpr std::size_t kShown = 8;
  ModelSpec stored = with_stored_heads(spec, checkpoint);
  stored = missing_head(stored, checkpoint).empty() ? stored : without_head(std::move(stored));
  std::vector<std::string> faults = tensor_faults(stored, checkpoint);
  if (faults.size() > kShown) {
    const std::size_t more = faults.size() - kShown;
    faults.resize(kShown);
    faults.push_back(fmt::format("{} more tensors do not fit the config", more));
  }
  append(found, faults);
}

}  // namespace

ModelSummary summarize_model(const fs::path& given, const Checkpoint& checkpoint,
                             const fs::path& layout) {
  const fs::path path = resolve_weights_path(given);
  ModelSummary summary;
  summary.path = path;
  count_tensors(summary, checkpoint);
  summary.record = ConversionRecord::in_metadata(checkpoint.metadata());
  if (auto spec = describe_without_config(path, checkpoint)) {
    describe_with_spec(summary, std::move(*spec), checkpoint, Json::object());
    return summary;
  }
  const fs::path config = directory_of_model(path) / "config.json";
  // One of several shards is not the whole model that the config describes.
  const bool whole_model = fs::is_directory(path) ||
                           path.filename().string().ends_with(".index.json") ||
                           path.filename() == "model.safetensors";
  if (whole_model && path_exists(config)) {
    const std::string where = printable_path(config);
    const Json json = parse_json_object(read_text(config, kMaxConfigBytes), where);
    describe_with_spec(summary, describe_model_or_layout(json, checkpoint, where, layout),
                       checkpoint, json);
    if (json.contains(kRecordKey)) {
      summary.record = ConversionRecord::in_config(json);
    }
  } else {
    describe_bare_file(summary, checkpoint);
    if (is_gguf_file(path)) {
      name_unknown_graph(summary, gguf_metadata_of(path));
    }
  }
  append(summary.disagreements, disagreements_of_index(path, checkpoint));
  return summary;
}

std::vector<std::string> disagreements_in(const ModelSpec& spec, const Checkpoint& checkpoint,
                                          const Json& config) {
  std::vector<std::string> found = kv_head_faults(spec, checkpoint);
  add_tensor_faults(spec, checkpoint, found);
  if (std::string lost = text_of_lost_head(config, missing_head(spec, checkpoint)); !lost.empty()) {
    found.push_back(std::move(lost));
  }
  append(found, spec.contradictions);
  append(found, misread_by_loaders(spec, config));
  return found;
}

std::vector<std::string> disagreements_of_index(const std::filesystem::path& path,
                                                const Checkpoint& checkpoint) {
  const auto index = index_of_checkpoint(path);
  if (!index) {
    return {};
  }
  const std::string where = printable(index->filename().string());
  std::vector<std::string> found;
  std::uint64_t stored = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    stored += tensor.bytes();
  }
  auto [said, absent] = listing_of_index(*index);
  if (said && *said != stored) {
    found.push_back(
        fmt::format("{}: total_size is {}, the tensors have {} bytes", where, *said, stored));
  }
  const std::size_t listed = absent.size();
  std::erase_if(absent, [&](const std::string& name) { return checkpoint.find(name) != nullptr; });
  if (!absent.empty() && absent.size() < listed) {  // all: they are called otherwise once opened
    found.push_back(fmt::format("{}: {} of the tensors that it lists are in no file, such as {}",
                                where, absent.size(), printable(absent.front())));
  }
  return found;
}

}  // namespace regroup
