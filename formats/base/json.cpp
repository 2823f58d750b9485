#include "formats/base/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

constexpr int kMaxJsonDepth = 64;
constexpr std::size_t kMaxOrderedMembers = 10'000;

// The end of the string that begins `text`, or the end of the text.
std::size_t end_of_string(std::string_view text) {
  std::size_t at = 1;
  while (at < text.size() && text[at] != '"') {
    at += text[at] == '\\' ? 2 : 1;
  }
  return std::min(at + 1, text.size());
}

// One member of an object in text: the byte ranges of its key and value.
struct Member {
  std::size_t key_begin = 0;
  std::size_t value_begin = 0;
  std::size_t value_end = 0;
  std::string key;
};

// These functions scan text that is known to be valid JSON, so they need no error paths.

std::size_t skip_space(std::string_view text, std::size_t at) {
  return std::min(text.find_first_not_of(" \t\r\n", at), text.size());
}

// The next key or element, or the closing bracket, after a value that ends at `at`.
std::size_t skip_comma(std::string_view text, std::size_t at) {
  at = skip_space(text, at);
  return text[at] == ',' ? skip_space(text, at + 1) : at;
}

// One past the value that begins at `at`.
std::size_t end_of_value(std::string_view text, std::size_t at) {
  const bool enclosed = text[at] == '"' || text[at] == '{' || text[at] == '[';
  return enclosed ? at + end_of_json(text.substr(at))
                  : std::min(text.find_first_of(",]} \t\r\n", at), text.size());
}

std::vector<Member> members_of(std::string_view object) {
  std::vector<Member> found;
  std::size_t at = skip_space(object, skip_space(object, 0) + 1);
  while (object[at] != '}') {
    Member member;
    member.key_begin = at;
    const std::size_t key_end = end_of_value(object, at);
    member.key = nlohmann::json::parse(object.substr(at, key_end - at)).get<std::string>();
    member.value_begin = skip_space(object, skip_space(object, key_end) + 1);  // past the colon
    member.value_end = end_of_value(object, member.value_begin);
    at = skip_comma(object, member.value_end);
    found.push_back(std::move(member));
  }
  return found;
}

std::optional<Member> find_member(const std::vector<Member>& members, std::string_view key) {
  const auto found = std::ranges::find(members, key, &Member::key);
  return found == members.end() ? std::nullopt : std::optional(*found);
}

// `text` with `put` in place of its bytes from `begin` to `end`.
std::string with_range(std::string_view text, std::size_t begin, std::size_t end,
                       std::string_view put) {
  return std::string(text.substr(0, begin)).append(put).append(text.substr(end));
}

std::string quoted(const std::string& key) { return nlohmann::json(key).dump(); }

std::string append_member(std::string_view object, const std::vector<Member>& members,
                          const std::string& key, std::string_view value) {
  const std::string added = quoted(key) + ": " + std::string(value);
  if (members.empty()) {
    return with_range(object, object.find('{') + 1, object.rfind('}'), added);
  }
  // Reuse the white space before the last key (a newline and indentation, or a space).
  const std::size_t last = members.back().key_begin;
  const std::size_t gap = object.find_last_not_of(" \t\r\n", last - 1) + 1;
  const std::size_t end = members.back().value_end;
  return with_range(object, end, end, "," + std::string(object.substr(gap, last - gap)) + added);
}

std::string changed_elements(
    std::string_view list,
    const std::function<std::string(std::size_t, std::string_view)>& change) {
  std::string changed;
  std::size_t copied = 0;  // everything before this is in `changed`
  std::size_t at = skip_space(list, 1);
  for (std::size_t i = 0; list[at] != ']'; ++i) {
    const std::size_t end = end_of_value(list, at);
    changed += list.substr(copied, at - copied);
    changed += change(i, list.substr(at, end - at));
    copied = end;
    at = skip_comma(list, end);
  }
  return changed + std::string(list.substr(copied));
}

// "[json.exception.parse_error.101] parse error at line 2, column 1: …" without the library's
// number.
std::string reason_of(const nlohmann::json::exception& fault) {
  const std::string_view text = fault.what();
  const std::size_t end = text.find("] ");
  return printable(end == text.npos ? text : text.substr(end + 2));
}

