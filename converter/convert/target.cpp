#include "converter/convert/target.h"

#include <algorithm>
#include <array>
#include <map>
#include <span>
#include <utility>

#include <fmt/ranges.h>

#include "converter/convert/equivalence.h"
#include "converter/convert/loader_choice.h"
#include "converter/convert/runtimes.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/ranges.h"
#include "formats/families/family.h"
#include "formats/families/gguf_model.h"
#include "formats/spec/config_writers.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/gguf.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "formats/vocabulary/vocabulary.h"

namespace regroup {
namespace {

// Architectures whose stock loaders support grouped heads, in the order of preference.
constexpr std::array<std::string_view, 8> kGrouped{
    "PhiForCausalLM",   "Starcoder2ForCausalLM", "NemotronForCausalLM", "GPTBigCodeForCausalLM",
    "LlamaForCausalLM", "MistralForCausalLM",    "Qwen2ForCausalLM",    "DeciLMForCausalLM"};

constexpr std::size_t kShownObstacles = 3;

std::string text_of_all(std::vector<std::string> obstacles) {
  // Layers often have the same one.
  obstacles.erase(std::unique(obstacles.begin(), obstacles.end()), obstacles.end());
  return first_of(obstacles, kShownObstacles);
}

// Copies the keys that mean the same in every architecture.
void carry_over(const Json& from, Json& to) {
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id",
                          "torch_dtype", "dtype", "initializer_range"}) {
    if (from.contains(key)) {
      to[key] = from[key];
    }
  }
}

// Copies a GGUF file's special tokens, under config.json's names.
void carry_over(const GgufMetadata& from, std::int64_t vocab_size, Json& to) {
  const std::map<std::string, std::int64_t> ids = special_ids_in(from);
  for (const char* role : {"bos", "eos", "pad", "unk"}) {
    const auto id = ids.find(role);
    if (id != ids.end() && id->second < vocab_size) {
      to[fmt::format("{}_token_id", role)] = id->second;
    }
  }
}

struct Candidate {
  Target target;
  std::vector<std::string> obstacles;
};

Candidate try_architecture(const Model& source, const ModelSpec& grouped,
                           std::string_view architecture) {
  Candidate candidate;
  candidate.target.in_place = false;
  Json config = write_config(architecture, grouped);
  carry_over(source.config, config);
  if (source.gguf) {
    carry_over(*source.gguf, grouped.vocab_size, config);
  }
  candidate.target.config_text = config.dump(2) + "\n";
  try {
    candidate.target.spec = describe_model(config, Checkpoint({}), architecture);
    candidate.obstacles = obstacles_between(grouped, candidate.target.spec);
  } catch (const Error& fault) {  // no config of this architecture describes the model
    candidate.obstacles.push_back(fault.what());
  }
  if (grouped.limited_to_positions) {
    candidate.target.notes.push_back(
        fmt::format("the same up to {} tokens: in longer sequences, {} changes its attention",
                    grouped.max_positions.value_or(0), printable(grouped.architecture)));
  }
  if (!grouped.not_computable.empty()) {
    candidate.obstacles.insert(candidate.obstacles.begin(), printable(grouped.not_computable));
  }
  return candidate;
}

// Whether the target's attention has biases that the source lacks, which would be zeros.
bool has_more_biases(const ModelSpec& source, const ModelSpec& target) {
  for (std::size_t i = 0; i < source.layers.size(); ++i) {
    const AttentionLayout& from = source.layers[i].attention;
    const AttentionLayout& to = target.layers[i].attention;
    if (from.q.bias.empty() > to.q.bias.empty() || from.o.bias.empty() > to.o.bias.empty()) {
      return true;
    }
  }
  return false;
}

// Returns the first equivalent architecture of the list, preferably one without biases that would
// be zeros. Gives the reasons if there is none.
std::optional<Target> first_exact(const Model& source, const ModelSpec& grouped,
                                  std::span<const std::string_view> architectures,
                                  bool for_grouped_heads, std::string& reasons) {
  std::optional<Target> with_zeros;
  std::map<std::string, std::vector<std::string_view>> refused;  // architectures by obstacle
  for (const std::string_view architecture : architectures) {
    Candidate candidate = try_architecture(source, grouped, architecture);
    if (candidate.obstacles.empty() && for_grouped_heads &&
        !loaders_take_heads(candidate.target.spec)) {
      candidate.obstacles.push_back("its loaders do not support these kv heads");
    }
    if (!candidate.obstacles.empty()) {
      refused[candidate.obstacles.front()].push_back(architecture);
    } else if (!has_more_biases(grouped, candidate.target.spec)) {
      return std::move(candidate.target);
    } else if (!with_zeros) {
      with_zeros = std::move(candidate.target);
    }
  }
  if (with_zeros) {
    return with_zeros;
  }
  std::vector<std::string> lines;
  for (const auto& [reason, names] : refused) {
    lines.push_back(fmt::format("{} ({})", fmt::join(names, ", "), reason));
  }
  reasons = fmt::format("{}", fmt::join(lines, "; "));
  return std::nullopt;
}

