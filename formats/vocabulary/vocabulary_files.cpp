#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <set>
#include <tuple>
#include <unordered_map>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/vocabulary/tokenizer_files.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr std::uint64_t kMaxFileBytes = 64U << 20;

// What transformers adds to such files for a class of tokenizers.
struct TokenizerClass {
  // The class without "Tokenizer", or the model_type, of letters and digits; separated by spaces.
  std::string_view names;
  std::string_view pre;          // see find_pre_tokenization(); empty: WordPiece
  std::string_view first, last;  // before and after a document; empty for none
};

constexpr auto kClasses = std::to_array<TokenizerClass>({
    {"gpt2 gptneo gptj gptbigcode opt codegen phi", "gpt-2", "", ""},
    {"qwen2", "qwen2", "", ""},
    {"roberta bart longformer", "gpt-2", "<s>", "</s>"},
    {"bert distilbert electra mobilebert nomicbert", "", "[CLS]", "[SEP]"},
});

std::string letters_and_digits(std::string_view name) {
  std::string kept;
  for (const char letter : name.substr(0, name.find("Tokenizer"))) {
    const auto byte = static_cast<unsigned char>(letter);
    if (std::isalnum(byte) != 0) {
      kept += static_cast<char>(std::tolower(byte));
    }
  }
  return kept;
}

const TokenizerClass& class_of(const fs::path& file, const SortedJson& config) {
  const fs::path directory = file.parent_path();
  const bool words = file.filename() == "vocab.txt";
  std::string name = token_text(config, "tokenizer_class");
  if (name.empty()) {
    name = token_text(read_json_if_there(directory, "config.json"), "model_type");
  }
  const std::string wanted = name.empty() ? words ? "bert" : "gpt2" : letters_and_digits(name);
  const auto* const found = std::ranges::find_if(kClasses, [&](const TokenizerClass& each) {
    return is_listed(wanted, each.names) && each.pre.empty() == words;
  });
  if (found == kClasses.end()) {
    throw_usage(
        "{}: a vocabulary of {}, which is read only from a tokenizer.json; "
        "AutoTokenizer.from_pretrained(DIRECTORY).save_pretrained(DIRECTORY) writes one",
        printable_path(file), printable(name, 60));
  }
  return *found;
}

json entry_of(std::int64_t id, std::string text) {
  return json_of(AddedToken{.id = id, .content = std::move(text), .special = true, .where = {}});
}

// The special tokens of the vocabulary: those with a role.
json special_tokens_of(const fs::path& directory, const json& vocab, const TokenizerClass& kind) {
  std::set<std::string> names{"<|endoftext|>", std::string(kind.first), std::string(kind.last)};
  if (kind.first == "[CLS]") {
    names.insert({"[PAD]", "[UNK]", "[MASK]"});
  } else if (!kind.first.empty()) {
    names.insert({"<pad>", "<unk>", "<mask>"});
  }
  for (const char* role : {"bos", "eos", "unk", "sep", "pad", "cls", "mask"}) {
    names.insert(named_token(directory, role));
  }
  json special = json::array();
  for (const std::string& name : names) {
    const auto id = vocab.find(name);
    if (!name.empty() && id != vocab.end() && id->is_number_unsigned()) {
      special.push_back(entry_of(id->get<std::int64_t>(), name));
    }
  }
  return special;
}

json edges_of(const fs::path& directory, const json& vocab, const TokenizerClass& kind) {
  json edges{{"type", "BertProcessing"}};
  for (const auto& [role, usual] : {std::pair("cls", kind.first), std::pair("sep", kind.last)}) {
    const std::string named = named_token(directory, role);
    const auto token = vocab.find(named.empty() ? std::string(usual) : named);
    if (token == vocab.end()) {
      return nullptr;
    }
    edges[role] = {token.key(), token.value()};
  }
  return edges;
}

std::vector<std::string> lines_of(const fs::path& file) {
  const std::string text = read_text(file, kMaxFileBytes);
  std::vector<std::string> lines;
  for (std::string_view rest = text; !rest.empty();) {
    std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(std::min(line.size() + 1, rest.size()));
    lines.emplace_back(line.substr(0, line.find_last_not_of('\r') + 1));
  }
  return lines;
}

