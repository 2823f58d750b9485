#include "tokens/text_kind.h"

#include <algorithm>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file_kind.h"

namespace regroup {
namespace {

constexpr std::string_view kJsonSpaces = " \t\r\n";

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kJsonSpaces), text.size()));
  return text;
}

// The end of the string that begins `text`, or the end of the text.
std::size_t end_of_string(std::string_view text) {
  std::size_t at = 1;
  while (at < text.size() && text[at] != '"') {
    at += text[at] == '\\' ? 2 : 1;
  }
  return std::min(at + 1, text.size());
}

// The end of the object or list that begins `text`, or the end of the text. Only brackets and
// strings are looked at: what else is wrong will be reported with its line.
std::size_t end_of_value(std::string_view text) {
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

// Whether an object's first key, or a list's first string, object or list, is where it must be.
// Other text may begin with a bracket, too.
bool begins_like_json(std::string_view text) {
  const std::string_view inner = without_spaces(text.substr(1));
  if (text.front() == '[') {
    return inner.starts_with('"') || (inner.starts_with('{') && begins_like_json(inner));
  }
  return inner.starts_with('"') &&
         without_spaces(inner.substr(end_of_string(inner))).starts_with(':');
}

std::string_view reader_of_json(std::string_view start) {
  return without_spaces(start).starts_with('[') ? "jq -c '.[]' FILE" : "jq -c . FILE";
}

// How to give the text that `reader` writes.
std::string advice_to_pipe(std::string_view reader) {
  return fmt::format("{} | regroup …, with - in place of FILE", reader);
}

}  // namespace

TextKind text_kind_of(std::string_view start) {
  const std::string_view text = without_spaces(start);
  if (!(text.starts_with('{') || text.starts_with('[')) || !begins_like_json(text)) {
    return TextKind::kPlain;
  }
  const std::string_view value = text.substr(0, end_of_value(text));
  const std::string_view rest = text.substr(value.size());
  const std::string_view next = without_spaces(rest);
  if (!next.empty() && next.front() != text.front()) {
    return TextKind::kPlain;  // goes on in another way
  }
  const std::size_t spaces = rest.size() - next.size();
  const bool alone = next.empty() || rest.substr(0, spaces).find('\n') != std::string_view::npos;
  const bool one_line = value.find('\n') == std::string_view::npos && alone;
  return text.front() == '{' && one_line ? TextKind::kJsonLines : TextKind::kJson;
}

void check_is_text(std::string_view start, std::string_view name, bool utf8) {
  const auto kind = kind_of_bytes(start);
  if (kind && (utf8 || !kind->hidden_text)) {
    throw_bad_input("{}: {}, {} is needed{}{}", name, kind->name,
                    kind->hidden_text ? "UTF-8" : "text", kind->reader.empty() ? "" : ": ",
                    kind->reader.empty() ? "" : advice_to_pipe(kind->reader));
  }
  if (utf8 && is_binary(start)) {
    throw_bad_input("{}: binary data, text is needed", name);
  }
}

void refuse_json(std::string_view start, std::string_view name) {
  throw_bad_input(
      "{}: JSON that is not one object per line, JSON lines are needed: {}; --no-jsonl takes it "
      "for "
      "text",
      name, advice_to_pipe(reader_of_json(start)));
}

}  // namespace regroup