// The source's own architecture with the heads of `grouped`.
Target same_target(const Model& source, const ModelSpec& grouped) {
  Target target{{.config_text = source.config_text, .gguf = source.gguf}, grouped};
  if (grouped.positions != source.spec.positions) {
    use_own_names(target);
    target.notes.push_back(
        "positions are now ALiBi's: stock loaders would compute the old ones, so the model_type is "
        "one that they refuse; regroup runs and uptrains the result");
  }
  return target;
}

// The same with each kv head stored `stored` / G times, in every role of `grouped` that is not
// stored that way already.
Target expanded_target(const Model& source, const ModelSpec& grouped, std::int64_t stored) {
  Target target = same_target(source, grouped);
  if (stored < 1 || grouped.query_heads % stored != 0) {
    throw_usage("{} kv heads cannot be stored for {} query heads: no divisor", stored,
                grouped.query_heads);
  }
  for (const AttentionRole role : grouped.roles()) {
    for (std::int64_t& heads : target.spec.kv_heads_of(role)) {
      if (heads == 0 || heads == grouped.query_heads) {
        continue;  // no attention, or nothing to repeat
      }
      if (stored % heads != 0) {
        throw_usage("{} kv heads cannot be stored as {}: no multiple", heads, stored);
      }
      heads = stored;
    }
  }
  if (grouped.qk_norm == QkNorm::kPerHead) {
    throw_usage("{}: every key head has its own norm; its heads cannot be stored repeatedly",
                printable(grouped.architecture));
  }
  return target;
}

// An architecture, by name or model_type, that computes exactly what `grouped` describes.
Target named_target(const Model& source, const ModelSpec& grouped, const std::string& name) {
  const std::string_view of_type = architecture_of_model_type(name);
  const std::string_view architecture = of_type.empty() ? std::string_view(name) : of_type;
  if (const auto known = writable_architectures(); !contains(known, architecture)) {
    if (contains(std::array{"vllm", "transformers", "mlx", "mlx-lm", "llama.cpp", "sglang"},
                 name)) {
      throw_usage(
          "--target {0}: is a program, where auto or an architecture is expected; the result's "
          "README.md says how {0} loads it",
          name);
    }
    throw_usage("--target {}: allowed are same, auto, expanded, and {}", printable(name),
                fmt::join(known, ", "));
  }
  Candidate candidate = try_architecture(source, grouped, architecture);
  if (!candidate.obstacles.empty()) {
    throw_usage("{} cannot be written as {}: {}; --target same keeps its own form",
                printable(grouped.architecture), printable(name), text_of_all(candidate.obstacles));
  }
  return std::move(candidate.target);
}

// The source's own architecture if its stock loaders support these heads, else the first
// equivalent one whose loaders do.
Target automatic_target(const Model& source, const ModelSpec& grouped) {
  if (source.convention == Convention::kHuggingFace && loaders_take_heads(grouped)) {
    return same_target(source, grouped);
  }
  std::string reasons;
  std::optional<Target> target = first_exact(source, grouped, kGrouped, true, reasons);
  if (!target) {
    throw_usage(
        "{}: no equivalent architecture supports grouped heads: {}; try --to gguf or --target "
        "expanded",
        printable(grouped.architecture), reasons);
  }
  const std::string loaders =
      runtimes_that_load({parse_json_object(target->config_text, "config.json"), target->spec});
  target->notes.push_back(
      fmt::format("written as {}{}", target->spec.architecture,
                  loaders.empty() ? "" : fmt::format(", which {} load", loaders)));
  return std::move(*target);
}

// A Hugging Face architecture for a model of another convention: the one recorded in a GGUF file,
// else an equivalent one.
Target hugging_face_target(const Model& source, const ModelSpec& grouped) {
  std::optional<Target> target = recorded_target(source, grouped);
  if (!target) {
    std::string reasons;
    target = first_exact(source, grouped, writable_architectures(), false, reasons);
    if (!target) {
      throw_usage(
          "{}: no config.json can be written for {}{} with these settings: convert the files of "
          "the "
          "model's original repository, or keep this form (--to gguf)",
          printable_path(source.path), printable(grouped.architecture),
          grouped.routing.experts > 0 ? " with experts" : "");
    }
    target->notes.push_back(fmt::format("written as {}", target->spec.architecture));
  }
  return std::move(*target);
}