json merges_in(const fs::path& file) {
  json merges = json::array();
  bool first = true;
  for (std::string& line : lines_of(file)) {
    const bool heading = std::exchange(first, false) && line.starts_with("#version");
    line.erase(line.find_last_not_of(' ') + 1);
    if (line.empty() || heading) {
      continue;
    }
    const std::size_t space = line.find(' ');
    if (space == std::string::npos || space == 0 ||
        line.find(' ', space + 1) != std::string::npos) {
      throw_bad_input("{}: the line {} is not a pair of tokens", printable_path(file),
                      printable(line, 60));
    }
    merges.push_back(std::move(line));
  }
  return merges;
}

// Of equal lines the last one counts, as in Python.
json words_in(const fs::path& file) {
  json vocab = json::object();
  std::uint64_t id = 0;
  for (const std::string& line : lines_of(file)) {
    if (!is_utf8(line)) {
      throw_bad_input("{}: line {} is not UTF-8", printable_path(file), id + 1);
    }
    vocab[line] = id++;
  }
  return vocab;
}

json bytes_tokenizer(json vocab, json merges, std::string_view pre_name, bool adds_space) {
  json tokenizer =
      byte_level_tokenizer(std::move(vocab), std::move(merges), *find_pre_tokenization(pre_name));
  tokenizer["pre_tokenizer"]["pretokenizers"].back()["add_prefix_space"] = adds_space;
  return tokenizer;
}

json words_tokenizer(json vocab, const SortedJson& config, const std::string& unknown) {
  json tokenizer = word_piece_tokenizer(std::move(vocab), unknown.empty() ? "[UNK]" : unknown,
                                        flag_in(config, "do_lower_case").value_or(true),
                                        member_of(config, "strip_accents"));
  tokenizer["normalizer"]["handle_chinese_chars"] =
      flag_in(config, "tokenize_chinese_chars").value_or(true);
  return tokenizer;
}

// Ranks of tiktoken: Llama 3's are the only ones that are published as tokenizer.model and of which
// the file itself decides how text is split.

constexpr std::size_t kLongestToken = 1024;
constexpr std::uint64_t kMostTokens = 200'000;  // Llama 4's, which splits text otherwise
constexpr std::string_view kTextBegin = "<|begin_of_text|>", kTextEnd = "<|end_of_text|>";
// The first special tokens of Llama 3, in the order of their ids, after those with a rank. (3.1 has
// other names for some of the reserved ones.)
constexpr std::array<std::string_view, 10> kSpecialOfLlama3{kTextBegin,
                                                            kTextEnd,
                                                            "<|reserved_special_token_0|>",
                                                            "<|reserved_special_token_1|>",
                                                            "<|reserved_special_token_2|>",
                                                            "<|reserved_special_token_3|>",
                                                            "<|start_header_id|>",
                                                            "<|end_header_id|>",
                                                            "<|reserved_special_token_4|>",
                                                            "<|eot_id|>"};

using Ranks = std::unordered_map<std::string, std::uint32_t>;

std::optional<Ranks::value_type> ranked_in(std::string_view line) {
  const std::size_t space = line.find(' ');
  if (space == std::string_view::npos) {
    return std::nullopt;
  }
  auto token = bytes_of_base64(line.substr(0, space));
  std::uint32_t rank = 0;
  const char* end = line.data() + line.size();
  const auto [stopped, fault] = std::from_chars(line.data() + space + 1, end, rank);
  if (!token || token->empty() || token->size() > kLongestToken || fault != std::errc() ||
      stopped != end) {
    return std::nullopt;
  }
  return Ranks::value_type{std::move(*token), rank};
}

Ranks ranks_in(const fs::path& file) {
  Ranks ranks;
  const std::string where = printable_path(file);
  for (const std::string& line : lines_of(file)) {
    const auto found = ranked_in(line);
    if (!found || found->second >= kMostTokens || !ranks.insert(*found).second) {
      throw_bad_input("{}: the line {} is no new token in Base64 with a rank below {}", where,
                      printable(line, 60), kMostTokens);
    }
  }
  if (ranks.size() >= kMostTokens) {
    throw_bad_input("{}: {} tokens: of tiktoken's files only Llama 3's is read", where,
                    ranks.size());
  }
  return ranks;
}

