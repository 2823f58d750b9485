#include "formats/base/utf8.h"

#include <algorithm>

namespace regroup {
namespace {

std::size_t length_of(unsigned char lead) {
  return lead < 0x80                    ? 1
         : lead >= 0xc2 && lead <= 0xdf ? 2
         : (lead & 0xf0) == 0xe0        ? 3
         : lead >= 0xf0 && lead <= 0xf4 ? 4
                                        : 0;
}

// Whether a continuation byte may follow this first byte.
bool may_follow(unsigned char lead, unsigned char second) {
  switch (lead) {
    case 0xe0: return second >= 0xa0;
    case 0xed: return second <= 0x9f;
    case 0xf0: return second >= 0x90;
    case 0xf4: return second <= 0x8f;
    default: return true;
  }
}

}  // namespace

std::size_t utf8_sequence(std::string_view text, std::size_t at) {
  const auto lead = static_cast<unsigned char>(text[at]);
  const std::size_t length = length_of(lead);
  const std::string_view rest = text.substr(at + 1, length == 0 ? 0 : length - 1);
  const bool complete = length > 0 && rest.size() == length - 1 &&
                        std::all_of(rest.begin(), rest.end(), continues_utf8);
  return complete && (length == 1 || may_follow(lead, static_cast<unsigned char>(rest[0]))) ? length
                                                                                            : 0;
}

}  // namespace regroup
