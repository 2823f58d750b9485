#include "formats/tensors/gguf.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <map>
#include <unordered_set>
#include <utility>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {

namespace {

// The smallest possible sizes in bytes of a key with its value and of a tensor description.
constexpr std::uint64_t kSmallestGgufEntry = 8 + 1 + 4 + 1;
constexpr std::uint64_t kSmallestGgufTensor = 8 + 4 + 4 + 8;

struct TensorTypeRow {
  std::uint32_t type;
  DType dtype;
};

// Q8_1 (9) and Q8_K (15) are intermediate results of matrix products and do not occur in files.
constexpr std::array<TensorTypeRow, 33> kTensorTypes{
    {{0, DType::kF32},     {1, DType::kF16},    {2, DType::kQ4_0},    {3, DType::kQ4_1},
     {6, DType::kQ5_0},    {7, DType::kQ5_1},   {8, DType::kQ8_0},    {10, DType::kQ2K},
     {11, DType::kQ3K},    {12, DType::kQ4K},   {13, DType::kQ5K},    {14, DType::kQ6K},
     {16, DType::kIq2Xxs}, {17, DType::kIq2Xs}, {18, DType::kIq3Xxs}, {19, DType::kIq1S},
     {20, DType::kIq4Nl},  {21, DType::kIq3S},  {22, DType::kIq2S},   {23, DType::kIq4Xs},
     {24, DType::kI8},     {25, DType::kI16},   {26, DType::kI32},    {27, DType::kI64},
     {28, DType::kF64},    {29, DType::kIq1M},  {30, DType::kBF16},   {34, DType::kTq1_0},
     {35, DType::kTq2_0},  {39, DType::kMxfp4}, {40, DType::kNvfp4},  {41, DType::kQ1_0},
     {42, DType::kQ2_0}}};

// Nothing for types without a counterpart.
std::optional<DType> dtype_from_ggml(std::uint32_t type) {
  const auto* const row = std::ranges::find(kTensorTypes, type, &TensorTypeRow::type);
  return row == kTensorTypes.end() ? std::nullopt : std::optional(row->dtype);
}

// Reads a file sequentially through a buffer. Reading past the end is an error.
class GgufCursor {
 public:
  GgufCursor(const File& file, const std::string& where) : file_(file), where_(where) {}

  std::uint64_t position() const { return position_; }
  std::uint64_t remaining() const { return file_.size() - position_; }

  /// Appends `size` bytes to `out`; `what` names them in errors.
  void append(std::string& out, std::uint64_t size, std::string_view what) {
    if (size > remaining()) {
      throw_bad_input("{}: {} needs {} bytes, the file has {} more (truncated?)", where_, what,
                      size, remaining());
    }
    if (position_ + size > kMaxGgufHeader) {
      throw_bad_input("{}: {} reaches beyond the first {} bytes, within which a header must end",
                      where_, what, kMaxGgufHeader);
    }
    while (size > 0) {
      refill();
      const std::uint64_t here = std::min<std::uint64_t>(size, buffered());
      out.append(buffer_, position_ - buffer_begin_, here);
      position_ += here;
      size -= here;
    }
  }

  template <typename T>
  T read(std::string_view what) {
    std::string bytes;
    append(bytes, sizeof(T), what);
    return number_at<T>(bytes);
  }

  std::string read_string(std::string_view what) {
    const auto length = read<std::uint64_t>(what);
    std::string text;
    append(text, length, what);
    return text;
  }

 private:
  std::uint64_t buffered() const { return buffer_begin_ + buffer_.size() - position_; }

  void refill() {
    constexpr std::uint64_t kBufferBytes = 1U << 16;
    if (buffered() == 0) {
      buffer_ = read_bytes(file_, position_, std::min(kBufferBytes, remaining()));
      buffer_begin_ = position_;
    }
  }

  const File& file_;
  const std::string& where_;
  std::string buffer_;
  std::uint64_t buffer_begin_ = 0;
  std::uint64_t position_ = 0;
};

// Parses one header, front to back: everything before the tensor data.
class GgufHeaderReader {
 public:
  GgufHeaderReader(const File& file, const std::string& where)
      : where_(where), cursor_(file, where), metadata_(where) {}

  void read(std::uint64_t file_bytes) {
    check_version();
    const std::uint64_t tensors =
        read_number("the number of tensors", kSmallestGgufTensor, kMaxGgufTensors);
    const std::uint64_t entries =
        read_number("the number of keys", kSmallestGgufEntry, kMaxGgufKeys);
    for (std::uint64_t i = 0; i < entries; ++i) {
      read_entry(i);
    }
    for (std::uint64_t i = 0; i < tensors; ++i) {
      read_tensor(i);
    }
    place_tensors(file_bytes);
  }

