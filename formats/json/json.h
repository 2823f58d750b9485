// Reading JSON from strangers, and changing it without disturbing a byte that need not change.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace regroup {

using Json = nlohmann::ordered_json;

/// Parses a whole document. `where` (a file name) opens every error message. Throws kBadInput for
/// anything but one JSON object, for duplicate keys, for nesting deeper than 64 and for objects of
/// more than 10,000 members.
Json parse_json_object(std::string_view text, std::string_view where);

/// The same for files with objects of very many members (a tokenizer's vocabulary), where Json,
/// whose objects keep their members in file order, would take time quadratic in their number.
nlohmann::json parse_sorted_json_object(std::string_view text, std::string_view where);

/// `object` (the text of one JSON object that parse_json_object accepts) with the member at `path`
/// set to `value` (JSON text). Every other byte stays: key order, number spelling, white space. A
/// new member goes to the end, indented as its neighbours; missing parents are created. Throws
/// kBadInput where a parent is no object.
std::string with_member(std::string_view object, const std::vector<std::string>& path,
                        std::string_view value);

/// `object` with each element of the list at `path` replaced by what `change` makes of its number
/// and its text. Every other byte stays. Throws kBadInput where there is no such list.
std::string with_each_element(
    std::string_view object, const std::vector<std::string>& path,
    const std::function<std::string(std::size_t, std::string_view)>& change);

/// Shortest text that reads back as the same double: "0.0625", "1e-05".
std::string json_number(double value);

}  // namespace regroup
