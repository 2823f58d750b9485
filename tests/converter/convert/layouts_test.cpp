// Conversions of every tensor layout, checked head by head.
#include <catch2/catch_test_macros.hpp>
#include <fmt/format.h>

#include "converter/heads/heads.h"
#include "formats/families/family.h"
#include "formats/tensors/safetensors.h"
#include "tests/converter/conversion.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;
using Heads = std::vector<std::int64_t>;

// A layout as the family's documentation gives it: where the heads are.
struct Layout {
  const char* title;
  TinyModel (*make)(const TinySizes&);
  const char* tensor;  // with "{layer}" and "{role}" to replace
  bool fused;
  bool by_group;
  bool columns;
};

constexpr Layout kLayouts[] = {
    {"Llama", tiny_llama, "model.layers.{layer}.self_attn.{role}_proj", false, false, false},
    {"GPT-2", tiny_gpt2, "transformer.h.{layer}.attn.c_attn", true, false, true},
    {"BLOOM", tiny_bloom, "transformer.h.{layer}.self_attention.query_key_value", true, true,
     false},
};

// The output features of a linear map as rows, read from a stored tensor: role, head -> [d][in].
class Projections {
 public:
  Projections(const Layout& layout, const Checkpoint& checkpoint, std::int64_t groups)
      : layout_(layout), checkpoint_(checkpoint), groups_(groups) {}

  std::vector<double> head(int layer, char role, std::int64_t index,
                           const std::string& part) const {
    constexpr std::int64_t kHeads = 12, kDim = 2;
    const std::string name = fmt::format(fmt::runtime(layout_.tensor), fmt::arg("layer", layer),
                                         fmt::arg("role", role)) +
                             "." + part;
    const TensorInfo& info = checkpoint_.at(name);
    const std::vector<double> values = values_of(checkpoint_, name);
    const std::int64_t per_group = kHeads / groups_;
    std::int64_t place = index;  // in heads from the start of the tensor
    if (layout_.by_group) {
      const std::int64_t group = role == 'q' ? index / per_group : index;
      const std::int64_t inside =
          role == 'q' ? index % per_group : per_group + (role == 'v' ? 1 : 0);
      place = group * (per_group + 2) + inside;
    } else if (layout_.fused) {
      place += role == 'q' ? 0 : role == 'k' ? kHeads : kHeads + groups_;
    }
    const bool bias = info.shape.size() == 1;
    const std::int64_t in = bias ? 1 : info.shape[layout_.columns ? 0 : 1];
    const std::int64_t out = bias ? info.shape[0] : info.shape[layout_.columns ? 1 : 0];
    std::vector<double> head;
    for (std::int64_t feature = place * kDim; feature < (place + 1) * kDim; ++feature) {
      for (std::int64_t i = 0; i < in; ++i) {
        const bool transposed = layout_.columns && !bias;
        head.push_back(
            values[static_cast<std::size_t>(transposed ? i * out + feature : feature * in + i)]);
      }
    }
    return head;
  }

 private:
  const Layout& layout_;
  const Checkpoint& checkpoint_;
  std::int64_t groups_;
};

std::vector<double> mean_of(const std::vector<std::vector<double>>& heads) {
  std::vector<double> mean(heads.front().size(), 0.0);
  for (const auto& head : heads) {
    for (std::size_t i = 0; i < mean.size(); ++i) {
      mean[i] += head[i];
    }
  }
  for (double& value : mean) {
    value /= static_cast<double>(heads.size());
  }
  return mean;
}

// Sums of multiples of 1/4 are exact, so that the F64 means must be equal and not only close.
void check_pooled(const Layout& layout, std::int64_t before, std::int64_t after) {
  CAPTURE(layout.title, before, after);
  const TemporaryDirectory directory;
  const fs::path source =
      put_model(directory / "source",
                layout.make({.kv_heads = before, .dtype = DType::kF64, .attention_bias = true}));
  convert(source, directory / "result", {.kv_heads = {after}});
  const Checkpoint old_tensors = open_checkpoint(source);
  const Checkpoint new_tensors = open_checkpoint(directory / "result");
  const Projections old_heads(layout, old_tensors, before);
  const Projections new_heads(layout, new_tensors, after);
  for (const int layer : {0, 1}) {
    for (const std::string part : {"weight", "bias"}) {
      CAPTURE(layer, part);
      for (std::int64_t h = 0; h < 12; ++h) {
        CHECK(new_heads.head(layer, 'q', h, part) == old_heads.head(layer, 'q', h, part));
      }
      for (const char role : {'k', 'v'}) {
        for (std::int64_t g = 0; g < after; ++g) {
          CAPTURE(role, g);
          std::vector<std::vector<double>> members;
          for (std::int64_t h = g * (before / after); h < (g + 1) * (before / after); ++h) {
            members.push_back(old_heads.head(layer, role, h, part));
          }
          CHECK(new_heads.head(layer, role, g, part) == mean_of(members));
        }
      }
    }
  }
}

TEST_CASE("weights and biases of every layout are pooled head by head", "[converter]") {
  for (const Layout& layout : kLayouts) {
    for (const std::int64_t groups : {6, 4, 3, 2, 1}) {
      check_pooled(layout, 12, groups);
    }
  }
}

TEST_CASE("a grouped model is pooled further", "[converter]") {
  for (const Layout& layout : kLayouts) {
    check_pooled(layout, 6, 2);
    check_pooled(layout, 4, 1);
  }
}