  GgufMetadata& metadata() { return metadata_; }
  std::vector<TensorInfo>& tensors() { return tensors_; }

 private:
  // Turns tensor offsets, which are relative to the data, into file offsets.
  void place_tensors(std::uint64_t file_bytes) {
    const std::uint64_t alignment = gguf_alignment(metadata_);
    const std::uint64_t data = padded_to(cursor_.position(), alignment).value();
    std::uint64_t expected = 0;
    for (TensorInfo& tensor : tensors_) {
      if (tensor.begin != expected) {
        throw_bad_input("{}: tensor {} begins at byte {} of the data, {} expected", where_,
                        printable(tensor.name), tensor.begin, expected);
      }
      const std::uint64_t room = file_bytes - std::min(file_bytes, data);
      if (tensor.begin > room || tensor.end > room - tensor.begin) {
        throw_bad_input(
            "{}: tensor {} has {} bytes at byte {} of the data, which has {} (truncated?)", where_,
            printable(tensor.name), tensor.end, tensor.begin, room);
      }
      expected = padded_to(tensor.begin + tensor.end, alignment).value();
      tensor.begin += data;
      tensor.end += tensor.begin;
    }
  }

  void check_version() {
    std::string magic;
    cursor_.append(magic, kGgufMagic.size(), "the magic number");
    if (magic != kGgufMagic) {
      throw_bad_input("{}: begins with \"{}\", not with \"GGUF\"", where_, printable(magic));
    }
    const auto version = cursor_.read<std::uint32_t>("the version");
    if (version != 0 && (version & 0xffffU) == 0) {
      throw_bad_input("{}: a big-endian GGUF file; only little-endian ones are read", where_);
    }
    if (version != 2 && version != kGgufVersion) {
      throw_bad_input("{}: GGUF version {}; versions 2 and 3 are read{}", where_, version,
                      version == 1 ? " (convert it with an older llama.cpp)" : "");
    }
  }

  // Reads a count of items of at least `smallest` bytes each.
  std::uint64_t read_number(std::string_view what, std::uint64_t smallest, std::uint64_t most) {
    const auto number = cursor_.read<std::uint64_t>(what);
    if (number > cursor_.remaining() / smallest) {
      throw_bad_input("{}: {} is {}, more than the {} bytes that follow can hold", where_, what,
                      number, cursor_.remaining());
    }
    if (number > most) {
      throw_bad_input("{}: {} is {}, at most {} allowed", where_, what, number, most);
    }
    return number;
  }

  void read_entry(std::uint64_t number) {
    GgufMetadata::Entry entry;
    entry.key = cursor_.read_string(fmt::format("key {}", number));
    const std::string what = fmt::format("key {}", printable(entry.key));
    if (entry.key.empty()) {
      throw_bad_input("{}: key {} is empty", where_, number);
    }
    if (metadata_.contains(entry.key)) {
      throw_bad_input("{}: {} appears twice", where_, what);
    }
    entry.type = static_cast<GgufType>(cursor_.read<std::uint32_t>(what));
    if (entry.type == GgufType::kArray) {
      append_array(entry.bytes, what);
    } else {
      append_values(entry.bytes, entry.type, 1, what);
    }
    metadata_.set(std::move(entry));
  }

  void append_array(std::string& out, const std::string& what) {
    constexpr std::size_t kHeadOfArray = sizeof(std::uint32_t) + sizeof(std::uint64_t);
    cursor_.append(out, kHeadOfArray, what);
    const auto type = static_cast<GgufType>(number_at<std::uint32_t>(out));
    if (type == GgufType::kArray) {
      throw_bad_input("{}: {} is an array of arrays, which is not supported", where_, what);
    }
    append_values(out, type, number_at<std::uint64_t>(out, sizeof(std::uint32_t)), what);
  }

  void append_values(std::string& out, GgufType type, std::uint64_t count,
                     const std::string& what) {
    const std::uint64_t bytes = gguf_bytes_of(type);
    if (type != GgufType::kString && bytes == 0) {
      throw_bad_input("{}: {} has values of type {}, types 0 to 12 are known", where_, what,
                      static_cast<std::uint32_t>(type));
    }
    const std::uint64_t smallest = type == GgufType::kString ? sizeof(std::uint64_t) : bytes;
    if (count > cursor_.remaining() / smallest) {
      throw_bad_input(
          "{}: {} has {} values of type {}, more than the {} bytes that follow can hold", where_,
          what, count, name_of(type), cursor_.remaining());
    }
    const std::size_t begin = out.size();
    if (type != GgufType::kString) {
      cursor_.append(out, count * bytes, what);
    }
    for (std::uint64_t i = 0; type == GgufType::kString && i < count; ++i) {
      cursor_.append(out, sizeof(std::uint64_t), what);
      cursor_.append(out, number_at<std::uint64_t>(out, out.size() - sizeof(std::uint64_t)), what);
    }
    if (type == GgufType::kBool &&
        std::any_of(out.begin() + static_cast<std::ptrdiff_t>(begin), out.end(),
                    [](char byte) { return byte != 0 && byte != 1; })) {
      throw_bad_input("{}: {} is a bool that is neither 0 nor 1", where_, what);
    }
  }

