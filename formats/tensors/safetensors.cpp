#include "formats/tensors/safetensors.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/json_events.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kUsualRank = 2;

// What an error calls a value that is not the needed one.
std::string shown(const JsonEvent& value) {
  switch (value.kind) {
    case JsonKind::kNull: return "null";
    case JsonKind::kBoolean: return "a boolean";
    case JsonKind::kWholeNumber: return fmt::format("the number {}", value.number);
    case JsonKind::kOtherNumber: return fmt::format("the number {}", printable(value.text));
    case JsonKind::kString: return fmt::format("the string \"{}\"", printable(value.text, 40));
    case JsonKind::kObject: return "an object";
    default: return "an array";
  }
}

// Fills in tensors from a header in one pass, without building a document. Throws kBadInput for
// anything other than
// {name: {dtype, shape, data_offsets}, "__metadata__": {string: string}}.
class SafetensorsHeaderParser {
 public:
  SafetensorsHeaderParser(std::string_view header, std::string_view where,
                          std::vector<TensorInfo>& tensors,
                          std::map<std::string, std::string>& metadata)
      : json_(header, fmt::format("{}: the header is", where)),
        where_(where),
        tensors_(tensors),
        metadata_(metadata) {
    constexpr std::size_t kUsualEntry = 100;  // bytes
    constexpr std::size_t kEnough = 4096;     // entries
    tensors_.reserve(std::min(header.size() / kUsualEntry, kEnough));
  }

  void parse() {
    if (const JsonEvent value = json_.next(); value.kind != JsonKind::kObject) {
      throw_bad_input("{}: the header holds {}, one JSON object is needed", where_, shown(value));
    }
    bool seen_metadata = false;
    while (const auto name = next_key()) {
      if (*name != kMetadata) {
        read_entry(*name);
      } else if (std::exchange(seen_metadata, true)) {
        throw_bad_input("{}: duplicate entry {}", where_, *name);
      } else {
        read_metadata();
      }
    }
    json_.next();  // nothing follows
    check_names();
  }

 private:
  enum Field : std::size_t { kDType, kShape, kOffsets };
  static constexpr std::array<std::string_view, 3> kFields{"dtype", "shape", "data_offsets"};
  static constexpr std::string_view kMetadata = "__metadata__";

  // Throws kBadInput that names the entry.
  template <typename... Args>
  [[noreturn]] void refuse(fmt::format_string<Args...> format, Args&&... args) const {
    throw_bad_input("{}: tensor {}: {}", where_, printable(entry_.name),
                    fmt::format(format, std::forward<Args>(args)...));
  }

  // Valid until the next event; nothing at the end of the object.
  std::optional<std::string_view> next_key() {
    const JsonEvent event = json_.next();
    return event.kind == JsonKind::kKey ? std::optional(event.text) : std::nullopt;
  }

  void begin_object(std::string_view name) {
    if (const JsonEvent value = json_.next(); value.kind != JsonKind::kObject) {
      throw_bad_input("{}: entry {} holds {}, an object is needed", where_, printable(name),
                      shown(value));
    }
  }

  void read_metadata() {
    begin_object(kMetadata);
    while (const auto found = next_key()) {
      const std::string key(*found);
      const JsonEvent value = json_.next();
      if (value.kind != JsonKind::kString) {
        throw_bad_input("{}: __metadata__ key {} holds {}, a string is needed", where_,
                        printable(key), shown(value));
      }
      if (metadata_.size() == kMaxSafetensorsKeys) {
        throw_bad_input("{}: more than {} __metadata__ keys", where_, kMaxSafetensorsKeys);
      }
      if (!metadata_.emplace(key, value.text).second) {
        throw_bad_input("{}: duplicate __metadata__ key {}", where_, printable(key));
      }
    }
  }

  void read_entry(std::string_view name) {
    if (tensors_.size() == kMaxSafetensorsTensors) {
      throw_bad_input("{}: more than {} tensors", where_, kMaxSafetensorsTensors);
    }
    entry_ = TensorInfo{};
    entry_.name = name;
    entry_.shape.reserve(kUsualRank);
    begin_object(entry_.name);
    std::array<bool, kFields.size()> seen{};
    while (const auto key = next_key()) {
      const auto* const field = std::ranges::find(kFields, *key);
      if (field == kFields.end()) {
        refuse("unknown field {}", printable(*key));
      }
      if (std::exchange(seen[field - kFields.begin()], true)) {
        refuse("duplicate field {}", *key);
      }
      read_field(static_cast<Field>(field - kFields.begin()));
    }
    const auto* const missing = std::ranges::find(seen, false);
    if (missing != seen.end()) {
      refuse("field {} is missing", kFields[missing - seen.begin()]);
    }
    check_bytes();
    tensors_.push_back(std::move(entry_));
  }

