#include "formats/token_files/raw_tokens.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/error.h"
#include "formats/base/file_kind.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

constexpr std::uint64_t kSample = 64U << 10;
// Fewer bytes or ids are not enough to decide. A byte of an id is printable with a probability of
// about one in two or three. Four ids therefore look like text in one of a thousand files, and 64
// KiB of ids never do.
constexpr std::size_t kFewestTextBytes = 8, kFewestIds = 32;

std::uint8_t number_of(char byte) { return static_cast<std::uint8_t>(byte); }

struct Range {
  unsigned least = 0xffff, most = 0;

  void add(unsigned value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

// The lower and upper halves of possible 32-bit ids.
struct Halves {
  Range lower, upper;
  unsigned lower_bytes = 0;  // bitwise or of the lower bytes of all 16-bit numbers
};

Halves halves_of(std::string_view sample) {
  Halves halves;
  for (std::size_t i = 0; i + 1 < sample.size(); i += 2) {
    const unsigned low = number_of(sample[i]);
    const unsigned id = low | static_cast<unsigned>(number_of(sample[i + 1])) << 8;
    (i % 4 == 0 ? halves.lower : halves.upper).add(id);
    halves.lower_bytes |= low;
  }
  return halves;
}

bool has_32_bits(const Halves& halves) {
  constexpr unsigned kMostUpper = 16;  // allows vocabularies of a million
  return (halves.upper.most == 0 && halves.lower.most > 0) ||
         (halves.upper.most < kMostUpper && halves.lower.most >= 256);
}

bool is_big_endian(const Halves& halves) {
  return halves.lower_bytes == 0 && std::max(halves.lower.most, halves.upper.most) > 0;
}

}  // namespace

void check_raw_tokens(const File& file) {
  std::string sample(std::min(kSample, file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(sample)));
  const std::string where = printable(file.path().string(), 0);
  const std::optional<FileKind> kind = kind_of_bytes(sample);
  if (kind && !kind->hidden_text) {  // two bytes of a text's encoding may be an id
    throw_bad_input(
        "{}: is {}, not a token file: allowed are raw u16, .npy, llm.c's and Megatron's", where,
        kind->name);
  }
  if (sample.size() >= kFewestTextBytes && is_text(sample)) {
    throw_bad_input(
        "{}: is text, token ids are needed: regroup tokenize {} --tokenizer MODEL -o tokens.bin "
        "makes them",
        where, where);
  }
  if (sample.size() / 2 < kFewestIds) {
    return;
  }
  const Halves halves = halves_of(sample);
  if (is_big_endian(halves)) {
    throw_bad_input(
        "{}: the lower byte of every 16-bit id is 0: big-endian ids or text in UTF-16; needed are "
        "little-endian ids",
        where);
  }
  if (file.size() % 4 == 0 && has_32_bits(halves)) {
    throw_bad_input(
        "{}: every second 16-bit id is almost 0: 32-bit ids, which need Megatron's .idx "
        "or an .npy of u32",
        where);
  }
}

}  // namespace regroup
