#include <algorithm>
#include <array>
#include <cstddef>

#include "formats/base/file.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

using std::literals::operator""sv;  // such a literal may contain NULs

// Fewer bytes are not enough to decide by how often some of them occur.
constexpr std::size_t kFewestBytes = 256;

struct Magic {
  std::string_view bytes;
  FileKind kind;
  std::size_t at = 0;
  bool readable = false;  // a text may begin with it, too
};

constexpr std::string_view kByPyarrow = "python -m regroup.documents FILE";

constexpr auto kMagics = std::to_array<Magic>({
    {"\x1f\x8b\x08"sv, {"gzip data", "zcat FILE"}},
    {"\x28\xb5\x2f\xfd"sv, {"zstd data", "zstdcat FILE"}},
    {"\xfd\x37zXZ\0"sv, {"xz data", "xzcat FILE"}},
    {"\x04\x22\x4d\x18"sv, {"lz4 data", "lz4cat FILE"}},
    {"BZh"sv, {"bzip2 data", "bzcat FILE"}, 0, true},
    {"PK\x03\x04"sv, {"a zip archive", "unzip -p FILE"}},
    {"7z\xbc\xaf\x27\x1c"sv, {"a 7z archive", "7z e -so FILE"}},
    {"Rar!\x1a\x07"sv, {"a rar archive", "unrar p -inul FILE"}},
    {"ustar"sv, {"a tar archive", "tar -xOf FILE"}, 257, true},
    {"PAR1"sv, {"a Parquet file", kByPyarrow}, 0, true},
    {"ARROW1"sv, {"an Arrow file", kByPyarrow}, 0, true},
    {"\xff\xff\xff\xff"sv, {"an Arrow stream", kByPyarrow}},
    {"Obj\x01"sv, {"an Avro file", ""}},
    {"ORC"sv, {"an ORC file", ""}, 0, true},
    {"\x89HDF\r\n"sv, {"an HDF5 file", ""}},
    {"SQLite format 3\0"sv, {"an SQLite database", ""}},
    {"%PDF-"sv, {"a PDF document", "pdftotext FILE -"}},
    {"\x93NUMPY"sv, {"a numpy array", ""}},
    {"MMIDIDX\0\0"sv, {"a Megatron index", ""}},
    {"GGUF"sv, {"a GGUF file", ""}, 0, true},
    {"\x7f\x45LF"sv, {"a program", ""}},
    {"\x89PNG\r\n"sv, {"an image", ""}},
    {"\xff\xd8\xff"sv, {"an image", ""}},
    {"\x80\x04\x95"sv, {"a pickle", ""}},
    {"\x80\x05\x95"sv, {"a pickle", ""}},
    {"\x1e{"sv, {"JSON text sequences", "tr -d '\\036' < FILE"}},
    {kLfsPointer, {"a git-LFS pointer (git lfs pull downloads the file)", ""}},
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
  if (start.starts_with("\xff\xfe\0\0"sv) || start.starts_with("\0\0\xfe\xff"sv)) {
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
