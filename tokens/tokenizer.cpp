#include "tokens/tokenizer.h"

#include <algorithm>
#include <array>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/hub_cache.h"
#include "formats/base/printable.h"
#include "formats/directory/model_directory.h"
#include "formats/gguf/gguf.h"
#include "formats/json/json.h"
#include "tokens/gguf_tokenizer.h"
#include "tokens/json_tokenizer.h"
#include "tokens/sentencepiece_tokenizer.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::uint64_t kMaxConfigBytes = 16U << 20;

class ByteTokenizer : public Tokenizer {
 public:
  void encode(std::string_view text, bool, std::vector<std::uint32_t>& ids) const override {
    for (const char byte : text) {
      ids.push_back(static_cast<unsigned char>(byte));
    }
  }
  std::int64_t vocabulary() const override { return 256; }
  bool reads_utf8() const override { return false; }
};

// Prefixes of the class names of transformers' tokenizers that renumber SentencePiece's tokens, so
// that the ids in tokenizer.model are not the model's.
constexpr std::array<std::string_view, 9> kRenumbering{
    "XLMRoberta", "Camembert", "MBart", "Nllb", "M2M100", "Barthez", "XGLM", "Pegasus", "PLBart"};

nlohmann::json config_in(const fs::path& directory, const char* name) {
  const fs::path path = directory / name;
  return path_exists(path) ? parse_sorted_json_object(read_text(path, kMaxConfigBytes),
                                                      printable(path.string(), 0))
                           : nlohmann::json::object();
}

std::optional<bool> flag_in(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  return found != config.end() && found->is_boolean() ? std::optional(found->get<bool>())
                                                      : std::nullopt;
}

// A whole number, or the first of a list of them.
std::optional<std::int64_t> number_in(const nlohmann::json& config, const char* key) {
  const auto found = config.find(key);
  if (found == config.end()) {
    return std::nullopt;
  }
  const nlohmann::json& number = found->is_array() && !found->empty() ? found->front() : *found;
  return number.is_number_integer() ? std::optional(number.get<std::int64_t>()) : std::nullopt;
}

void check_numbering(const nlohmann::json& tokenizer_config, const fs::path& directory) {
  const auto found = tokenizer_config.find("tokenizer_class");
  const std::string name =
      found != tokenizer_config.end() && found->is_string() ? found->get<std::string>() : "";
  if (std::any_of(kRenumbering.begin(), kRenumbering.end(),
                  [&](std::string_view known) { return name.starts_with(known); })) {
    throw_bad_input(
        "{}: {} renumbers SentencePiece's tokens, and there is no tokenizer.json, which has its "
        "ids",
        printable(directory.string(), 0), printable(name));
  }
}

// The id of a role's token, from the files next to the tokenizer's.
std::optional<std::int64_t> special_id(const Tokenizer& tokenizer, const std::string& role,
                                       const nlohmann::json& config,
                                       const nlohmann::json& tokenizer_config) {
  const auto named = tokenizer_config.find(role + "_token");
  if (named != tokenizer_config.end()) {
    const nlohmann::json& text =
        named->is_object() && named->contains("content") ? named->at("content") : *named;
    if (const auto id =
            text.is_string() ? tokenizer.id_of(text.get_ref<const std::string&>()) : std::nullopt) {
      return id;
    }
  }
  return number_in(config, (role + "_token_id").c_str());
}

// Adds the settings of the model's other files to those of the tokenizer's own.
DocumentEnds ends_of(const Tokenizer& tokenizer, const nlohmann::json& config,
                     const nlohmann::json& tokenizer_config) {
  DocumentEnds ends = tokenizer.ends();
  ends.bos = ends.bos ? ends.bos : special_id(tokenizer, "bos", config, tokenizer_config);
  ends.eos = ends.eos ? ends.eos : special_id(tokenizer, "eos", config, tokenizer_config);
  ends.add_bos = flag_in(tokenizer_config, "add_bos_token").value_or(ends.add_bos) && ends.bos;
  ends.add_eos = flag_in(tokenizer_config, "add_eos_token").value_or(true) && ends.eos;
  return ends;
}

std::unique_ptr<Tokenizer> open_file(const fs::path& path) {
  std::unique_ptr<Tokenizer> tokenizer = is_gguf_file(path)            ? open_gguf_tokenizer(path)
                                         : path.extension() == ".json" ? open_tokenizer_json(path)
                                                                       : open_sentencepiece(path);
  tokenizer->set_file(path);
  return tokenizer;
}

std::unique_ptr<Tokenizer> open_in_directory(const fs::path& directory,
                                             const nlohmann::json& tokenizer_config) {
  const bool json = path_exists(directory / "tokenizer.json");
  const bool model = path_exists(directory / "tokenizer.model");
  if (json && (reads_tokenizer_json() || !model)) {
    return open_file(directory / "tokenizer.json");
  }
  if (!model) {
    throw_bad_input(
        "{}: holds no tokenizer.json and no tokenizer.model; models of bytes take --tokenizer "
        "bytes",
        printable(directory.string(), 0));
  }
  check_numbering(tokenizer_config, directory);
  return open_file(directory / "tokenizer.model");
}

std::unique_ptr<Tokenizer> open_directory(const fs::path& directory) {
  const nlohmann::json config = config_in(directory, "config.json");
  const nlohmann::json tokenizer_config = config_in(directory, "tokenizer_config.json");
  std::unique_ptr<Tokenizer> tokenizer = open_in_directory(directory, tokenizer_config);
  const auto vocabulary = number_in(config, "vocab_size");
  if (vocabulary && *vocabulary < tokenizer->vocabulary()) {
    throw_bad_input("{}: the tokenizer has {} tokens, the vocabulary in config.json {}",
                    printable(directory.string(), 0), tokenizer->vocabulary(), *vocabulary);
  }
  tokenizer->set_ends(ends_of(*tokenizer, config, tokenizer_config));
  return tokenizer;
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name) {
  if (name == "bytes") {
    return std::make_unique<ByteTokenizer>();
  }
  const fs::path path = resolve_model_path(name);
  std::error_code fault;
  if (!fs::is_directory(path, fault)) {
    return open_file(path);
  }
  const bool of_its_own =
      path_exists(path / "tokenizer.json") || path_exists(path / "tokenizer.model");
  const fs::path weights = of_its_own ? path : resolve_weights_path(path);
  return is_gguf_file(weights) ? open_file(weights) : open_directory(path);
}

}  // namespace regroup
