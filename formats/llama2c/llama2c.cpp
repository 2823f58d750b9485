#include "formats/llama2c/llama2c.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

constexpr std::uint64_t kHeaderNumbers = 7;
constexpr std::uint64_t kHeaderBytes = kHeaderNumbers * sizeof(std::int32_t);
constexpr std::int32_t kLaterMagic = 0x616b3432;
constexpr std::int64_t kMaxLayers = 1 << 16;
constexpr double kTheta = 10000.0;
constexpr double kEpsilon = 1e-5;

constexpr std::string_view kEmbeddingTable = "token_embedding";
constexpr std::string_view kFinalRms = "rms_final";
constexpr std::string_view kClassifier = "wcls";

// One kind of tensor; the file stores it for all layers consecutively. Tables have no name.
struct TensorKind {
  std::string name;
  Shape shape;
  bool per_layer = false;
};

std::string name_in_layer(std::string_view kind, std::int64_t layer) {
  return fmt::format("layers.{}.{}", layer, kind);
}

// In the order of the file.
std::vector<TensorKind> kinds_of(const Llama2cHeader& header) {
  const std::int64_t dim = header.dim;
  const std::int64_t hidden = header.hidden_dim;
  const std::int64_t kv_dim = dim / header.heads * header.kv_heads;
  const Shape table{header.seq_len, dim / header.heads / 2};
  std::vector<TensorKind> kinds{{std::string(kEmbeddingTable), {header.vocab_size, dim}},
                                {"rms_att", {dim}, true},
                                {"wq", {dim, dim}, true},
                                {"wk", {kv_dim, dim}, true},
                                {"wv", {kv_dim, dim}, true},
                                {"wo", {dim, dim}, true},
                                {"rms_ffn", {dim}, true},
                                {"w1", {hidden, dim}, true},
                                {"w2", {dim, hidden}, true},
                                {"w3", {hidden, dim}, true},
                                {std::string(kFinalRms), {dim}},
                                {"", table},
                                {"", table}};
  if (header.own_classifier) {
    kinds.push_back({std::string(kClassifier), {header.vocab_size, dim}});
  }
  return kinds;
}

// Bytes of a tensor of at most two dimensions. Each is below 2^31, so the product fits in 64 bits.
std::uint64_t bytes_of_shape(const Shape& shape) {
  std::uint64_t bytes = sizeof(float);
  for (const std::int64_t size : shape) {
    bytes *= static_cast<std::uint64_t>(size);
  }
  return bytes;
}

// Returns nothing if the size overflows.
std::optional<std::uint64_t> size_of_file(const Llama2cHeader& header) {
  std::uint64_t size = kHeaderBytes;
  for (const TensorKind& kind : kinds_of(header)) {
    std::uint64_t bytes = 0;
    const auto count = static_cast<std::uint64_t>(kind.per_layer ? header.layers : 1);
    if (__builtin_mul_overflow(bytes_of_shape(kind.shape), count, &bytes) ||
        __builtin_add_overflow(size, bytes, &size)) {
      return std::nullopt;
    }
  }
  return size;
}

struct Llama2cLayout {
  std::vector<TensorInfo> tensors;
  std::uint64_t tables_begin = 0;
  std::uint64_t size = kHeaderBytes;
};

// The file's size must match the header.
Llama2cLayout lay_out(const Llama2cHeader& header) {
  Llama2cLayout layout;
  for (const TensorKind& kind : kinds_of(header)) {
    if (kind.name.empty() && layout.tables_begin == 0) {
      layout.tables_begin = layout.size;
    }
    for (std::int64_t i = 0; i < (kind.per_layer ? header.layers : 1); ++i) {
      const std::uint64_t end = layout.size + bytes_of_shape(kind.shape);
      if (!kind.name.empty()) {
        layout.tensors.push_back({kind.per_layer ? name_in_layer(kind.name, i) : kind.name,
                                  DType::kF32,
                                  kind.shape,
                                  0,
                                  layout.size,
                                  end,
                                  {}});
      }
      layout.size = end;
    }
  }
  return layout;
}

bool is_plausible(const Llama2cHeader& header) {
  return header.dim > 0 && header.hidden_dim > 0 && header.layers > 0 &&
         header.layers <= kMaxLayers && header.heads > 0 && header.kv_heads > 0 &&
         header.vocab_size > 0 && header.seq_len > 0 && header.dim % header.heads == 0 &&
         (header.dim / header.heads) % 2 == 0 && header.kv_heads <= header.heads &&
         header.heads % header.kv_heads == 0;
}

LayerTensors llama2c_layer(std::int64_t i) {
  const auto linear = [&](std::string_view kind) {
    return LinearTensors{name_in_layer(kind, i), "", false};
  };
  LayerTensors layer;
  layer.attention_norm = {name_in_layer("rms_att", i), ""};
  layer.attention.q = linear("wq");
  layer.attention.k = linear("wk");
  layer.attention.v = linear("wv");
  layer.attention.o = linear("wo");
  layer.mlp_norm = {name_in_layer("rms_ffn", i), ""};
  layer.gate = linear("w1");
  layer.down = linear("w2");
  layer.up = linear("w3");
  return layer;
}

}  // namespace

