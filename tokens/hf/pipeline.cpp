#include "tokens/hf/pipeline.h"

#include <algorithm>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "tokens/hf/work.h"

namespace regroup {

namespace {

// ["[SEP]", 102]
std::uint32_t id_of_pair(const JsonFields& fields, const char* key) {
  const nlohmann::json& pair = fields.at(key);
  const bool whole = pair.is_array() && pair.size() == 2 && pair[0].is_string() &&
                     pair[1].is_number_unsigned() && pair[1].get<std::uint64_t>() <= 0x7fffffff;
  if (!whole) {
    fields.refuse(key, "a token and its id");
  }
  return pair[1].get<std::uint32_t>();
}

// The ids of a special token of a template, from the object that lists them.
std::vector<std::uint32_t> template_ids(const JsonFields& fields, const std::string& name) {
  const JsonFields token = fields.object("special_tokens").object(name);
  token.allow({"id", "ids", "tokens"});
  const nlohmann::json& listed = token.at("ids");
  if (!listed.is_array()) {
    token.refuse("ids", "a list of ids");
  }
  std::vector<std::uint32_t> ids;
  for (const nlohmann::json& id : listed) {
    if (!id.is_number_unsigned() || id.get<std::uint64_t>() > 0x7fffffff) {
      token.refuse("ids", "a list of ids");
    }
    ids.push_back(id.get<std::uint32_t>());
  }
  return ids;
}

EndTokens read_template(const JsonFields& fields) {
  fields.allow({"type", "single", "pair", "special_tokens"});
  EndTokens ends;
  bool behind = false;  // the text is before this piece
  for (const JsonFields& piece : fields.objects("single")) {
    piece.allow({"SpecialToken", "Sequence"});
    if (piece.at("SpecialToken").is_null()) {
      if (piece.object("Sequence").text("id") != "A" || behind) {
        fields.refuse("single", "a template with the sequence A, once");
      }
      behind = true;
      continue;
    }
    for (const std::uint32_t id : template_ids(fields, piece.object("SpecialToken").text("id"))) {
      std::optional<std::uint32_t>& end = behind ? ends.last : ends.first;
      if (end) {
        fields.refuse("single", "a template with at most one token at each end");
      }
      end = id;
    }
  }
  if (!behind) {
    fields.refuse("single", "a template with the sequence A, once");
  }
  return ends;
}

EndTokens read_post_processor(const JsonFields& fields);

EndTokens read_sequence(const JsonFields& fields) {
  fields.allow({"type", "processors"});
  EndTokens ends;
  for (const JsonFields& member : fields.objects("processors")) {
    const EndTokens more = read_post_processor(member);
    if ((more.first && ends.first) || (more.last && ends.last)) {
      fields.refuse("processors", "a sequence that adds at most one token at each end");
    }
    ends.first = more.first ? more.first : ends.first;
    ends.last = more.last ? more.last : ends.last;
  }
  return ends;
}

// What a "post_processor" object adds to a single text. Throws kBadInput for kinds that are not
// supported, and for more than one token at an end.
EndTokens read_post_processor(const JsonFields& fields) {
  const std::string type = fields.text("type");
  if (type == "ByteLevel") {  // changes offsets only
    fields.allow({"type", "add_prefix_space", "trim_offsets", "use_regex"});
    return {};
  }
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    fields.allow({"type", "sep", "cls", "trim_offsets", "add_prefix_space"});
    return {id_of_pair(fields, "cls"), id_of_pair(fields, "sep")};
  }
  if (type == "TemplateProcessing") {
    return read_template(fields);
  }
  if (type == "Sequence") {
    return read_sequence(fields);
  }
  fields.refuse("type", "a post-processor that regroup supports");
}

constexpr std::size_t kMaxNormalized = 10'000;  // bytes of an added token
constexpr std::size_t kMaxAdded = 16U << 20;    // bytes of all added tokens

TokenTexts special_among(const std::vector<AddedToken>& added) {
  TokenTexts special;
  for (const AddedToken& token : added) {
    if (token.special) {
      special.insert(token.content);
    }
  }
  return special;
}

}  // namespace

std::unique_ptr<WordCache> Pipeline::CachePool::take() {
  const std::lock_guard lock(mutex_);
  if (caches_.empty()) {
    return std::make_unique<WordCache>();
  }
  std::unique_ptr<WordCache> cache = std::move(caches_.back());
  caches_.pop_back();
  return cache;
}

void Pipeline::CachePool::give_back(std::unique_ptr<WordCache> cache) {
  const std::lock_guard lock(mutex_);
  caches_.push_back(std::move(cache));
}

Pipeline::Pipeline(const nlohmann::json& tokenizer, const std::string& where) : where_(where) {
  Work::of_thread().begin(where, 0);
  const JsonFields fields(tokenizer, where, "");
  std::vector<AddedToken> added = read_added_tokens(fields);
  fields.allow({"version", "truncation", "padding", "added_tokens", "normalizer", "pre_tokenizer",
                "post_processor", "decoder", "model"});
  if (!fields.at("normalizer").is_null()) {
    read_normalizer(fields.object("normalizer"), normalizers_);
  }
  if (!fields.at("pre_tokenizer").is_null()) {
    read_pre_tokenizer(fields.object("pre_tokenizer"), pre_tokenizers_);
  }
  model_ = read_token_model(fields.object("model"), special_among(added));
  vocabulary_ = std::int64_t{model_->largest_id()} + 1;
  number(added, fields);
  find_added_tokens(added, fields);
  if (!fields.at("post_processor").is_null()) {
    ends_ = read_post_processor(fields.object("post_processor"));
  }
}