// Checks a whole text before it is parsed: duplicate keys, depth, and the number of members per
// object. The library's own parser callback takes time quadratic in the objects of a list.
template <typename AnyJson>
class JsonCheck : public nlohmann::json_sax<AnyJson> {
 public:
  JsonCheck(std::string_view where, std::size_t max_members)
      : where_(where), max_members_(max_members) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(typename AnyJson::number_integer_t) override { return true; }
  bool number_unsigned(typename AnyJson::number_unsigned_t) override { return true; }
  bool number_float(typename AnyJson::number_float_t, const std::string&) override { return true; }
  bool string(std::string&) override { return true; }
  bool binary(typename AnyJson::binary_t&) override { return true; }

  bool start_object(std::size_t) override {
    keys_.emplace_back();
    return enter();
  }
  bool end_object() override {
    keys_.pop_back();
    return leave();
  }
  bool start_array(std::size_t) override { return enter(); }
  bool end_array() override { return leave(); }

  bool key(std::string& name) override {
    // Key comparisons that the library makes in ordered objects, summed over all objects.
    comparisons_ += keys_.back().size();
    if (!keys_.back().insert(name).second) {
      throw_bad_input("{}: duplicate key \"{}\"", where_, printable(name));
    }
    if (keys_.back().size() > max_members_) {
      throw_bad_input("{}: an object with more than {} members", where_, max_members_);
    }
    if (comparisons_ / max_members_ > max_members_) {
      throw_bad_input("{}: too many objects with thousands of members", where_);
    }
    return true;
  }

  bool parse_error(std::size_t, const std::string&,
                   const nlohmann::json::exception& fault) override {
    throw_bad_input("{}: not valid JSON: {}", where_, reason_of(fault));
  }

 private:
  bool enter() {
    if (++depth_ > kMaxJsonDepth) {
      throw_bad_input("{}: JSON nested deeper than {}", where_, kMaxJsonDepth);
    }
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::string_view where_;
  std::size_t max_members_;
  std::vector<std::set<std::string>> keys_;  // of the enclosing objects
  std::size_t comparisons_ = 0;
  int depth_ = 0;
};

// The constant that is a value at `at`, of those that Python writes and JSON does not have.
std::string_view constant_at(std::string_view text, std::size_t at) {
  for (const std::string_view constant : {"NaN", "Infinity", "-Infinity"}) {
    if (!text.substr(at).starts_with(constant)) {
      continue;
    }
    const std::size_t next = text.find_first_not_of(" \t\r\n", at + constant.size());
    if (next != std::string_view::npos &&
        std::string_view(",]}").find(text[next]) != std::string_view::npos) {
      return constant;
    }
  }
  return "";
}

// As strings these constants are what they are called, and no number to any reader.
std::string with_quoted_constants(std::string_view text) {
  std::string result;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::string_view constant = in_string ? "" : constant_at(text, at);
    if (!constant.empty()) {
      result += quoted(std::string(constant));
      at += constant.size() - 1;
      continue;
    }
    in_string = in_string != (text[at] == '"');
    result += text[at];
    if (in_string && text[at] == '\\' && at + 1 < text.size()) {
      result += text[++at];
    }
  }
  return result;
}

template <typename AnyJson>
AnyJson parse_object(std::string_view text, std::string_view where, std::size_t max_members) {
  // The parser would skip the former and treat the latter as the end of the text.
  if (text.starts_with("\xef\xbb\xbf") || text.find('\0') != std::string_view::npos) {
    throw_bad_input("{}: not valid JSON: it contains a byte order mark or a NUL byte", where);
  }
  if (text.find("NaN") != std::string_view::npos ||
      text.find("Infinity") != std::string_view::npos) {
    const std::string readable = with_quoted_constants(text);
    if (readable != text) {
      return parse_object<AnyJson>(readable, where, max_members);
    }
  }
  AnyJson parsed;
  try {
    JsonCheck<AnyJson> check(where, max_members);
    AnyJson::sax_parse(text, &check);
    parsed = AnyJson::parse(text);
  } catch (const nlohmann::json::exception& fault) {
    throw_bad_input("{}: not valid JSON: {}", where, reason_of(fault));
  }
  if (!parsed.is_object()) {
    throw_bad_input("{}: holds a JSON {}, an object is needed", where, parsed.type_name());
  }
  return parsed;
}

