#include "tokens/tokenizer.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/hub_cache.h"
#include "formats/model/model_directory.h"
#include "formats/tensors/gguf.h"
#include "formats/vocabulary/tokenizer_files.h"
#include "tokens/hf/work.h"
#include "tokens/text_stream.h"

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
  std::string decode(std::span<const std::uint32_t> ids) const override {
    return with_replacements(std::string(ids.begin(), ids.end()));
  }
  void for_each_token(const TokenVisitor& visit) const override {
    for (int byte = 0; byte < 256; ++byte) {
      visit(byte, fmt::format("<0x{:02X}>", byte));
    }
  }
  std::int64_t vocabulary() const override { return 256; }
  bool reads_utf8() const override { return false; }
};

// Prefixes of the class names of transformers' tokenizers that renumber SentencePiece's tokens, so
// that the ids in tokenizer.model are not the model's.
constexpr std::array<std::string_view, 9> kRenumbering{
    "XLMRoberta", "Camembert", "MBart", "Nllb", "M2M100", "Barthez", "XGLM", "Pegasus", "PLBart"};

void check_numbering(const SortedJson& tokenizer_config, const fs::path& directory) {
  const SortedJson& stated = member_of(tokenizer_config, "tokenizer_class");
  const std::string name = stated.is_string() ? stated.get<std::string>() : "";
  const auto is_prefix = [&](std::string_view known) { return name.starts_with(known); };
  if (std::ranges::any_of(kRenumbering, is_prefix)) {
    throw_bad_input(
        "{}: {} renumbers SentencePiece's tokens, and there is no tokenizer.json, which has its "
        "ids",
        printable_path(directory), printable(name));
  }
}

// The other files of a tokenizer's directory that describe it.
struct Neighbours {
  fs::path directory;
  SortedJson config = read_json_if_there(directory, "config.json", kMaxConfigBytes);
  SortedJson tokenizer_config =
      read_json_if_there(directory, "tokenizer_config.json", kMaxConfigBytes);
};

// The id of a role's token: that which the configs name, the tokenizer's `own`, or that of the
// model's config.
std::optional<std::int64_t> special_id(const Tokenizer& tokenizer, const std::string& role,
                                       std::optional<std::int64_t> own, const Neighbours& files) {
  const std::string named = named_token(files.directory, role);
  const auto id = named.empty() ? std::nullopt : tokenizer.id_of(named);
  const auto configured = first_number_in(files.config, role + "_token_id");
  if (!named.empty() && !id && own && !configured) {
    throw_bad_input("{}: the {} token is {}, which the tokenizer does not have",
                    printable_path(files.directory), role, printable(named, 60));
  }
  return id ? id : !named.empty() && configured ? configured : own ? own : configured;
}

// Adds the settings of the model's other files to those of the tokenizer's own. What a
// post-processor adds stays.
DocumentEnds ends_of(const Tokenizer& tokenizer, bool has_post_processor, const Neighbours& files) {
  DocumentEnds ends = tokenizer.ends();
  if (!has_post_processor || !ends.bos) {
    ends.bos = special_id(tokenizer, "bos", ends.bos, files);
  }
  if (!has_post_processor || !ends.eos) {
    ends.eos = special_id(tokenizer, "eos", ends.eos, files);
  }
  ends.add_bos =
      flag_in(files.tokenizer_config, "add_bos_token").value_or(ends.add_bos) && ends.bos;
  ends.add_eos = flag_in(files.tokenizer_config, "add_eos_token").value_or(true) && ends.eos;
  return ends;
}

std::unique_ptr<Tokenizer> open_file(const fs::path& path) {
  return is_gguf_file(path)            ? make_gguf_tokenizer(gguf_metadata_of(path))
         : path.extension() == ".json" ? open_tokenizer_json(path)
                                       : open_sentencepiece(path);
}

// A directory's own tokenizer file, and what the other files of the directory say.
std::unique_ptr<Tokenizer> open_with(const Neighbours& files, const fs::path& path) {
  const bool json = path.extension() == ".json" || is_vocabulary_file(path);
  const std::vector<AddedToken> added = added_tokens_beside(files.directory);
  std::unique_ptr<Tokenizer> tokenizer;
  if (json) {
    tokenizer = open_tokenizer_json(path, added);
  } else {
    check_numbering(files.tokenizer_config, files.directory);
    tokenizer = open_sentencepiece(path);
    if (!added.empty()) {
      const bool legacy = flag_in(files.tokenizer_config, "legacy").value_or(false);
      tokenizer = with_added_tokens(std::move(tokenizer), added, legacy);
    }
  }
  if (const auto rows = first_number_in(files.config, "vocab_size"); rows.value_or(0) > 0) {
    tokenizer->set_rows(*rows);
  }
  tokenizer->set_ends(ends_of(*tokenizer, json, files));
  std::vector<std::string> notes;
  tokenizer->set_chat_template(chat_template_in(files.directory, files.tokenizer_config, notes));
  return tokenizer;
}

// The tokenizer's own file in a model directory, or its GGUF file.
fs::path file_in(const fs::path& directory) {
  if (const auto own = tokenizer_file_in(directory, reads_tokenizer_json())) {
    return *own;
  }
  const fs::path weights = resolve_weights_path(directory);
  if (is_gguf_file(weights)) {
    return weights;
  }
  throw_bad_input(
      "{}: has no tokenizer (tokenizer.json, tokenizer.model, vocab.json with merges.txt, or "
      "vocab.txt); --tokenizer names one: a file, another model, or \"bytes\"",
      printable_path(directory));
}

bool is_own_name(const fs::path& name) {
  return name == "tokenizer.json" || name == "tokenizer.model" || name == "vocab.json" ||
         name == "vocab.txt";
}

}  // namespace

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name, const std::atomic<bool>& stop) {
  const Work::Watch watch(stop);
  return open_tokenizer(name);
}

std::unique_ptr<Tokenizer> open_tokenizer(const std::string& name) {
  if (name == "bytes") {
    return std::make_unique<ByteTokenizer>();
  }
  fs::path path = resolve_model_path(name);
  std::error_code fault;
  if (fs::is_directory(path, fault)) {
    path = file_in(path);
  }
  std::unique_ptr<Tokenizer> tokenizer =
      is_own_name(path.filename()) ? open_with({path.parent_path()}, path) : open_file(path);
  tokenizer->set_file(path);
  return tokenizer;
}

std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufMetadata& metadata) {
  const Vocabulary vocabulary = vocabulary_in(metadata);
  auto tokenizer =
      make_json_tokenizer(tokenizer_json_of(vocabulary, metadata.where()), metadata.where());
  DocumentEnds ends = tokenizer->ends();  // of the post-processor
  if (!ends.bos) {
    ends.bos = vocabulary.special_id("bos");
  }
  if (!ends.eos) {
    ends.eos = vocabulary.special_id("eos");
  }
  ends.add_eos = vocabulary.add_eos.value_or(true) && ends.eos;
  tokenizer->set_ends(ends);
  tokenizer->set_chat_template(vocabulary.chat_template);
  return tokenizer;
}

}  // namespace regroup
