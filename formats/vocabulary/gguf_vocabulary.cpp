#include <algorithm>
#include <array>
#include <cmath>
#include <unordered_map>
#include <unordered_set>

#include "formats/base/error.h"
#include "formats/base/ranges.h"
#include "formats/vocabulary/tokenizer_files.h"

namespace regroup {
namespace {

// The sum of the squares of the tokens' lengths, which bounds the time and the bytes of all merges.
// Known vocabularies have up to 4e7.
constexpr std::uint64_t kMaxMergeWork = std::uint64_t{1} << 28;

using TokenScores = std::unordered_map<std::string_view, float>;

TokenScores normal_tokens(const Vocabulary& vocabulary, std::string_view where) {
  TokenScores tokens;
  std::uint64_t work = 0;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    if (vocabulary.type(id) == TokenType::kNormal) {
      tokens.emplace(text, vocabulary.scores[id]);
      work += std::uint64_t{text.size()} * text.size();
    }
  }
  if (work > kMaxMergeWork) {
    throw_bad_input(
        "{}: the tokens are too long: the squares of their lengths sum to {}, at most "
        "{} are allowed",
        where, work, kMaxMergeWork);
  }
  return tokens;
}

// Where `token` can be cut into two tokens, the longest first half first. But two pairs that make
// it can overlap in a text, as l m and m r in "l m r" with l m = m r: the left one is cut after a
// period of the token, the right one as far from the other end. Then the left one comes first.
std::vector<std::size_t> cuts_of(const TokenScores& tokens, std::string_view token) {
  const auto is_period = [&](std::size_t length) {
    return token.substr(length) == token.substr(0, token.size() - length);
  };
  std::vector<std::size_t> before;
  for (std::size_t cut = token.size(); cut-- > 1;) {
    if (!continues_utf8(token[cut]) && tokens.contains(token.substr(0, cut)) &&
        tokens.contains(token.substr(cut))) {
      before.push_back(cut);
    }
  }
  std::vector<std::size_t> cuts = before;
  for (std::size_t i = 0; i < before.size() && 2 * before[i] > token.size(); ++i) {
    const std::size_t mirrored = token.size() - before[i];
    const auto found =
        std::lower_bound(before.begin(), before.end(), mirrored, std::greater<std::size_t>());
    if (found != before.end() && *found == mirrored && is_period(mirrored) &&
        !is_period(before[i])) {
      std::swap(cuts[i], cuts[static_cast<std::size_t>(found - before.begin())]);
    }
  }
  return cuts;
}

// The pairs of a token that can be made.
struct Makings {
  std::string_view token;
  std::vector<Merge> pairs;
};

[[noreturn]] void refuse_tie(const Makings& one, const Makings& other, std::string_view where) {
  throw_bad_input(
      "{}: the tokens {} and {} have the same score: which of them is merged first is "
      "unknown",
      where, printable(one.token, 60), printable(other.token, 60));
}

// Of equal scores, the leftmost pair of a text comes first. That is an order of pairs only if no
// pairs of two tokens can overlap, or for runs: there the leftmost pair has the longest left half.
void check_ties(const std::vector<Makings>& tied, std::string_view where) {
  std::unordered_map<std::string_view, std::array<const Makings*, 2>> lefts;  // of up to two tokens
  std::unordered_map<std::string_view, const Makings*> run_lefts;
  for (const Makings& each : tied) {
    for (const auto& [left, right] : each.pairs) {
      if (repeats_one_character(each.token)) {
        run_lefts.emplace(left, &each);
      } else {
        std::array<const Makings*, 2>& two = lefts[left];
        two[two[0] == nullptr || two[0] == &each ? 0 : 1] = &each;
      }
    }
  }
  for (const Makings& each : tied) {
    for (const auto& [left, right] : each.pairs) {
      const auto other = lefts.find(right);
      for (std::size_t i = 0; other != lefts.end() && i < 2; ++i) {
        if (other->second[i] != nullptr && other->second[i] != &each) {
          refuse_tie(each, *other->second[i], where);
        }
      }
      if (const auto run = run_lefts.find(right);
          run != run_lefts.end() && !repeats_one_character(each.token)) {
        refuse_tie(each, *run->second, where);
      }
    }
  }
}

void append_tied(const std::vector<Makings>& tied, std::vector<Merge>& merges,
                 std::string_view where) {
  if (tied.size() > 1) {
    check_ties(tied, where);
  }
  std::vector<Merge> of_runs;
  for (const Makings& each : tied) {
    append(repeats_one_character(each.token) ? of_runs : merges, each.pairs);
  }
  std::ranges::stable_sort(of_runs, [](const Merge& one, const Merge& other) {
    return std::pair(one.first.size(), one.second.size()) >
           std::pair(other.first.size(), other.second.size());
  });
  append(merges, of_runs);
}

// Roles of tokens and the keys of their ids. The format spells "seperator" this way.
constexpr std::array<std::pair<std::string_view, std::string_view>, 7> kIds{{
    {"bos", "tokenizer.ggml.bos_token_id"},
    {"eos", "tokenizer.ggml.eos_token_id"},
    {"unk", "tokenizer.ggml.unknown_token_id"},
    {"sep", "tokenizer.ggml.seperator_token_id"},
    {"pad", "tokenizer.ggml.padding_token_id"},
    {"mask", "tokenizer.ggml.mask_token_id"},
    {"cls", "tokenizer.ggml.cls_token_id"},
}};

void set_flag(GgufMetadata& metadata, std::string_view key, const std::optional<bool>& flag) {
  if (flag) {
    metadata.set_bool(key, *flag);
  }
}

constexpr std::size_t kMaxStoredTokens = 4U << 20;
constexpr std::size_t kMaxStoredTokenBytes = 4096;
constexpr std::size_t kMaxStoredBytes = 16U << 20;  // of all tokens

// What llama.cpp assumes for a kind of vocabulary.
struct KindOfVocabulary {
  std::string_view model;
  std::array<std::int64_t, kIds.size()> ids;  // of the roles in kIds; -1 for none
  bool scored, merged, adds_bos, adds_space;
};
constexpr std::array<KindOfVocabulary, 4> kKinds{{
    {"llama", {1, 2, 0, -1, -1, -1, -1}, true, false, true, true},
    {"gpt2", {-1, -1, -1, -1, -1, -1, -1}, false, true, false, false},
    {"t5", {-1, 1, 2, -1, 0, -1, -1}, true, false, false, false},
    {"bert", {101, -1, 100, 102, 0, 103, -1}, false, false, true, false},
}};

const KindOfVocabulary& kind_of(const GgufMetadata& metadata) {
  const auto model = metadata.text("tokenizer.ggml.model");
  const auto* const found = std::ranges::find(kKinds, model, &KindOfVocabulary::model);
  if (found == kKinds.end()) {
    throw_bad_input(
        "{}: tokenizer.ggml.model is {}; regroup reads llama (SentencePiece's BPE), gpt2 "
        "(byte-level BPE), t5 (Unigram) and bert (WordPiece). Give the original model's "
        "tokenizer.json or tokenizer.model",
        metadata.where(), model ? printable(*model, 60) : "missing");
  }
  return *found;
}

std::vector<std::string> texts_in(const GgufMetadata& metadata, std::string_view key) {
  const auto array = metadata.array(key);
  const auto strings = array ? array->strings() : std::nullopt;
  if (!strings) {
    throw_bad_input("{}: {} is no list of strings", metadata.where(), key);
  }
  return {strings->begin(), strings->end()};
}

void check_texts(const std::vector<std::string>& texts, std::string_view key,
                 const GgufMetadata& metadata) {
  if (texts.size() > kMaxStoredTokens) {
    throw_bad_input("{}: {} has {} strings, at most {} are allowed", metadata.where(), key,
                    texts.size(), kMaxStoredTokens);
  }
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].size() > 2 * kMaxStoredTokenBytes || !is_utf8(texts[i])) {
      throw_bad_input("{}: {}[{}] {}", metadata.where(), key, i,
                      is_utf8(texts[i]) ? fmt::format("has {} bytes", texts[i].size())
                                        : std::string("is not UTF-8"));
    }
  }
}