// A GGUF file's own metadata with other kv heads.
Target regrouped_gguf(const Model& source, const ModelSpec& grouped) {
  Target target{{.gguf = source.gguf}, grouped};
  const std::string key =
      std::string(*source.gguf->text("general.architecture")) + ".attention.head_count_kv";
  const auto& heads = grouped.kv_heads;
  if (heads == source.spec.kv_heads) {
    return target;
  }
  if (target.gguf->contains("general.size_label")) {
    set_size_label(*target.gguf, grouped);
  }
  if (!source.spec.loaders_read_kv_heads) {
    throw_usage("{}: llama.cpp's graph {} takes as many kv heads as query heads only",
                printable_path(source.path), printable(source.spec.architecture));
  }
  if (all_equal(heads)) {
    target.gguf->set_u32(key, static_cast<std::uint32_t>(heads.front()));
  } else {
    target.gguf->set_array(key, std::vector<std::int32_t>(heads.begin(), heads.end()));
  }
  return target;
}

namespace fs = std::filesystem;

// The file with the metadata: a GGUF file without tensors.
constexpr std::string_view kGgufMetadataFile = "gguf-metadata.kv";
constexpr std::uint64_t kMaxTokenizerFile = 256U << 20;

// Keys that describe the weights as they are stored in one file, not the model.
constexpr std::array<std::string_view, 4> kOfTheFile{
    "general.architecture", kGgufAlignmentKey, "general.file_type", "general.quantization_version"};
constexpr std::array<std::string_view, 3> kNamespacesOfTheFile{"split.", "quantize.", "regroup."};

bool describes_file(std::string_view key) {
  return contains(kOfTheFile, key) ||
         std::ranges::any_of(kNamespacesOfTheFile,
                             [&](std::string_view prefix) { return key.starts_with(prefix); });
}

// The metadata without what describes the file, and without the architecture's own, which the
// config states.
GgufMetadata lasting(const GgufMetadata& metadata) {
  const std::string own = std::string(metadata.text("general.architecture").value_or("")) + ".";
  GgufMetadata kept;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (!describes_file(entry.key) && !entry.key.starts_with(own)) {
      kept.set(entry);
    }
  }
  return kept;
}

// Whether the directory's tokenizer is the one that was made from `metadata`.
bool has_tokenizer_of(const Model& source, const GgufMetadata& metadata, std::int64_t rows) {
  const auto tokens = metadata.array("tokenizer.ggml.tokens");
  if (!tokens || tokens->size() != static_cast<std::uint64_t>(rows)) {
    return false;
  }
  try {
    for (const NamedText& file : tokenizer_files_of(metadata)) {
      const fs::path path = source.path / file.name;
      if (!path_exists(path) || read_text(path, kMaxTokenizerFile) != file.text) {
        return false;
      }
    }
    return true;
  } catch (const Error&) {  // no tokenizer could be made from it
    return !tokenizer_file_in(source.path);
  }
}

// Sets the tokenizer and the "general.*" keys of `target`, a GGUF file that is made from the
// directory `source`. If the directory has metadata of a GGUF file and its tokenizer files are
// still those made from them, the tokenizer keys are those of the metadata, else they are made from
// the tokenizer files. Throws kBadInput for malformed files.
void restore_gguf_origin(Target& target, const Model& source) {
  std::optional<GgufMetadata> kept;
  if (contains(source.companions, fs::path(kGgufMetadataFile))) {
    kept = open_gguf(source.path / kGgufMetadataFile).metadata;
  }
  const bool same_tokenizer = kept && has_tokenizer_of(source, *kept, target.spec.vocab_size);
  if (!same_tokenizer) {
    const Vocabulary vocabulary = read_vocabulary(source.path, target.spec.vocab_size);
    set_vocabulary(*target.gguf, vocabulary);
    append(target.notes, vocabulary.notes);
    if (kept && has_tokenizer(*kept)) {
      target.notes.push_back(
          fmt::format("the tokenizer is that of the directory's own files: they are no longer what "
                      "was made from {}",
                      kGgufMetadataFile));
    }
  }
  for (std::size_t i = 0; kept && i < kept->entries().size(); ++i) {
    const GgufMetadata::Entry& entry = kept->entries()[i];
    if (!describes_file(entry.key) && (same_tokenizer || !entry.key.starts_with("tokenizer."))) {
      target.gguf->set(entry);
    }
  }
}

// The graph of llama.cpp that computes `grouped`: a GGUF file's own, or one for another source.
Target gguf_target(const Model& source, const ModelSpec& grouped) {
  if (source.convention == Convention::kGguf) {
    return regrouped_gguf(source, grouped);
  }
  Target target;
  target.in_place = false;
  target.gguf = gguf_metadata_for(grouped);
  target.spec = describe_gguf(*target.gguf, gguf_parts_for(grouped));
  target.notes = gguf_differences(grouped);
  describe_source(*target.gguf, source);
  restore_gguf_origin(target, source);
  set_size_label(*target.gguf, grouped);
  return target;
}