void add_differences(std::vector<JsonDifference>& found, const Json& before, const Json& after,
                     const std::string& path) {
  if (before.is_object() && after.is_object()) {
    const auto path_of = [&](const std::string& key) {
      return path.empty() ? key : fmt::format("{}.{}", path, key);
    };
    for (const auto& [key, value] : before.items()) {
      const auto other = after.find(key);
      if (other == after.end()) {
        found.push_back({path_of(key), value, std::nullopt});
      } else {
        add_differences(found, value, *other, path_of(key));
      }
    }
    for (const auto& [key, value] : after.items()) {
      if (!before.contains(key)) {
        found.push_back({path_of(key), std::nullopt, value});
      }
    }
  } else if (before.is_array() && after.is_array() && before.size() == after.size()) {
    for (std::size_t i = 0; i < before.size(); ++i) {
      add_differences(found, before[i], after[i], fmt::format("{}[{}]", path, i));
    }
  } else if (before != after) {
    found.push_back({path, before, after});
  }
}

}  // namespace

std::size_t end_of_json(std::string_view text) {
  int depth = 0;
  for (std::size_t at = 0; at < text.size();) {
    const char byte = text[at];
    depth += byte == '{' || byte == '[' ? 1 : byte == '}' || byte == ']' ? -1 : 0;
    at += byte == '"' ? end_of_string(text.substr(at)) : 1;
    if (depth == 0) {
      return at;
    }
  }
  return text.size();
}

Json parse_json_object(std::string_view text, std::string_view where) {
  return parse_object<Json>(text, where, kMaxOrderedMembers);
}

SortedJson parse_sorted_json_object(std::string_view text, std::string_view where) {
  return parse_object<SortedJson>(text, where, std::numeric_limits<std::size_t>::max());
}

std::string with_member(std::string_view object, const std::vector<std::string>& path,
                        std::string_view value) {
  const std::vector<Member> members = members_of(object);
  const std::string& key = path.front();
  const auto member = find_member(members, key);
  const std::vector<std::string> rest(path.begin() + 1, path.end());
  if (!member) {
    return append_member(object, members, key,
                         rest.empty() ? std::string(value) : with_member("{}", rest, value));
  }
  const auto child = object.substr(member->value_begin, member->value_end - member->value_begin);
  if (!rest.empty() && !child.starts_with('{')) {
    throw_bad_input("JSON member {} is not an object, so {} cannot be set in it", printable(key),
                    printable(rest.front()));
  }
  return with_range(object, member->value_begin, member->value_end,
                    rest.empty() ? std::string(value) : with_member(child, rest, value));
}

std::string without_member(std::string_view object, std::string_view key) {
  const std::vector<Member> members = members_of(object);
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (members[i].key == key) {
      const bool first = i == 0, only = members.size() == 1;
      const std::size_t begin = first ? members[i].key_begin : members[i - 1].value_end;
      const std::size_t end = first && !only ? members[i + 1].key_begin : members[i].value_end;
      return with_range(object, begin, end, "");
    }
  }
  return std::string(object);
}

std::string with_each_element(
    std::string_view object, const std::vector<std::string>& path,
    const std::function<std::string(std::size_t, std::string_view)>& change) {
  const auto member = find_member(members_of(object), path.front());
  if (!member || object[member->value_begin] != (path.size() == 1 ? '[' : '{')) {
    throw_bad_input("JSON member {} is not {}", printable(path.front()),
                    path.size() == 1 ? "a list" : "an object");
  }
  const auto value = object.substr(member->value_begin, member->value_end - member->value_begin);
  const std::string changed =
      path.size() == 1 ? changed_elements(value, change)
                       : with_each_element(value, {path.begin() + 1, path.end()}, change);
  return with_range(object, member->value_begin, member->value_end, changed);
}

Json number_or_null(std::optional<double> value) {
  return value && std::isfinite(*value) ? Json(*value) : Json();
}

std::optional<double> number_if_any(const Json& json) {
  return json.is_number() ? std::optional(json.get<double>()) : std::nullopt;
}

std::string printable_json(const Json& value, std::size_t limit) {
  return printable(value.dump(-1, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace),
                   limit);
}

std::vector<JsonDifference> differences_between(const Json& before, const Json& after,
                                                const std::string& path) {
  std::vector<JsonDifference> found;
  add_differences(found, before, after, path);
  return found;
}

}  // namespace regroup