void read_tokens(Vocabulary& vocabulary, const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "tokenizer.ggml.tokens";
  vocabulary.tokens = texts_in(metadata, kKey);
  check_texts(vocabulary.tokens, kKey, metadata);
  std::size_t bytes = 0;
  std::unordered_set<std::string_view> known;
  for (std::size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    const std::string& text = vocabulary.tokens[id];
    if (text.size() > kMaxStoredTokenBytes) {
      throw_bad_input("{}: {}[{}] has {} bytes, at most {} are allowed", metadata.where(), kKey, id,
                      text.size(), kMaxStoredTokenBytes);
    }
    bytes += text.size();
    if (!known.insert(text).second) {
      throw_bad_input("{}: {} lists {} twice", metadata.where(), kKey, printable(text, 60));
    }
  }
  if (bytes > kMaxStoredBytes) {
    throw_bad_input("{}: {} has {} bytes of text, at most {} are allowed", metadata.where(), kKey,
                    bytes, kMaxStoredBytes);
  }
  if (vocabulary.tokens.empty()) {
    throw_bad_input("{}: {} is empty", metadata.where(), kKey);
  }
}

// What `read` makes of the list under `key`: a number for each token, which is called `what`.
template <typename Read>
auto one_for_each_token(const char* key, const char* what, Read read, const Vocabulary& vocabulary,
                        const GgufMetadata& metadata) {
  const auto array = metadata.array(key);
  const auto found = array ? std::invoke(read, *array) : std::nullopt;
  if (!found || found->size() != vocabulary.tokens.size()) {
    throw_bad_input("{}: {} does not list a {} for each of {} tokens", metadata.where(), key, what,
                    vocabulary.tokens.size());
  }
  return *found;
}

