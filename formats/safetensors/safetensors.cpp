#include "formats/safetensors/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"
#include "formats/safetensors/safetensors_entry_count.h"
#include "formats/safetensors/safetensors_header_parser.h"

namespace regroup {
namespace {

constexpr std::uint64_t kLengthBytes = 8;

// Recognises the files that are often mistaken for safetensors files.
std::string_view wrong_file_hint(std::string_view first, const std::filesystem::path& path) {
  if (first.starts_with("version ")) {
    return " (a git-LFS pointer: run `git lfs pull`)";
  }
  if (first.starts_with("<!DOCTYP") || first.starts_with("<!doctyp") ||
      first.starts_with("<html") || first.starts_with("<HTML")) {
    return " (an HTML page: the download failed)";
  }
  if (first.starts_with("\x1f\x8b")) {
    return " (gzip data: decompress it first)";
  }
  if (first.starts_with("GGUF")) {
    return " (a GGUF file)";
  }
  if (first.starts_with("PK\x03\x04")) {
    return " (a torch or ZIP archive)";
  }
  if (first.starts_with("\x93NUMPY")) {
    return " (a numpy array)";
  }
  if (std::all_of(first.begin(), first.end(), [](unsigned char c) {
        return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\r' || c == '\t';
      })) {
    return " (text)";
  }
  if (path.extension() == ".bin") {
    return " (of .bin files only torch's are read, not llama2.c's)";
  }
  return "";
}

std::string read_header(const File& file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    throw_bad_input("{}: {} bytes, too short for a safetensors file", where, file.size());
  }
  std::array<char, kLengthBytes> first{};
  file.read_at(0, std::as_writable_bytes(std::span(first)));
  const std::string_view hint =
      wrong_file_hint(std::string_view(first.data(), first.size()), file.path());
  std::uint64_t length = 0;
  std::memcpy(&length, first.data(), sizeof(length));
  if (length > kMaxSafetensorsHeader) {
    throw_bad_input(
        "{}: no safetensors file{}: it would begin with a header of {} bytes, at most {} "
        "are allowed",
        where, hint, length, kMaxSafetensorsHeader);
  }
  if (length > file.size() - kLengthBytes) {
    throw_bad_input("{}: header of {} bytes in a file of {}{}", where, length, file.size(), hint);
  }
  check_entry_count(file, kLengthBytes, length, where);
  std::string header(length, '\0');
  file.read_at(kLengthBytes, std::as_writable_bytes(std::span(header)));
  if (!header.starts_with('{')) {
    throw_bad_input("{}: the header does not begin with '{{'{}", where, hint);
  }
  return header;
}

// Checks that ranges, sorted by their beginnings, cover [0, data_bytes) without holes or overlaps.
void check_tiling(std::span<const TensorInfo> tensors, std::uint64_t data_bytes,
                  std::string_view where) {
  std::uint64_t expected = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin != expected) {
      throw_bad_input("{}: tensor {} begins at byte {} of the data, {} expected ({})", where,
                      printable(tensor.name), tensor.begin, expected,
                      tensor.begin < expected ? "it overlaps the one before" : "a hole");
    }
    expected = tensor.end;
  }
  if (expected < data_bytes) {
    throw_bad_input("{}: {} bytes after the last tensor", where, data_bytes - expected);
  }
}

}  // namespace

void parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                              std::string_view where, std::vector<TensorInfo>& tensors,
                              std::map<std::string, std::string>& metadata) {
  if (header.find('\0') != std::string_view::npos) {  // the parser would stop there
    throw_bad_input("{}: the header holds a NUL byte", where);
  }
  // Only padding may follow the object, and padding consists of spaces.
  header = header.substr(0, header.find_last_not_of(' ') + 1);
  SafetensorsHeaderParser parser(where, tensors, metadata);
  parser.parse(header);
  if (!header.ends_with('}')) {
    throw_bad_input("{}: the header is padded with bytes other than spaces", where);
  }
  for (const TensorInfo& tensor : tensors) {
    if (tensor.end > data_bytes) {
      throw_bad_input("{}: tensor {} ends at byte {} of the data, which has {} (truncated?)", where,
                      printable(tensor.name), tensor.end, data_bytes);
    }
  }
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(tensors, data_bytes, where);
}

Checkpoint::Part open_safetensors(const std::filesystem::path& path) {
  return open_safetensors(File::open(path));
}

Checkpoint::Part open_safetensors(File file) {
  const std::string where = printable(file.path().string(), 0);
  Checkpoint::Part part{std::move(file), {}, {}};
  const std::string header = read_header(part.file, where);
  const std::uint64_t data_begin = kLengthBytes + header.size();
  parse_safetensors_header(header, part.file.size() - data_begin, where, part.tensors,
                           part.metadata);
  for (TensorInfo& tensor : part.tensors) {
    tensor.begin += data_begin;
    tensor.end += data_begin;
  }
  return part;
}

std::string encode_safetensors_header(std::span<const TensorInfo> tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      std::optional<std::uint64_t> data_in_block) {
  Json header = Json::object();
  if (!metadata.empty()) {
    header["__metadata__"] = metadata;
  }
  for (const TensorInfo& tensor : tensors) {
    if (is_block_type(tensor.dtype)) {
      throw_usage("tensor {} is {}, which safetensors files cannot hold", printable(tensor.name),
                  name_of(tensor.dtype));
    }
    // push_back instead of operator[], because ordered_json looks up a new key in linear time.
    header.get_ref<Json::object_t&>().push_back({tensor.name,
                                                 {{"dtype", name_of(tensor.dtype)},
                                                  {"shape", tensor.shape},
                                                  {"data_offsets", {tensor.begin, tensor.end}}}});
  }
  std::string text = header.dump();
  const std::uint64_t unpadded = kLengthBytes + text.size();
  text.append(data_in_block ? (*data_in_block - unpadded) % kSharedBlock : -unpadded % 8, ' ');
  const std::uint64_t length = text.size();
  std::string encoded(kLengthBytes, '\0');
  std::memcpy(encoded.data(), &length, sizeof(length));
  return encoded + text;
}

}  // namespace regroup