TEST_CASE("unchanged tensors are byte-identical", "[converter]") {
  for (const Layout& layout : kLayouts) {
    const TemporaryDirectory directory;
    TinyModel tiny = layout.make({.dtype = DType::kF16});
    tiny.tensors.push_back({"a.buffer", DType::kI64, {3}, std::string(24, '\x5a')});
    put_model(directory / "source", tiny);
    convert(directory / "source", directory / "result", {.kv_heads = {4}});
    const Checkpoint result = open_checkpoint(directory / "result");
    REQUIRE(result.tensors().size() == tiny.tensors.size());
    int same = 0;
    for (const BuiltTensor& tensor : tiny.tensors) {
      same += bytes_of(result, tensor.name) == tensor.bytes ? 1 : 0;
    }
    // In two layers, k and v or the fused weight and bias change.
    CHECK(same == static_cast<int>(tiny.tensors.size()) - 4);
  }
}

TEST_CASE("as many kv heads as before copies every byte including NaN payloads", "[converter]") {
  for (const Layout& layout : kLayouts) {
    const TemporaryDirectory directory;
    TinyModel tiny = layout.make({});
    for (BuiltTensor& tensor : tiny.tensors) {
      tensor.bytes.replace(0, 4, "\xff\xff\xff\xff");  // a NaN with a payload
    }
    put_model(directory / "source", tiny);
    convert(directory / "source", directory / "result", {.kv_heads = {12}});
    const Checkpoint result = open_checkpoint(directory / "result");
    for (const BuiltTensor& tensor : tiny.tensors) {
      CHECK((bytes_of(result, tensor.name) == tensor.bytes));
    }
  }
}

TEST_CASE("a list gives each layer its own number of kv heads", "[converter]") {
  const TemporaryDirectory directory;
  const TinyModel tiny = tiny_llama({.layers = 3, .dtype = DType::kF64});
  put_model(directory / "source", tiny);
  convert(directory / "source", directory / "listed", {.kv_heads = {12, 4, 1}});
  convert(directory / "source", directory / "four", {.kv_heads = {4}});
  const Checkpoint listed = open_checkpoint(directory / "listed");
  const Checkpoint four = open_checkpoint(directory / "four");
  const std::string k = "model.layers.{}.self_attn.k_proj.weight";
  CHECK(listed.at(fmt::format(fmt::runtime(k), 0)).shape == Shape{24, 6});
  CHECK(listed.at(fmt::format(fmt::runtime(k), 2)).shape == Shape{2, 6});
  CHECK((bytes_of(listed, fmt::format(fmt::runtime(k), 1)) ==
         bytes_of(four, fmt::format(fmt::runtime(k), 1))));
}

// The tensor of a layer after each group keeps its first kv head.
std::string with_first_heads(const ModelSpec& spec, const AttentionLayout& attention,
                             const TensorInfo& tensor, const std::string& bytes,
                             std::int64_t groups, bool keys_here, bool values_here) {
  const auto features = [&](std::int64_t kv_heads) {
    return head_features(attention.packing, spec.query_heads, kv_heads, spec.head_dim);
  };
  const HeadFeatures before = features(spec.query_heads);
  const HeadFeatures after = features(groups);
  const bool columns = attention.k.input_major && tensor.shape.size() == 2;
  Shape shape = tensor.shape;
  shape[columns ? 1 : 0] = after.k_total;
  std::string result(tensor_bytes(tensor.dtype, shape), '\0');
  const auto move = [&](const Heads& from, const Heads& to) {
    move_heads(
        copy_of_heads(tensor.name,
                      head_blocks(tensor.shape, attention.k.input_major, from, spec.head_dim),
                      head_blocks(shape, attention.k.input_major, to, spec.head_dim)),
        tensor.dtype, std::as_bytes(std::span(bytes)), tensor.dtype,
        std::as_writable_bytes(std::span(result)));
  };
  const auto first_of_each_group = [&](const Heads& all) {
    Heads first;
    for (std::int64_t g = 0; g < groups; ++g) {
      first.push_back(all[static_cast<std::size_t>(g * spec.query_heads / groups)]);
    }
    return first;
  };
  if (attention.packing != Packing::kSeparate) {
    move(before.q, after.q);
  }
  if (keys_here) {
    move(first_of_each_group(before.k), after.k);
  }
  if (values_here) {
    move(first_of_each_group(before.v), after.v);
  }
  return result;
}

TEST_CASE("groups of equal heads are pooled without loss", "[converter]") {
  for (const char* name : {"equal_heads", "equal_heads_gpt2", "equal_heads_bloom"}) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    convert(golden(name), directory / "two", {.kv_heads = {2}});
    const Model source = open_model(golden(name));
    const Checkpoint result = open_checkpoint(directory / "two");
    const ModelSpec spec = describe_model(source.config, source.checkpoint, "config.json");
    for (const LayerTensors& layer : spec.layers) {
      const AttentionLayout& attention = layer.attention;
      const bool fused = attention.packing != Packing::kSeparate;
      for (const LinearTensors& linear : {attention.k, attention.v}) {
        CAPTURE(linear.weight);
        const bool is_k = linear.weight == attention.k.weight;
        const TensorInfo& tensor = source.checkpoint.at(linear.weight);
        const bool same =
            bytes_of(result, linear.weight) ==
            with_first_heads(spec, attention, tensor, bytes_of(source.checkpoint, linear.weight), 2,
                             fused || is_k, fused || !is_k);
        CHECK(same);
      }
    }
  }
}

}  // namespace
}  // namespace regroup