  Shape read_shape(const std::string& what) {
    const auto dimensions = cursor_.read<std::uint32_t>(what);
    if (dimensions > kMaxGgufDimensions) {
      throw_bad_input("{}: {} has {} dimensions, at most {} allowed", where_, what, dimensions,
                      kMaxGgufDimensions);
    }
    Shape shape(dimensions);
    for (auto size = shape.rbegin(); size != shape.rend(); ++size) {
      *size = cursor_.read<std::int64_t>(what);
    }
    return shape;
  }

  void read_tensor(std::uint64_t number) {
    TensorInfo tensor;
    tensor.name = cursor_.read_string(fmt::format("the name of tensor {}", number));
    const std::string what = fmt::format("tensor {}", printable(tensor.name));
    if (tensor.name.size() > kMaxGgufTensorName) {
      throw_bad_input("{}: {} has a name of {} bytes, at most {} allowed", where_, what,
                      tensor.name.size(), kMaxGgufTensorName);
    }
    if (!names_.insert(tensor.name).second) {
      throw_bad_input("{}: {} appears twice", where_, what);
    }
    tensor.shape = read_shape(what);
    const auto type = cursor_.read<std::uint32_t>(what);
    const auto dtype = dtype_from_ggml(type);
    if (!dtype) {
      throw_bad_input("{}: {} is of ggml type {}, which is not known", where_, what, type);
    }
    tensor.dtype = *dtype;
    tensor.begin = cursor_.read<std::uint64_t>(what);
    try {
      tensor.end = tensor_bytes(tensor.dtype, tensor.shape);
    } catch (const Error& error) {
      throw_bad_input("{}: {}: {}", where_, what, error.what());
    }
    tensors_.push_back(std::move(tensor));
  }

  const std::string& where_;
  GgufCursor cursor_;
  GgufMetadata metadata_;
  std::vector<TensorInfo> tensors_;  // until place_tensors(), `end` is the number of bytes
  std::unordered_set<std::string> names_;
};

std::map<std::string, std::string> recorded_facts(const GgufMetadata& metadata) {
  std::map<std::string, std::string> facts;
  for (const GgufMetadata::Entry& entry : metadata.entries()) {
    if (entry.key.starts_with("regroup.") && entry.type == GgufType::kString) {
      facts.emplace(entry.key, metadata.text(entry.key).value());
    }
  }
  return facts;
}

}  // namespace

std::optional<std::uint32_t> ggml_type_of(DType dtype) {
  const auto* const row = std::ranges::find(kTensorTypes, dtype, &TensorTypeRow::dtype);
  return row == kTensorTypes.end() ? std::nullopt : std::optional(row->type);
}

std::uint64_t gguf_alignment(const GgufMetadata& metadata) {
  constexpr std::uint64_t kDefaultAlignment = 32;
  const GgufMetadata::Entry* entry = metadata.find(kGgufAlignmentKey);
  if (entry == nullptr) {
    return kDefaultAlignment;
  }
  const auto alignment = static_cast<std::uint64_t>(metadata.count(kGgufAlignmentKey).value());
  if (entry->type != GgufType::kU32 || !std::has_single_bit(alignment)) {
    throw_bad_input("{}: {} is {} ({}), a power of two (u32) is needed", metadata.where(),
                    kGgufAlignmentKey, alignment, name_of(entry->type));
  }
  return alignment;
}

std::optional<std::uint64_t> padded_to(std::uint64_t offset, std::uint64_t alignment) {
  const std::uint64_t over = offset % alignment;
  const std::uint64_t missing = over == 0 ? 0 : alignment - over;
  return offset > std::numeric_limits<std::uint64_t>::max() - missing
             ? std::nullopt
             : std::optional(offset + missing);
}

bool is_gguf_file(const std::filesystem::path& path) {
  std::error_code unusable;
  if (!std::filesystem::is_regular_file(path, unusable)) {
    return false;
  }
  return read_start(File::open(path), kGgufMagic.size()) == kGgufMagic;
}

GgufFile open_gguf(const std::filesystem::path& path) {
  Checkpoint::Part part{File::open(path), {}, {}};
  const std::string where = part.file.where();
  GgufHeaderReader header(part.file, where);
  header.read(part.file.size());
  part.tensors = std::move(header.tensors());
  part.metadata = recorded_facts(header.metadata());
  return {std::move(header.metadata()), std::move(part)};
}

}  // namespace regroup
