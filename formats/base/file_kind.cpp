#include <algorithm>
#include <array>
#include <cstddef>

#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

// Fewer bytes are not enough to decide by how often some of them occur.
constexpr std::size_t kFewestBytes = 256;

struct Magic {
  std::string_view bytes;
  FileKind kind;
  std::size_t at = 0;
  bool readable = false;  // a text may begin with it, too
};

template <std::size_t kSize>
constexpr std::string_view bytes_of(const char (&text)[kSize]) {
  return {text, kSize - 1};
}

constexpr std::string_view kByPyarrow = "python -m regroup.documents FILE";

constexpr auto kMagics = std::to_array<Magic>({
    {bytes_of("\x1f\x8b\x08"), {"gzip data", "zcat FILE"}},
    {bytes_of("\x28\xb5\x2f\xfd"), {"zstd data", "zstdcat FILE"}},
    {bytes_of("\xfd\x37zXZ\0"), {"xz data", "xzcat FILE"}},
    {bytes_of("\x04\x22\x4d\x18"), {"lz4 data", "lz4cat FILE"}},
    {bytes_of("BZh"), {"bzip2 data", "bzcat FILE"}, 0, true},
    {bytes_of("PK\x03\x04"), {"a zip archive", "unzip -p FILE"}},
    {bytes_of("7z\xbc\xaf\x27\x1c"), {"a 7z archive", "7z e -so FILE"}},
    {bytes_of("Rar!\x1a\x07"), {"a rar archive", "unrar p -inul FILE"}},
    {bytes_of("ustar"), {"a tar archive", "tar -xOf FILE"}, 257, true},
    {bytes_of("PAR1"), {"a Parquet file", kByPyarrow}, 0, true},
    {bytes_of("ARROW1"), {"an Arrow file", kByPyarrow}, 0, true},
    {bytes_of("\xff\xff\xff\xff"), {"an Arrow stream", kByPyarrow}},
    {bytes_of("Obj\x01"), {"an Avro file", ""}},
    {bytes_of("ORC"), {"an ORC file", ""}, 0, true},
    {bytes_of("\x89HDF\r\n"), {"an HDF5 file", ""}},
    {bytes_of("SQLite format 3\0"), {"an SQLite database", ""}},
    {bytes_of("%PDF-"), {"a PDF document", "pdftotext FILE -"}},
    {bytes_of("\x93NUMPY"), {"a numpy array", ""}},
    {bytes_of("MMIDIDX\0\0"), {"a Megatron index", ""}},
    {bytes_of("GGUF"), {"a GGUF file", ""}, 0, true},
    {bytes_of("\x7f"
              "ELF"),
     {"a program", ""}},
    {bytes_of("\x89PNG\r\n"), {"an image", ""}},
    {bytes_of("\xff\xd8\xff"), {"an image", ""}},
    {bytes_of("\x80\x04\x95"), {"a pickle", ""}},
    {bytes_of("\x80\x05\x95"), {"a pickle", ""}},
});

constexpr FileKind kSafetensors{"a safetensors file", ""};
constexpr FileKind kUtf16{"text in UTF-16", "iconv -f UTF-16 -t UTF-8 FILE", true};
constexpr FileKind kUtf32{"text in UTF-32", "iconv -f UTF-32 -t UTF-8 FILE", true};

bool is_printable(char byte) {
  const auto value = static_cast<std::uint8_t>(byte);
  return (value >= 0x20 && value < 0x7f) || (value >= 0x08 && value <= 0x0d) || value == 0x1b;
}

// Bytes that do not occur in text of any encoding that extends ASCII.
bool is_control(char byte) { return static_cast<std::uint8_t>(byte) < 0x80 && !is_printable(byte); }

std::size_t controls_in(std::string_view sample) {
  return static_cast<std::size_t>(std::ranges::count_if(sample, is_control));
}

// The length of the readable character that begins at `at`, or 0.
std::size_t readable_at(std::string_view text, std::size_t at) {
  const std::size_t length = utf8_sequence(text, at);
  return length == 1 && !is_printable(text[at]) ? 0 : length;
}

// A safetensors file begins with a length of 64 bits and a JSON object.
bool is_safetensors(std::string_view start) {
  if (start.size() <= sizeof(std::uint64_t) || start[sizeof(std::uint64_t)] != '{') {
    return false;
  }
  const auto length = number_at<std::uint64_t>(start);
  return length >= 2 && length < std::uint64_t{1} << 32;
}

bool is_magic(const Magic& magic, std::string_view start) {
  return start.size() > magic.at && start.substr(magic.at).starts_with(magic.bytes) &&
         (!magic.readable ||
          std::ranges::any_of(start, [](char byte) { return is_control(byte); }));
}

}  // namespace

std::optional<FileKind> kind_of_bytes(std::string_view start) {
  const auto* const magic =
      std::ranges::find_if(kMagics, [&](const Magic& each) { return is_magic(each, start); });
  if (magic != kMagics.end()) {
    return magic->kind;
  }
  if (start.starts_with(bytes_of("\xff\xfe\0\0")) || start.starts_with(bytes_of("\0\0\xfe\xff"))) {
    return kUtf32;
  }
  if (start.starts_with("\xff\xfe") || start.starts_with("\xfe\xff")) {
    return kUtf16;
  }
  return is_safetensors(start) ? std::optional(kSafetensors) : std::nullopt;
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
  return 10 * readable >= 9 * sample.size() ||
         (sample.size() >= kFewestBytes && 200 * controls_in(sample) < sample.size());
}

bool is_binary(std::string_view sample) {
  return sample.size() >= kFewestBytes && 33 * controls_in(sample) > sample.size();
}

}  // namespace regroup