  void read_field(Field field) {
    const JsonEvent value = json_.next();
    if (value.kind != (field == kDType ? JsonKind::kString : JsonKind::kArray)) {
      refuse("{} holds {}, {} is needed", kFields[field], shown(value),
             field == kDType ? "a string" : "an array");
    }
    if (field == kShape) {
      read_shape();
    } else if (field == kOffsets) {
      read_offsets();
    } else if (const auto dtype = dtype_from_name(value.text)) {
      entry_.dtype = *dtype;
    } else {
      refuse("unknown dtype {}", printable(value.text));
    }
  }

  void read_shape() {
    constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
    for (JsonEvent size = json_.next(); size.kind != JsonKind::kArrayEnd; size = json_.next()) {
      if (size.kind != JsonKind::kWholeNumber || size.number > kMost) {
        refuse("shape holds {}, whole numbers from 0 to 2^63-1 are needed", shown(size));
      }
      if (entry_.shape.size() == kMaxRank) {
        refuse("more than {} dimensions", kMaxRank);
      }
      entry_.shape.push_back(static_cast<std::int64_t>(size.number));
    }
  }

  void read_offsets() {
    std::array<std::uint64_t, 2> offsets{};
    std::size_t count = 0;
    for (JsonEvent each = json_.next(); each.kind != JsonKind::kArrayEnd; each = json_.next()) {
      if (each.kind != JsonKind::kWholeNumber || count == offsets.size()) {
        refuse("data_offsets holds {}, two whole numbers are needed", shown(each));
      }
      offsets[count++] = each.number;
    }
    if (count != offsets.size()) {
      refuse("data_offsets holds {} numbers, two whole numbers are needed", count);
    }
    entry_.begin = offsets[0];
    entry_.end = offsets[1];
  }

  void check_bytes() const {
    if (entry_.begin > entry_.end) {
      refuse("data_offsets begin {} after end {}", entry_.begin, entry_.end);
    }
    std::uint64_t expected = 0;
    try {
      expected = tensor_bytes(entry_.dtype, entry_.shape);
    } catch (const Error& fault) {
      refuse("{}", fault.what());
    }
    if (entry_.bytes() != expected) {
      refuse("data_offsets span {} bytes, {} of {} need {}", entry_.bytes(), text_of(entry_.shape),
             name_of(entry_.dtype), expected);
    }
  }

  // Sorts by hash, because hashes compare faster than names. Names decide between equal hashes.
  void check_names() const {
    using Hashed = std::pair<std::size_t, std::string_view>;
    std::vector<Hashed> names;
    names.reserve(tensors_.size());
    for (const TensorInfo& tensor : tensors_) {
      names.emplace_back(std::hash<std::string_view>()(tensor.name), tensor.name);
    }
    std::ranges::sort(names);
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice != names.end()) {
      throw_bad_input("{}: duplicate entry {}", where_, printable(twice->second));
    }
  }

  JsonReader json_;
  std::string_view where_;
  std::vector<TensorInfo>& tensors_;
  std::map<std::string, std::string>& metadata_;
  TensorInfo entry_;
};

// The length of {"dtype":"U8","shape":[],"data_offsets":[0,0]} without a name.
constexpr std::uint64_t kSmallestEntry = 46;

// Counts the objects in a JSON text that is read piece by piece.
struct ObjectCount {
  std::uint64_t objects = 0;
  bool in_string = false;
  bool escaped = false;
};

// Without branches, because the processor would mispredict many of them in a header.
ObjectCount after(ObjectCount count, std::string_view piece) {
  for (const char byte : piece) {
    const bool quote = byte == '"' && !count.escaped;
    count.escaped = byte == '\\' && !count.escaped;
    count.in_string ^= quote;
    count.objects += byte == '{' && !count.in_string ? 1U : 0U;
  }
  return count;
}