// Every pair of tokens that makes a token, in the order of its rank, then of theirs.
json merges_of_ranks(const Ranks& ranks) {
  using Merge = std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, std::string>;
  std::vector<Merge> merges;
  for (const auto& [token, rank] : ranks) {
    for (std::size_t at = 1; at < token.size(); ++at) {
      const auto left = ranks.find(token.substr(0, at)), right = ranks.find(token.substr(at));
      if (left != ranks.end() && right != ranks.end()) {
        merges.emplace_back(rank, left->second, right->second,
                            byte_level_text(left->first) + " " + byte_level_text(right->first));
      }
    }
  }
  std::ranges::sort(merges);
  json listed = json::array();
  for (Merge& merge : merges) {
    listed.push_back(std::move(std::get<3>(merge)));
  }
  return listed;
}

json tokenizer_of_ranks(const fs::path& file) {
  const Ranks ranks = ranks_in(file);
  json vocab = json::object();
  std::uint64_t next = 0;
  for (const auto& [token, rank] : ranks) {
    vocab[byte_level_text(token)] = rank;
    next = std::max<std::uint64_t>(next, rank + 1);
  }
  json tokenizer = bytes_tokenizer(std::move(vocab), merges_of_ranks(ranks), "llama-bpe", false);
  tokenizer["added_tokens"] = json::array();
  for (std::uint64_t place = 0; place < kSpecialOfLlama3.size(); ++place) {
    tokenizer["added_tokens"].push_back(
        entry_of(static_cast<std::int64_t>(next + place), std::string(kSpecialOfLlama3[place])));
  }
  tokenizer["post_processor"] = {
      {"type", "BertProcessing"}, {"cls", {kTextBegin, next}}, {"sep", {kTextEnd, next + 1}}};
  return tokenizer;
}

bool is_tiktoken_file(const fs::path& file) {
  std::string first = read_start(File::open(file), 2 * kLongestToken);
  first.erase(std::min(first.find('\n'), first.size()));
  return ranked_in(first.substr(0, first.find_last_not_of('\r') + 1)).has_value();
}

}  // namespace

std::optional<fs::path> tokenizer_file_in(const fs::path& directory, bool reads_json) {
  std::vector<std::string> names{"tokenizer.json", "tokenizer.model"};
  if (!reads_json) {
    std::swap(names[0], names[1]);
  }
  if (path_exists(directory / "merges.txt")) {
    names.emplace_back("vocab.json");
  }
  names.emplace_back("vocab.txt");
  const auto found = std::ranges::find_if(
      names, [&](const std::string& name) { return path_exists(directory / name); });
  return found == names.end() ? std::nullopt : std::optional(directory / *found);
}

bool is_vocabulary_file(const fs::path& file) {
  const fs::path name = file.filename();
  return name == "vocab.json" || name == "vocab.txt" ||
         (name == "tokenizer.model" && is_tiktoken_file(file));
}

json tokenizer_json_from(const fs::path& file) {
  if (file.filename() == "tokenizer.model") {
    return tokenizer_of_ranks(file);
  }
  const fs::path directory = file.parent_path();
  const SortedJson config = read_json_if_there(directory, "tokenizer_config.json");
  const TokenizerClass& kind = class_of(file, config);
  const bool words = kind.pre.empty();
  const json vocab =
      words ? words_in(file)
            : parse_sorted_json_object(read_text(file, kMaxFileBytes), printable_path(file));
  json tokenizer = words ? words_tokenizer(vocab, config, named_token(directory, "unk"))
                         : bytes_tokenizer(vocab, merges_in(directory / "merges.txt"), kind.pre,
                                           flag_in(config, "add_prefix_space").value_or(false));
  tokenizer["added_tokens"] = special_tokens_of(directory, vocab, kind);
  tokenizer["post_processor"] = edges_of(directory, vocab, kind);
  return tokenizer;
}

}  // namespace regroup
