#include "tokens/utf8.h"

namespace regroup {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

unsigned char byte_at(std::string_view text, std::size_t at) {
  return static_cast<unsigned char>(text[at]);
}

bool continues(unsigned char byte) { return (byte & 0xc0) == 0x80; }

// Length that a sequence beginning with `lead` has, 0 where none begins with it.
std::size_t length_of(unsigned char lead) {
  return lead < 0x80                    ? 1
         : lead >= 0xc2 && lead <= 0xdf ? 2
         : (lead & 0xf0) == 0xe0        ? 3
         : lead >= 0xf0 && lead <= 0xf4 ? 4
                                        : 0;
}

// Whether `second` may follow `lead`: no overlong forms, no surrogates, nothing above U+10FFFF.
bool may_follow(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xe0: return second >= 0xa0 && second <= 0xbf;
    case 0xed: return second >= 0x80 && second <= 0x9f;
    case 0xf0: return second >= 0x90 && second <= 0xbf;
    case 0xf4: return second >= 0x80 && second <= 0x8f;
    default: return continues(second);
  }
}

// Bytes of the sequence at `at` that are as they should be, and how many it is to have.
struct Sequence {
  std::size_t good = 0, length = 0;
  bool complete() const { return length > 0 && good == length; }
};

Sequence sequence_at(std::string_view text, std::size_t at) {
  Sequence sequence{0, length_of(byte_at(text, at))};
  sequence.good = sequence.length > 0 ? 1 : 0;
  while (sequence.good < sequence.length && at + sequence.good < text.size()) {
    const unsigned char next = byte_at(text, at + sequence.good);
    if (!(sequence.good == 1 ? may_follow(byte_at(text, at), next) : continues(next))) {
      break;
    }
    ++sequence.good;
  }
  return sequence;
}

bool is_space(char byte) { return byte == ' ' || byte == '\n' || byte == '\t' || byte == '\r'; }

}  // namespace

std::size_t valid_utf8_prefix(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    if (byte_at(text, at) < 0x80) {
      ++at;
      continue;
    }
    const Sequence sequence = sequence_at(text, at);
    if (!sequence.complete()) {
      return at;
    }
    at += sequence.length;
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
  for (std::size_t at = most; at > most / 2; --at) {
    if ((text[at] == ' ' || text[at] == '\n') && !is_space(text[at - 1])) {
      return at;
    }
  }
  std::size_t at = most;
  while (at > 1 && continues(byte_at(text, at))) {
    --at;
  }
  return at;
}

}  // namespace regroup