Llama2cHeader llama2c_header_for(const ModelSpec& spec, std::int64_t seq_len) {
  const std::vector<std::string> obstacles = llama2c_obstacles(spec);
  if (!obstacles.empty()) {
    throw_usage("llama2.c's format cannot hold this model: {}", fmt::join(obstacles, "; "));
  }
  if (seq_len < 1 || seq_len > std::numeric_limits<std::int32_t>::max()) {
    throw_usage("llama2.c's format needs a length of 1 to 2^31 - 1 positions, {} given", seq_len);
  }
  const auto narrow = [](std::int64_t number) { return static_cast<std::int32_t>(number); };
  return {narrow(spec.hidden_size), narrow(spec.intermediate_size), narrow(spec.layer_count()),
          narrow(spec.query_heads), narrow(spec.kv_heads.front()),  narrow(spec.vocab_size),
          narrow(seq_len),          !spec.lm_head.empty()};
}

std::optional<Llama2cHeader> find_llama2c_header(const File& file) {
  if (file.size() < kHeaderBytes) {
    return std::nullopt;
  }
  std::array<std::int32_t, kHeaderNumbers> numbers{};
  file.read_at(0, std::as_writable_bytes(std::span(numbers)));
  if (numbers[0] == kLaterMagic) {
    throw_bad_input("{}: version {} of llama2.c's format; only version 0, that of run.c, is read",
                    printable(file.path().string(), 0), numbers[1]);
  }
  if (numbers[5] == std::numeric_limits<std::int32_t>::min()) {
    return std::nullopt;
  }
  const Llama2cHeader header{numbers[0], numbers[1],           numbers[2], numbers[3],
                             numbers[4], std::abs(numbers[5]), numbers[6], numbers[5] < 0};
  return is_plausible(header) && size_of_file(header) == file.size() ? std::optional(header)
                                                                     : std::nullopt;
}

Checkpoint::Part open_llama2c(const std::filesystem::path& path) {
  Checkpoint::Part part{File::open(path), {}, {}};
  const auto header = find_llama2c_header(part.file);
  if (!header) {
    throw_bad_input("{}: not in llama2.c's format: header and file size disagree",
                    printable(path.string(), 0));
  }
  part.tensors = lay_out(*header).tensors;
  return part;
}

ModelSpec describe_llama2c(const Llama2cHeader& header) {
  ModelSpec spec;
  spec.family = "llama";
  spec.architecture = "LlamaForCausalLM";
  spec.hidden_size = header.dim;
  spec.query_heads = header.heads;
  spec.head_dim = header.dim / header.heads;
  spec.intermediate_size = header.hidden_dim;
  spec.vocab_size = header.vocab_size;
  spec.max_positions = header.seq_len;
  spec.kv_heads.assign(static_cast<std::size_t>(header.layers), header.kv_heads);
  spec.kv_heads_key = {"n_kv_heads"};
  spec.loaders_read_kv_heads = true;
  spec.positions = PositionKind::kRope;
  spec.rope.theta = kTheta;
  spec.rope.rotary_dim = spec.head_dim;
  spec.rope.interleaved = true;
  spec.norm = NormKind::kRmsNorm;
  spec.norm_epsilon = kEpsilon;
  spec.activation = Activation::kSilu;
  for (std::int64_t i = 0; i < header.layers; ++i) {
    spec.layers.push_back(llama2c_layer(i));
  }
  spec.token_embedding = kEmbeddingTable;
  spec.final_norm = {std::string(kFinalRms), ""};
  spec.lm_head = header.own_classifier ? kClassifier : "";
  return spec;
}

Llama2cWriter::Llama2cWriter(const std::filesystem::path& file, const ModelSpec& spec,
                             std::int64_t seq_len) {
  const Llama2cHeader header = llama2c_header_for(spec, seq_len);
  const auto size = size_of_file(header);
  if (!size) {
    throw_usage("{}: the model has too many bytes", printable(file.string(), 0));
  }
  check_free_space(file.parent_path().empty() ? "." : file.parent_path(), *size);
  const std::array<std::int32_t, kHeaderNumbers> numbers{
      header.dim,      header.hidden_dim,
      header.layers,   header.heads,
      header.kv_heads, header.own_classifier ? -header.vocab_size : header.vocab_size,
      header.seq_len};
  add_file(file).write_at(0, std::as_bytes(std::span(numbers)));
  const Llama2cLayout layout = lay_out(header);
  for (const TensorInfo& tensor : layout.tensors) {
    place(tensor.name, {0, tensor.begin, tensor.bytes(), false});
  }
  write_frequencies(layout.tables_begin, header);
}

// Writes two tables [seq_len, d/2], of cosines and of sines. All steps are in single precision, as
// in the exporter.
void Llama2cWriter::write_frequencies(std::uint64_t at, const Llama2cHeader& header) {
  const std::int32_t head_dim = header.dim / header.heads;
  std::vector<float> frequencies;
  for (std::int32_t i = 0; i < head_dim; i += 2) {
    frequencies.push_back(1.0F / std::pow(static_cast<float>(kTheta),
                                          static_cast<float>(i) / static_cast<float>(head_dim)));
  }
  const std::uint64_t row = frequencies.size() * sizeof(float);
  std::vector<float> cosines(frequencies.size());
  std::vector<float> sines(frequencies.size());
  for (std::int32_t position = 0; position < header.seq_len; ++position) {
    for (std::size_t i = 0; i < frequencies.size(); ++i) {
      const float angle = static_cast<float>(position) * frequencies[i];
      cosines[i] = std::cos(angle);
      sines[i] = std::sin(angle);
    }
    const std::uint64_t row_at = at + static_cast<std::uint64_t>(position) * row;
    file(0).write_at(row_at, std::as_bytes(std::span(cosines)));
    file(0).write_at(row_at + static_cast<std::uint64_t>(header.seq_len) * row,
                     std::as_bytes(std::span(sines)));
  }
}

}  // namespace regroup
