#include "uptrain/trainer/trained_weights.h"

#include <algorithm>
#include <numeric>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/families/family.h"

namespace regroup {
namespace {

constexpr TrainedWeights kChoices[] = {TrainedWeights::kAll, TrainedWeights::kAttention,
                                       TrainedWeights::kKeysAndValues};

class Names {
 public:
  void add(const std::string& name) {
    if (!name.empty()) {
      all.push_back(name);
    }
  }
  void add(const LinearTensors& linear) {
    add(linear.weight);
    add(linear.bias);
  }
  void add(const std::vector<NormTensors>& norms) {
    for (const NormTensors& norm : norms) {
      add(norm.weight);
      add(norm.bias);
    }
  }

  std::vector<std::string> all;
};

void add_attention(Names& names, const AttentionLayout& layout, TrainedWeights which) {
  names.add(layout.k);
  names.add(layout.v);
  names.add(layout.k_norms);
  if (which == TrainedWeights::kAttention) {
    names.add(layout.q);
    names.add(layout.o);
    names.add(layout.q_norms);
  }
}

// The output features of a fused tensor that belong to query heads.
at::Tensor query_features(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  const HeadFeatures heads = head_features(spec.attention(role, layer).packing, spec.query_heads,
                                           spec.kv_heads_of(role)[layer], spec.head_dim);
  std::vector<std::int64_t> index;
  for (const std::int64_t first : heads.q) {
    index.resize(index.size() + static_cast<std::size_t>(spec.head_dim));
    std::iota(index.end() - spec.head_dim, index.end(), first);
  }
  return at::tensor(index, at::kLong);
}

}  // namespace

std::string_view name_of(TrainedWeights which) {
  switch (which) {
    case TrainedWeights::kAll: return "all";
    case TrainedWeights::kAttention: return "attention";
    case TrainedWeights::kKeysAndValues: return "kv";
  }
  return "all";
}

TrainedWeights parse_trained_weights(std::string_view text) {
  for (const TrainedWeights which : kChoices) {
    if (text == name_of(which)) {
      return which;
    }
  }
  throw_usage("weights to train are \"{}\", allowed are all, attention and kv", printable(text));
}

std::vector<std::string> trained_tensors(const ModelSpec& spec, TrainedWeights which) {
  Names names;
  if (which == TrainedWeights::kAll) {
    for (const ExpectedTensor& tensor : expected_tensors(spec)) {
      const auto& constant = spec.constant_tensors;
      if (std::find(constant.begin(), constant.end(), tensor.name) == constant.end()) {
        names.add(tensor.name);
      }
    }
    return names.all;
  }
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      add_attention(names, spec.attention(role, layer), which);
      if (which == TrainedWeights::kAttention && role != AttentionRole::kCross) {
        names.add(spec.stack(role)[layer].relative_bias);
      }
    }
  }
  return names.all;
}

FrozenQueries::FrozenQueries(const ModelSpec& spec, TrainedWeights which,
                             const MasterWeights& masters) {
  if (which != TrainedWeights::kKeysAndValues) {
    return;
  }
  const auto freeze = [&](const std::string& name, std::int64_t dimension,
                          const at::Tensor& index) {
    for (std::size_t i = 0; i < masters.size(); ++i) {
      const StateTensor& master = masters.tensors()[i];
      for (const at::Tensor& tensor : {master.value, master.low}) {
        if (master.name == name && tensor.defined()) {
          const at::Tensor place = index.to(tensor.device());
          const at::Tensor values = tensor.detach().index_select(dimension, place);
          features_.push_back({i, dimension, place, tensor, values});
        }
      }
    }
  };
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      const AttentionLayout& layout = spec.attention(role, layer);
      if (layout.present() && layout.packing != Packing::kSeparate) {
        const at::Tensor index = query_features(spec, role, layer);
        freeze(layout.q.weight, layout.q.input_major ? 1 : 0, index);
        freeze(layout.q.bias, 0, index);
      }
    }
  }
}

void FrozenQueries::clear(const std::vector<at::Tensor>& gradients) const {
  for (const Features& part : features_) {
    gradients[part.master].index_fill_(part.dimension, part.index, 0.0);
  }
}

void FrozenQueries::restore() const {
  const at::NoGradGuard no_gradients;
  for (const Features& part : features_) {
    part.tensor.index_copy_(part.dimension, part.index, part.values);
  }
}

}  // namespace regroup
