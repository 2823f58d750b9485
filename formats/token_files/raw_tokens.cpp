#include "formats/token_files/raw_tokens.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <span>
#include <string>
#include <string_view>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/utf8.h"

namespace regroup {
namespace {

constexpr std::uint64_t kSample = 64U << 10;
// Fewer bytes or ids are not enough to decide. A byte of an id is printable with a probability of
// about one in two or three. Four ids therefore look like text in one of a thousand files, and 64
// KiB of ids never do.
constexpr std::size_t kFewestTextBytes = 8, kFewestBytes = 256, kFewestIds = 32;

struct Magic {
  std::string_view bytes, name;
};
constexpr std::array<Magic, 10> kMagics{{{{"\x1f\x8b\x08", 3}, "a gzip file"},
                                         {{"PK\x03\x04", 4}, "a zip archive"},
                                         {{"\x28\xb5\x2f\xfd", 4}, "a zstd file"},
                                         {{"\xfd"
                                           "7zXZ\x00",
                                           6},
                                          "an xz file"},
                                         {{"BZh", 3}, "a bzip2 file"},
                                         {{"GGUF", 4}, "a GGUF file"},
                                         {{"PAR1", 4}, "a Parquet file"},
                                         {{"ARROW1", 6}, "an Arrow file"},
                                         {{"\x89HDF\r\n", 6}, "an HDF5 file"},
                                         {{"MMIDIDX\0\0", 9}, "a Megatron index"}}};

std::uint8_t number_of(char byte) { return static_cast<std::uint8_t>(byte); }

bool is_printable(char byte) {
  const std::uint8_t value = number_of(byte);
  return (value >= 0x20 && value < 0x7f) || (value >= 0x08 && value <= 0x0d) || value == 0x1b;
}

// Bytes that do not occur in text of any encoding that extends ASCII.
bool is_control(char byte) { return number_of(byte) < 0x80 && !is_printable(byte); }

// The length of the readable character that begins at `at`, or 0.
std::size_t readable_at(std::string_view text, std::size_t at) {
  const std::size_t length = utf8_sequence(text, at);
  return length == 1 && !is_printable(text[at]) ? 0 : length;
}

// Text is mostly ASCII and UTF-8, or in another encoding without control bytes. 16-bit ids have
// many control bytes, for example the upper byte of every id below 2048.
bool is_text(std::string_view sample) {
  std::size_t readable = 0;
  for (std::size_t i = 0; i < sample.size();) {
    const std::size_t sequence = readable_at(sample, i);
    readable += sequence;
    i += std::max<std::size_t>(sequence, 1);
  }
  const auto controls = std::count_if(sample.begin(), sample.end(), is_control);
  return 10 * readable >= 9 * sample.size() ||
         (sample.size() >= kFewestBytes &&
          200 * static_cast<std::size_t>(controls) < sample.size());
}

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

// A safetensors file begins with a length of 64 bits and a JSON object.
bool is_safetensors(std::string_view sample, std::uint64_t file_bytes) {
  std::uint64_t length = 0;
  if (sample.size() <= sizeof length || sample[sizeof length] != '{') {
    return false;
  }
  std::memcpy(&length, sample.data(), sizeof length);
  return length >= 2 && length <= file_bytes - sizeof length;
}

bool is_big_endian(const Halves& halves) {
  return halves.lower_bytes == 0 && std::max(halves.lower.most, halves.upper.most) > 0;
}

}  // namespace

void check_raw_tokens(const File& file) {
  std::string sample(std::min(kSample, file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(sample)));
  const std::string where = printable(file.path().string(), 0);
  const auto magic = std::find_if(kMagics.begin(), kMagics.end(), [&](const Magic& each) {
    return sample.starts_with(each.bytes);
  });
  if (magic != kMagics.end() || is_safetensors(sample, file.size())) {
    throw_bad_input(
        "{}: is {}, not a token file: allowed are raw u16, .npy, llm.c's and Megatron's", where,
        magic != kMagics.end() ? magic->name : "a safetensors file");
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
