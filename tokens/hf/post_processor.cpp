#include <algorithm>

#include "tokens/hf/steps.h"

namespace regroup {
namespace {

bool is_id(const nlohmann::json& value) {
  return value.is_number_unsigned() && value.get<std::uint64_t>() <= 0x7fffffff;
}

// ["[SEP]", 102]
std::uint32_t id_of_pair(const JsonFields& fields, const char* key) {
  const nlohmann::json& pair = fields.at(key);
  if (!pair.is_array() || pair.size() != 2 || !pair[0].is_string() || !is_id(pair[1])) {
    fields.refuse(key, "a token and its id");
  }
  return pair[1].get<std::uint32_t>();
}

// The ids of a special token of a template, from the object that lists them.
std::vector<std::uint32_t> template_ids(const JsonFields& fields, const std::string& name) {
  const JsonFields token = fields.object("special_tokens").object(name);
  token.allow({"id", "ids", "tokens"});
  const nlohmann::json& listed = token.at("ids");
  if (!listed.is_array() || !std::ranges::all_of(listed, is_id)) {
    token.refuse("ids", "a list of ids");
  }
  return listed.get<std::vector<std::uint32_t>>();
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

}  // namespace

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

}  // namespace regroup