// Throws kBadInput if the header (`length` bytes from byte `begin` on) contains more objects than
// kMaxSafetensorsTensors entries, __metadata__ and the header itself. Makes one pass through a
// small buffer; headers too short for that many entries are not read.
void check_entry_count(const File& file, std::uint64_t begin, std::uint64_t length,
                       std::string_view where) {
  constexpr std::uint64_t kPiece = 1U << 18;
  constexpr std::uint64_t kOthers = 2;  // the header itself, and __metadata__
  if (length < kMaxSafetensorsTensors * kSmallestEntry) {
    return;
  }
  ObjectCount count;
  for (std::uint64_t at = 0; at < length; at += kPiece) {
    count = after(count, read_bytes(file, begin + at, std::min(kPiece, length - at)));
    if (count.objects > kMaxSafetensorsTensors + kOthers) {
      throw_bad_input("{}: more than {} tensors", where, kMaxSafetensorsTensors);
    }
  }
}

constexpr std::uint64_t kLengthBytes = 8;

constexpr std::string_view kHtmlPage = " (an HTML page: the download failed)";
constexpr std::string_view kLlmc =
    " (weights of llm.c: its dev/eval/export_hf.py --input FILE --output DIRECTORY makes a "
    "directory that is read)";

struct WrongFile {
  std::string_view start, hint;
};

// Files that are often mistaken for safetensors files.
constexpr auto kWrongFiles = std::to_array<WrongFile>({
    {"version ", " (a git-LFS pointer: run `git lfs pull`)"},
    {"<!DOCTYP", kHtmlPage},
    {"<!doctyp", kHtmlPage},
    {"<html", kHtmlPage},
    {"<HTML", kHtmlPage},
    {"\x1f\x8b", " (gzip data: decompress it first)"},
    {"\xc6\xd7\x34\x01", kLlmc},  // 20240326 (GPT-2) as a 32-bit integer
    {"\xa3\xd9\x34\x01", kLlmc},  // 20240803 (Llama 3)
    {"GGUF", " (a GGUF file)"},
    {"PK\x03\x04", " (a torch or ZIP archive)"},
    {"\x93NUMPY", " (a numpy array)"},
});

std::string_view wrong_file_hint(std::string_view first, const std::filesystem::path& path) {
  const auto* const known = std::ranges::find_if(
      kWrongFiles, [&](const WrongFile& wrong) { return first.starts_with(wrong.start); });
  if (known != kWrongFiles.end()) {
    return known->hint;
  }
  if (std::ranges::all_of(first, [](unsigned char c) {
        return (c >= 0x20 && c < 0x7f) || c == '\n' || c == '\r' || c == '\t';
      })) {
    return first.starts_with('{') ? " (JSON: give the directory that contains it)" : " (text)";
  }
  if (path.extension() == ".bin") {
    return " (of .bin files only torch's are read, not llama2.c's)";
  }
  return "";
}

std::string read_header(const File& file, std::string_view where) {
  if (file.size() < kLengthBytes) {
    throw_bad_input("{}: {} bytes, too short for a weight file{}", where, file.size(),
                    wrong_file_hint(read_start(file, file.size()), file.path()));
  }
  const std::string first = read_start(file, kLengthBytes);
  const std::string_view hint = wrong_file_hint(first, file.path());
  const auto length = number_at<std::uint64_t>(first);
  if (length > kMaxSafetensorsHeader) {
    if (!hint.empty()) {
      throw_bad_input("{}: neither a model directory nor a weight file{}", where, hint);
    }
    throw_bad_input(
        "{}: no safetensors file: it would begin with a header of {} bytes, at most {} are allowed",
        where, length, kMaxSafetensorsHeader);
  }
  if (length > file.size() - kLengthBytes) {
    throw_bad_input("{}: header of {} bytes in a file of {}{}", where, length, file.size(),
                    hint.empty() ? " (truncated?)" : hint);
  }
  check_entry_count(file, kLengthBytes, length, where);
  std::string header = read_bytes(file, kLengthBytes, length);
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
  SafetensorsHeaderParser(header, where, tensors, metadata).parse();
  if (!header.ends_with('}')) {
    throw_bad_input("{}: the header is padded with bytes other than spaces", where);
  }
  for (const TensorInfo& tensor : tensors) {
    if (tensor.end > data_bytes) {
      throw_bad_input("{}: tensor {} ends at byte {} of the data, which has {} (truncated?)", where,
                      printable(tensor.name), tensor.end, data_bytes);
    }
  }
  std::ranges::sort(tensors, [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  check_tiling(tensors, data_bytes, where);
}

Checkpoint::Part open_safetensors(const std::filesystem::path& path) {
  return open_safetensors(File::open(path));
}

Checkpoint::Part open_safetensors(File file) {
  const std::string where = file.where();
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
  std::string encoded;
  append_number<std::uint64_t>(encoded, text.size());
  return encoded + text;
}

}  // namespace regroup
