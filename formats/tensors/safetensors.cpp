#include "formats/tensors/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

constexpr std::size_t kMaxRank = 64;
constexpr std::size_t kUsualRank = 2;

}  // namespace

void SafetensorsHeaderParser::parse(std::string_view header) {
  constexpr std::size_t kUsualEntry = 100;  // bytes
  constexpr std::size_t kEnough = 4096;     // entries
  tensors_.reserve(std::min(header.size() / kUsualEntry, kEnough));
  read_json_events(header, *this);
  check_names();
}

// Throws: `found` is not allowed in the current state.
void SafetensorsHeaderParser::reject(std::string_view found) const {
  switch (state_) {
    case State::kStart:
    case State::kDone:
      throw_bad_input("{}: the header holds {}, one JSON object is needed", where_, found);
    case State::kTop:
      throw_bad_input("{}: entry {} holds {}, an object is needed", where_, printable(entry_.name),
                      found);
    case State::kMetadata:
      throw_bad_input("{}: __metadata__ key {} holds {}, a string is needed", where_,
                      printable(metadata_key_), found);
    case State::kEntry:
      throw_bad_input("{}: tensor {}: {} holds {}, {} is needed", where_, printable(entry_.name),
                      field_ == Field::kDType   ? "dtype"
                      : field_ == Field::kShape ? "shape"
                                                : "data_offsets",
                      found, field_ == Field::kDType ? "a string" : "an array");
    case State::kShape:
      throw_bad_input("{}: tensor {}: shape holds {}, whole numbers from 0 to 2^63-1 are needed",
                      where_, printable(entry_.name), found);
    case State::kOffsets:
      throw_bad_input("{}: tensor {}: data_offsets holds {}, two whole numbers are needed", where_,
                      printable(entry_.name), found);
  }
  throw_bad_input("{}: unexpected {}", where_, found);
}

bool SafetensorsHeaderParser::null() { reject("null"); }
bool SafetensorsHeaderParser::boolean(bool /*value*/) { reject("a boolean"); }
bool SafetensorsHeaderParser::other_number(std::string_view spelling) {
  reject(fmt::format("the number {}", printable(spelling)));
}

bool SafetensorsHeaderParser::whole_number(std::uint64_t value) {
  if (state_ == State::kShape &&
      value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
    if (entry_.shape.size() == kMaxRank) {
      throw_bad_input("{}: tensor {}: more than {} dimensions", where_, printable(entry_.name),
                      kMaxRank);
    }
    entry_.shape.push_back(static_cast<std::int64_t>(value));
    return true;
  }
  if (state_ == State::kOffsets && offset_count_ < offsets_.size()) {
    offsets_[offset_count_++] = value;
    return true;
  }
  reject(fmt::format("the number {}", value));
}

bool SafetensorsHeaderParser::string(std::string_view value) {
  if (state_ == State::kMetadata) {
    if (metadata_.size() == kMaxSafetensorsKeys) {
      throw_bad_input("{}: more than {} __metadata__ keys", where_, kMaxSafetensorsKeys);
    }
    if (!metadata_.emplace(metadata_key_, value).second) {
      throw_bad_input("{}: duplicate __metadata__ key {}", where_, printable(metadata_key_));
    }
    return true;
  }
  if (state_ != State::kEntry || field_ != Field::kDType) {
    reject(fmt::format("the string \"{}\"", printable(value, 40)));
  }
  const auto dtype = dtype_from_name(value);
  if (!dtype) {
    throw_bad_input("{}: tensor {}: unknown dtype {}", where_, printable(entry_.name),
                    printable(value));
  }
  entry_.dtype = *dtype;
  return true;
}

bool SafetensorsHeaderParser::start_object() {
  if (state_ == State::kStart) {
    state_ = State::kTop;
  } else if (state_ == State::kTop) {
    state_ = entry_.name == "__metadata__" ? State::kMetadata : State::kEntry;
  } else {
    reject("an object");
  }
  return true;
}

bool SafetensorsHeaderParser::key(std::string_view value) {
  if (state_ == State::kMetadata) {
    metadata_key_ = value;
  } else if (state_ == State::kTop) {
    begin_entry(value);
  } else {
    begin_field(value);
  }
  return true;
}

void SafetensorsHeaderParser::begin_entry(std::string_view name) {
  if (name != "__metadata__") {
    if (tensors_.size() == kMaxSafetensorsTensors) {
      throw_bad_input("{}: more than {} tensors", where_, kMaxSafetensorsTensors);
    }
  } else if (std::exchange(seen_metadata_, true)) {
    throw_bad_input("{}: duplicate entry {}", where_, name);
  }
  entry_ = TensorInfo{};
  entry_.name = name;
  entry_.shape.reserve(kUsualRank);
  offset_count_ = 0;
  has_dtype_ = has_shape_ = has_offsets_ = false;
}

