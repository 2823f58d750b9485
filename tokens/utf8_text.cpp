#include "tokens/utf8_text.h"

#include "formats/base/utf8.h"

namespace regroup {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

bool is_space(char byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t length = utf8_sequence(text, at);
    if (length == 0) {
      return at;
    }
    at += length;
  }
  return at;
}

std::string with_replacements(std::string_view text) {
  std::string whole;
  while (!text.empty()) {
    const std::size_t valid = valid_utf8_prefix(text);
    whole.append(text.substr(0, valid));
    text.remove_prefix(valid);
    if (!text.empty()) {
      whole.append(kReplacement);
      text.remove_prefix(1);
    }
  }
  return whole;
}

std::size_t cut_of_text(std::string_view text, std::size_t most) {
  if (text.size() <= most) {
    return text.size();
  }
  std::size_t before_white_space = 0;
  for (std::size_t at = most; at > most / 2; --at) {
    const bool begins_white_space =
        (text[at] == ' ' || text[at] == '\n') && !is_space(text[at - 1]);
    if (begins_white_space && text[at] == ' ' && at + 1 < text.size() && !is_space(text[at + 1])) {
      return at;
    }
    before_white_space = before_white_space == 0 && begins_white_space ? at : before_white_space;
  }
  if (before_white_space != 0) {
    return before_white_space;
  }
  std::size_t at = most;
  while (at > 1 && continues_utf8(text[at])) {
    --at;
  }
  return at;
}

}  // namespace regroup