// An added token has the id of the vocabulary's token of the same text, or else the next free one.
// That is how Python numbers them; the ids in the file only confirm it.
void Pipeline::number(const std::vector<AddedToken>& added, const JsonFields& fields) {
  auto next = static_cast<std::uint32_t>(model_->size());
  for (const AddedToken& token : added) {
    const std::uint32_t id = model_->id_of(token.content).value_or(next);
    if (id != token.id) {
      throw_bad_input("{}: the added token {} has the id {}, its place in the vocabulary is {}",
                      fields.where(), printable(token.content, 60), token.id, id);
    }
    next = std::max(next, id + 1);
    added_ids_.emplace(token.content, id);
    if (token.special) {
      special_.insert(id);
    }
    vocabulary_ = std::max<std::int64_t>(vocabulary_, std::int64_t{id} + 1);
  }
}

// Of equal texts to look for, the first is found: special tokens come first.
void Pipeline::find_added_tokens(const std::vector<AddedToken>& added, const JsonFields& fields) {
  std::size_t bytes = 0;
  for (const bool special : {true, false}) {
    for (const AddedToken& token : added) {
      if (token.special != special) {
        continue;
      }
      if (!token.normalized) {
        literal_.add(token, token.content);
        continue;
      }
      NormalText text{token.content, {}};
      normalize(text);
      bytes += text.text.size();
      if (text.text.empty() || text.text.size() > kMaxNormalized || bytes > kMaxAdded) {
        throw_bad_input("{}: normalization turns the added token {} into {} bytes", fields.where(),
                        printable(token.content, 60), text.text.size());
      }
      normalized_.add(token, text.text);
    }
  }
  literal_.finish();
  normalized_.finish();
}

void Pipeline::parse_special() {
  literal_.find_special();
  normalized_.find_special();
}

void Pipeline::normalize(NormalText& text) const {
  Work& work = Work::of_thread();
  for (const auto& normalizer : normalizers_) {
    work.step(1 + text.text.size() / 2);
    normalizer(text);
    work.check_size(text.text.size());
  }
}

void Pipeline::encode(std::string_view text, bool begins_document,
                      std::vector<std::uint32_t>& ids) const {
  std::unique_ptr<WordCache> cache = caches_.take();
  const Output output{*cache, ids};
  Work::of_thread().begin(where_, text.size());
  literal_.for_each_section(text, [&](const AddedTokenFinder::Section& section) {
    if (section.token != nullptr) {
      ids.push_back(section.token->id);
      return;
    }
    const bool first = section.text.data() == text.data();
    encode_section(section.text, {first && begins_document, first && !begins_document}, output);
  });
  caches_.give_back(std::move(cache));
}

void Pipeline::encode_section(std::string_view section, const Origin& origin, Output output) const {
  if (normalizers_.empty() && normalized_.empty()) {
    encode_normal(section, origin, output);
    return;
  }
  NormalText normal{std::string(section), origin};
  normalize(normal);
  normalized_.for_each_section(normal.text, [&](const AddedTokenFinder::Section& part) {
    if (part.token != nullptr) {
      output.ids.push_back(part.token->id);
    } else {
      const bool first = part.text.data() == normal.text.data();
      encode_normal(part.text, first ? normal.origin : Origin{false, false}, output);
    }
  });
}

void Pipeline::encode_normal(std::string_view section, const Origin& origin, Output output) const {
  if (pre_tokenizers_.empty()) {
    encode_word(section, output);
    return;
  }
  Pieces pieces{std::string(section), {{0, static_cast<std::uint32_t>(section.size()), origin}}};
  for (const auto& pre_tokenizer : pre_tokenizers_) {
    pre_tokenizer(pieces);
  }
  for (const Piece& piece : pieces.list) {
    encode_word(pieces.view(piece), output);
  }
}

void Pipeline::encode_word(std::string_view word, Output output) const {
  while (!word.empty()) {
    const std::string_view unit = word.substr(0, model_->first_unit(word));
    word.remove_prefix(unit.size());
    if (const auto known = output.cache.find(unit)) {
      output.ids.insert(output.ids.end(), known->begin(), known->end());
      continue;
    }
    const std::size_t begin = output.ids.size();
    const std::size_t left_out = model_->encode(unit, output.ids);
    if (left_out == 0) {
      output.cache.put(unit, std::span(output.ids).subspan(begin));
    }
    left_out_ += left_out;
  }
}

void Pipeline::for_each_token(const TokenVisitor& visit) const {
  for (const auto& [text, id] : added_ids_) {
    visit(id, text);
  }
  model_->for_each_token([&](std::int64_t id, std::string_view text) {
    if (!added_ids_.contains(text)) {
      visit(id, text);
    }
  });
}

std::optional<std::uint32_t> Pipeline::id_of(std::string_view token) const {
  const auto added = added_ids_.find(token);
  if (added != added_ids_.end()) {
    return added->second;
  }
  return model_->id_of(token);
}

}  // namespace regroup