void SafetensorsHeaderParser::begin_field(std::string_view name) {
  bool* seen = nullptr;
  if (name == "dtype") {
    field_ = Field::kDType;
    seen = &has_dtype_;
  } else if (name == "shape") {
    field_ = Field::kShape;
    seen = &has_shape_;
  } else if (name == "data_offsets") {
    field_ = Field::kOffsets;
    seen = &has_offsets_;
  } else {
    throw_bad_input("{}: tensor {}: unknown field {}", where_, printable(entry_.name),
                    printable(name));
  }
  if (std::exchange(*seen, true)) {
    throw_bad_input("{}: tensor {}: duplicate field {}", where_, printable(entry_.name), name);
  }
}

bool SafetensorsHeaderParser::end_object() {
  if (state_ == State::kEntry) {
    finish_entry();
    state_ = State::kTop;
  } else {
    state_ = state_ == State::kMetadata ? State::kTop : State::kDone;
  }
  return true;
}

bool SafetensorsHeaderParser::start_array() {
  if (state_ != State::kEntry || field_ == Field::kDType) {
    reject("an array");
  }
  state_ = field_ == Field::kShape ? State::kShape : State::kOffsets;
  return true;
}

bool SafetensorsHeaderParser::end_array() {
  if (state_ == State::kOffsets && offset_count_ != offsets_.size()) {
    reject(fmt::format("{} numbers", offset_count_));
  }
  state_ = State::kEntry;
  return true;
}

void SafetensorsHeaderParser::finish_entry() {
  const std::string_view missing = !has_dtype_     ? "dtype"
                                   : !has_shape_   ? "shape"
                                   : !has_offsets_ ? "data_offsets"
                                                   : "";
  if (!missing.empty()) {
    throw_bad_input("{}: tensor {}: field {} is missing", where_, printable(entry_.name), missing);
  }
  entry_.begin = offsets_[0];
  entry_.end = offsets_[1];
  if (entry_.begin > entry_.end) {
    throw_bad_input("{}: tensor {}: data_offsets begin {} after end {}", where_,
                    printable(entry_.name), entry_.begin, entry_.end);
  }
  std::uint64_t expected = 0;
  try {
    expected = tensor_bytes(entry_.dtype, entry_.shape);
  } catch (const Error& fault) {
    throw_bad_input("{}: tensor {}: {}", where_, printable(entry_.name), fault.what());
  }
  if (entry_.bytes() != expected) {
    throw_bad_input("{}: tensor {}: data_offsets span {} bytes, {} of {} need {}", where_,
                    printable(entry_.name), entry_.bytes(), text_of(entry_.shape),
                    name_of(entry_.dtype), expected);
  }
  tensors_.push_back(std::move(entry_));
}

// Sorts by hash, because hashes compare faster than names. Names decide between equal hashes.
void SafetensorsHeaderParser::check_names() const {
  using Hashed = std::pair<std::size_t, std::string_view>;
  std::vector<Hashed> names;
  names.reserve(tensors_.size());
  for (const TensorInfo& tensor : tensors_) {
    names.emplace_back(std::hash<std::string_view>()(tensor.name), tensor.name);
  }
  std::sort(names.begin(), names.end());
  const auto twice = std::adjacent_find(names.begin(), names.end());
  if (twice != names.end()) {
    throw_bad_input("{}: duplicate entry {}", where_, printable(twice->second));
  }
}

bool SafetensorsHeaderParser::broken(std::size_t position, std::string_view why) {
  throw_bad_input("{}: the header is not valid JSON at byte {}: {}", where_, position, why);
}

namespace {

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

}  // namespace

void check_entry_count(const File& file, std::uint64_t begin, std::uint64_t length,
                       std::string_view where) {
  constexpr std::uint64_t kPiece = 1U << 18;
  constexpr std::uint64_t kOthers = 2;  // the header itself, and __metadata__
  if (length < kMaxSafetensorsTensors * kSmallestEntry) {
    return;
  }
  ObjectCount count;
  std::string piece(kPiece, '\0');
  for (std::uint64_t at = 0; at < length; at += piece.size()) {
    piece.resize(std::min(kPiece, length - at));
    file.read_at(begin + at, std::as_writable_bytes(std::span(piece)));
    count = after(count, piece);
    if (count.objects > kMaxSafetensorsTensors + kOthers) {
      throw_bad_input("{}: more than {} tensors", where, kMaxSafetensorsTensors);
    }
  }
}

namespace {

constexpr std::uint64_t kLengthBytes = 8;

// How the weight files of llm.c begin: 20240326 (GPT-2) and 20240803 (Llama 3), as 32-bit integers.
constexpr std::string_view kLlmcGpt2 = "\xc6\xd7\x34\x01";
constexpr std::string_view kLlmcLlama = "\xa3\xd9\x34\x01";

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
  if (first.starts_with(kLlmcGpt2) || first.starts_with(kLlmcLlama)) {
    return " (weights of llm.c: its dev/eval/export_hf.py --input FILE --output DIRECTORY makes a "
           "directory that is read)";
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
    return first.starts_with('{') ? " (JSON: give the directory that contains it)" : " (text)";
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
  const std::uint64_t length = text.size();
  std::string encoded(kLengthBytes, '\0');
  std::memcpy(encoded.data(), &length, sizeof(length));
  return encoded + text;
}

}  // namespace regroup