// What Meta's loader knows and params.json has not: special tokens, as transformers' tokenizer, and
// the context.
void keep_meta_origin(Target& target, const Model& source) {
  if (!target.spec.max_positions) {
    target.notes.emplace_back(
        "params.json has no max_seq_len: transformers and vLLM take 2048 tokens as the context, "
        "unless config.json gets another max_position_embeddings (4096 for Llama 2)");
  }
  const auto file = tokenizer_file_in(source.path);
  if (!file || file->filename() != "tokenizer.model" || !is_vocabulary_file(*file)) {
    return;  // SentencePiece's file is one of Llama 2's, whose special tokens are the defaults
  }
  const Vocabulary vocabulary = read_vocabulary(source.path, target.spec.vocab_size);
  append(target.notes, vocabulary.notes);
  if (!vocabulary.present()) {
    return;
  }
  Json config = parse_json_object(target.config_text, "config.json");
  for (const auto& [role, id] : vocabulary.special_ids) {
    config[role + "_token_id"] = id;
  }
  target.config_text = config.dump(2) + "\n";
  const auto turn_end = std::ranges::find(vocabulary.tokens, "<|eot_id|>");
  append(target.files, tokenizer_files_of(vocabulary, printable_path(*file),
                                          {turn_end - vocabulary.tokens.begin()}));
}

void keep_gguf_origin(Target& target, const Model& source) {
  if (!has_tokenizer(*source.gguf)) {
    return;
  }
  append(target.files, tokenizer_files_of(*source.gguf));
  const Vocabulary vocabulary = vocabulary_in(*source.gguf);
  if (vocabulary.model == "gpt2" && (vocabulary.pre.empty() || vocabulary.pre == "default")) {
    target.notes.emplace_back(
        "tokenizer.ggml.pre names no split: tokenizer.json splits text as llama.cpp does without "
        "one; if the original model's splits otherwise, copy that");
  }
}

}  // namespace

bool loaders_take_heads(const ModelSpec& spec) {
  const auto all = [&](AttentionRole role, std::int64_t count) {
    const std::vector<std::int64_t>& heads = spec.kv_heads_of(role);
    return std::ranges::all_of(heads,
                               [&](std::int64_t stored) { return stored == count || stored == 0; });
  };
  const auto roles = spec.roles();
  const bool plain =
      std::ranges::all_of(roles, [&](AttentionRole role) { return all(role, spec.query_heads); });
  const bool reads =
      spec.loaders_read_kv_heads && (spec.loaders_let_layers_differ || is_uniform(spec.kv_heads));
  return plain || reads || (!spec.multi_query_key.empty() && all(AttentionRole::kSelf, 1));
}

bool loaders_are_unknown(const ModelSpec& spec) {
  return spec.attention_only() || (!spec.whole_model.empty() && !spec.not_computable.empty());
}

Container container_of(const Model& source) {
  return source.convention == Convention::kGguf ? Container::kGguf : Container::kSafetensors;
}

bool is_single_file(Container container) { return container == Container::kGguf; }

Target choose_target(const Model& source, const ModelSpec& grouped, Container container,
                     const std::string& asked, std::optional<std::int64_t> stored) {
  if (asked == "expanded") {
    Target target = expanded_target(source, grouped, stored.value_or(grouped.query_heads));
    return container == Container::kGguf ? gguf_target(source, target.spec) : std::move(target);
  }
  if (container == Container::kGguf) {
    return gguf_target(source, grouped);
  }
  if (asked == "auto" && grouped.whole_model.empty()) {
    return automatic_target(source, grouped);
  }
  if (asked == "auto" && !loaders_take_heads(grouped)) {
    throw_usage(
        "the loaders of the {} inside a {} model do not support these kv heads: try --target "
        "expanded, or same to write them anyway",
        grouped.family, printable(grouped.whole_model));
  }
  if (asked != "same" && asked != "auto") {
    return named_target(source, grouped, asked);
  }
  return source.convention == Convention::kHuggingFace ? same_target(source, grouped)
                                                       : hugging_face_target(source, grouped);
}

void keep_origin(Target& target, const Model& source) {
  if (source.gguf) {
    target.files.push_back({std::string(kGgufMetadataFile), encode_gguf(lasting(*source.gguf))});
  }
  try {
    if (source.gguf) {
      keep_gguf_origin(target, source);
    } else if (source.convention == Convention::kMeta) {
      keep_meta_origin(target, source);
    }
  } catch (const Error& fault) {
    target.notes.push_back(
        fmt::format("no tokenizer is written: {}. Copy tokenizer.json (or tokenizer.model) and "
                    "tokenizer_config.json of the original model into the result",
                    fault.what()));
  }
}

}  // namespace regroup