void read_types(Vocabulary& vocabulary, const GgufMetadata& metadata) {
  const auto types = one_for_each_token("tokenizer.ggml.token_type", "type", &GgufArray::integers,
                                        vocabulary, metadata);
  for (std::size_t id = 0; id < types.size(); ++id) {
    const std::int64_t type = types.at(id);
    if (type < 1 || type > 6) {
      throw_bad_input("{}: tokenizer.ggml.token_type[{}] is {}, types are 1 to 6", metadata.where(),
                      id, type);
    }
    vocabulary.types.push_back(static_cast<std::int32_t>(type));
  }
}

void read_scores(Vocabulary& vocabulary, const GgufMetadata& metadata) {
  const auto scores = one_for_each_token("tokenizer.ggml.scores", "score", &GgufArray::numbers,
                                         vocabulary, metadata);
  for (std::size_t id = 0; id < scores.size(); ++id) {
    const auto score = static_cast<float>(scores.at(id));
    if (!std::isfinite(score)) {
      throw_bad_input("{}: tokenizer.ggml.scores[{}] is {}, a finite number is needed",
                      metadata.where(), id, score);
    }
    vocabulary.scores.push_back(score);
  }
}

void read_special_ids(Vocabulary& vocabulary, const KindOfVocabulary& kind,
                      const GgufMetadata& metadata) {
  const auto count = static_cast<std::int64_t>(vocabulary.tokens.size());
  for (const auto& [role, id] : special_ids_in(metadata)) {
    if (id >= count) {
      throw_bad_input("{}: the {} token has the id {}, there are {} tokens", metadata.where(), role,
                      id, count);
    }
    vocabulary.special_ids.emplace(role, static_cast<std::uint32_t>(id));
  }
  for (std::size_t i = 0; i < kIds.size(); ++i) {
    if (kind.ids[i] >= 0 && kind.ids[i] < count) {
      vocabulary.special_ids.emplace(kIds[i].first, static_cast<std::uint32_t>(kind.ids[i]));
    }
  }
}

void read_charsmap(Vocabulary& vocabulary, const GgufMetadata& metadata) {
  constexpr std::string_view kKey = "tokenizer.ggml.precompiled_charsmap";
  const auto array = metadata.array(kKey);
  if (!array) {
    return;
  }
  const auto bytes = array->integers();
  if (!bytes || (array->type() != GgufType::kU8 && array->type() != GgufType::kI8)) {
    throw_bad_input("{}: {} is no list of bytes", metadata.where(), kKey);
  }
  for (const std::int64_t byte : *bytes) {
    vocabulary.charsmap += static_cast<char>(byte);
  }
}

}  // namespace

bool repeats_one_character(std::string_view token) {
  const std::size_t first = std::min(std::max<std::size_t>(utf8_sequence(token), 1), token.size());
  return token.substr(first) == token.substr(0, token.size() - first);
}

