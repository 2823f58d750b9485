// JSON: parsing with bounds, printing, comparing, and changing one member of a text.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace regroup {

using Json = nlohmann::ordered_json;
/// Sorted by key. Json keeps members in file order, which takes quadratic time for objects as large
/// as a tokenizer's vocabulary.
using SortedJson = nlohmann::json;

/// Parses a whole document. Error messages begin with `where` (a file name). Throws kBadInput
/// unless the text is one JSON object, and for duplicate keys, nesting deeper than 64 and objects
/// with more than 10,000 members. Python's NaN, Infinity and -Infinity are read as strings.
Json parse_json_object(std::string_view text, std::string_view where);

/// The same for objects with very many members.
SortedJson parse_sorted_json_object(std::string_view text, std::string_view where);

/// The end of the string, object or list that begins `text`, or the end of the text. Looks only at
/// brackets and strings.
std::size_t end_of_json(std::string_view text);

/// Returns `object` (text that parse_json_object() accepts) with the member at `path` set to
/// `value` (JSON text). Every other byte stays: key order, number spelling, white space. A new
/// member goes to the end, indented like its neighbours; missing parents are created. Throws
/// kBadInput if a parent is not an object.
std::string with_member(std::string_view object, const std::vector<std::string>& path,
                        std::string_view value);

/// Returns `object` without its member `key`. Every other byte stays, except the white space and
/// the comma before it (or after it, if it is the first). Returns it unchanged if there is no such
/// member.
std::string without_member(std::string_view object, std::string_view key);

/// Returns `object` with each element of the list at `path` replaced by `change`(index, element
/// text). Every other byte stays. Throws kBadInput if there is no list at `path`.
std::string with_each_element(
    std::string_view object, const std::vector<std::string>& path,
    const std::function<std::string(std::size_t, std::string_view)>& change);

/// `value`, or null if there is none or it is not finite, which JSON cannot hold; and back.
Json number_or_null(std::optional<double> value);
std::optional<double> number_if_any(const Json& json);

/// The member `key` of `object`; null if it is no object or has no such member.
template <typename AnyJson>
const AnyJson& member_of(const AnyJson& object, std::string_view key) {
  static const AnyJson kAbsent;
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found == object.end() ? kAbsent : *found;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

/// `value` on one line of printable ASCII, at most `limit` characters (0: no limit). Invalid UTF-8,
/// which non-JSON metadata can contain, becomes replacement characters. Never throws because of the
/// value's contents.
std::string printable_json(const Json& value, std::size_t limit = 100);

/// One difference. Paths look like "rope_scaling.factor" or "regroup.alibi.slopes[3]".
struct JsonDifference {
  std::string path;
  std::optional<Json> before;  ///< none: the path does not exist
  std::optional<Json> after;
};

/// All differences in the order of `before`, then the additions. Objects are compared member by
/// member in any order, lists of equal length element by element, numbers by value. `path` is
/// prepended to every path.
std::vector<JsonDifference> differences_between(const Json& before, const Json& after,
                                                const std::string& path = "");

}  // namespace regroup