std::vector<Merge> merges_by_score(const Vocabulary& vocabulary, std::string_view where) {
  const TokenScores tokens = normal_tokens(vocabulary, where);
  std::vector<std::pair<float, std::string_view>> order;
  for (const auto& [text, score] : tokens) {
    order.emplace_back(-score, text);
  }
  std::ranges::sort(order);
  std::vector<Merge> merges;
  std::vector<Makings> tied;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::string_view token = order[i].second;
    std::vector<Merge> pairs;
    for (const std::size_t cut : cuts_of(tokens, token)) {
      pairs.emplace_back(token.substr(0, cut), token.substr(cut));
    }
    if (!pairs.empty()) {
      tied.push_back({token, std::move(pairs)});
    }
    if (i + 1 == order.size() || order[i + 1].first != order[i].first) {
      append_tied(tied, merges, where);
      tied.clear();
    }
  }
  return merges;
}

void set_vocabulary(GgufMetadata& metadata, const Vocabulary& vocabulary) {
  metadata.set_string("tokenizer.ggml.model", vocabulary.model);
  if (!vocabulary.present()) {
    return;
  }
  metadata.set_string("tokenizer.ggml.pre", vocabulary.pre);
  metadata.set_array("tokenizer.ggml.tokens", std::span<const std::string>(vocabulary.tokens));
  if (!vocabulary.scores.empty()) {
    metadata.set_array("tokenizer.ggml.scores", std::span<const float>(vocabulary.scores));
  }
  metadata.set_array("tokenizer.ggml.token_type", std::span<const std::int32_t>(vocabulary.types));
  if (!vocabulary.merges.empty()) {
    metadata.set_array("tokenizer.ggml.merges", std::span<const std::string>(vocabulary.merges));
  }
  for (const auto& [role, key] : kIds) {
    if (const auto id = vocabulary.special_id(std::string(role))) {
      metadata.set_u32(key, *id);
    }
  }
  set_flag(metadata, "tokenizer.ggml.add_bos_token", vocabulary.add_bos);
  set_flag(metadata, "tokenizer.ggml.add_eos_token", vocabulary.add_eos);
  set_flag(metadata, "tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix);
  if (!vocabulary.chat_template.empty()) {
    metadata.set_string("tokenizer.chat_template", vocabulary.chat_template);
  }
}

bool has_tokenizer(const GgufMetadata& metadata) {
  return metadata.contains("tokenizer.ggml.tokens");
}

std::map<std::string, std::int64_t> special_ids_in(const GgufMetadata& metadata) {
  std::map<std::string, std::int64_t> ids;
  for (const auto& [role, key] : kIds) {
    if (const auto id = metadata.count(key)) {
      ids.emplace(role, *id);
    }
  }
  return ids;
}

Vocabulary vocabulary_in(const GgufMetadata& metadata) {
  const KindOfVocabulary& kind = kind_of(metadata);
  Vocabulary vocabulary;
  vocabulary.model = kind.model;
  vocabulary.pre = metadata.text("tokenizer.ggml.pre").value_or("");
  read_tokens(vocabulary, metadata);
  read_types(vocabulary, metadata);
  if (kind.scored) {
    read_scores(vocabulary, metadata);
  }
  if (kind.merged) {
    vocabulary.merges = texts_in(metadata, "tokenizer.ggml.merges");
    check_texts(vocabulary.merges, "tokenizer.ggml.merges", metadata);
  }
  read_special_ids(vocabulary, kind, metadata);
  const PreTokenization* pre = find_pre_tokenization(vocabulary.pre);
  const bool adds_bos = kind.merged ? pre != nullptr && pre->adds_bos : kind.adds_bos;
  vocabulary.add_bos = metadata.flag("tokenizer.ggml.add_bos_token").value_or(adds_bos);
  vocabulary.add_eos = metadata.flag("tokenizer.ggml.add_eos_token");
  vocabulary.add_space_prefix =
      metadata.flag("tokenizer.ggml.add_space_prefix").value_or(kind.adds_space);
  vocabulary.chat_template = metadata.text("tokenizer.chat_template").value_or("");
  vocabulary.removes_extra_spaces = metadata.flag("tokenizer.ggml.remove_extra_whitespaces");
  vocabulary.lower_case = metadata.flag("tokenizer.ggml.normalizer.lowercase");
  vocabulary.strip_accents = metadata.flag("tokenizer.ggml.normalizer.strip_accents");
  read_charsmap(vocabulary, metadata);
  return vocabulary;
}

}  // namespace regroup
