#include "uptrain/run/training_memory.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "formats/families/family.h"
#include "uptrain/distributed/zero_partition.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/attention.h"
#include "uptrain/ops/loss.h"
#include "uptrain/run/block_elements.h"
#include "uptrain/trainer/training_flops.h"

namespace regroup {
namespace {

double bytes_per_element(Precision precision) { return precision == Precision::kBf16 ? 2 : 4; }

// The elements per token that an attention keeps for its backward pass: the residual stream and the
// norms around it, the heads before and after rotation, and its output.
double kept_by_attention(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  if (!spec.attention(role, layer).present()) {
    return 0.0;
  }
  const std::int64_t around = role == AttentionRole::kCross ? 2 : 3;
  const std::int64_t heads =
      2 * (spec.query_heads + 2 * spec.kv_heads_of(role)[layer]) + spec.query_heads;
  return static_cast<double>(around * spec.hidden_size + heads * spec.head_dim);
}

// The same for experts: the scores and probabilities in fp32, and for each expert of the token its
// input, its intermediate results, and its output before and after it is ordered and weighted.
double kept_by_experts(const ModelSpec& spec, const LayerTensors& layer) {
  if (!layer.experts.present()) {
    return 0.0;
  }
  const ExpertRouting& routing = spec.routing;
  return static_cast<double>(4 * routing.experts +
                             routing.per_token *
                                 (4 * spec.hidden_size + 4 * routing.intermediate_size));
}

// The same for an MLP: the residual stream, the norm, and its intermediate results.
double kept_by_mlp(const ModelSpec& spec, const LayerTensors& layer) {
  if (!layer.up.present()) {
    return layer.experts.present() ? static_cast<double>(3 * spec.hidden_size) : 0.0;
  }
  const std::int64_t width =
      layer.intermediate_size > 0 ? layer.intermediate_size : spec.intermediate_size;
  return static_cast<double>(3 * spec.hidden_size + 4 * width);
}

double kept_by_block(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  const bool cross = role == AttentionRole::kSelf && spec.has_encoder();
  return kept_by_attention(spec, role, layer) + kept_by_mlp(spec, spec.stack(role)[layer]) +
         kept_by_experts(spec, spec.stack(role)[layer]) +
         (cross ? kept_by_attention(spec, AttentionRole::kCross, layer) : 0.0);
}

double largest_block(const ModelSpec& spec, AttentionRole role) {
  double largest = 0.0;
  for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
    largest = std::max(largest, kept_by_block(spec, role, layer));
  }
  return largest;
}

// The elements per token that a stack keeps. With activation checkpointing, each block keeps its
// input, and one block at a time keeps the rest.
double kept_by_stack(const ModelSpec& spec, AttentionRole role, bool recomputing) {
  double sum = 0.0;
  double largest = 0.0;
  for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
    const double kept = kept_by_block(spec, role, layer);
    sum += recomputing ? static_cast<double>(spec.hidden_size) : kept;
    largest = std::max(largest, kept);
  }
  return recomputing ? sum + largest : sum;
}

double activation_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                        const StackTokens& tokens) {
  double elements =
      tokens.decoder * kept_by_stack(spec, AttentionRole::kSelf, settings.recomputing);
  if (spec.has_encoder()) {
    elements += tokens.encoder * kept_by_stack(spec, AttentionRole::kEncoder, settings.recomputing);
  }
  return static_cast<double>(settings.batch) * elements * bytes_per_element(settings.precision);
}

// The masks of a sliding window, see SlidingWindow: one for whole blocks and one for the last; off
// the CPU a row for each query head of a group.
double window_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                    std::int64_t sequence_length) {
  if (!spec.sliding_window || sequence_length <= *spec.sliding_window) {
    return 0.0;
  }
  const SlidingWindow window(*spec.sliding_window, {}, spec.causal);
  const std::int64_t fewest = *std::min_element(spec.kv_heads.begin(), spec.kv_heads.end());
  const std::int64_t copies = settings.device.is_cpu() ? 1 : spec.query_heads / fewest;
  const auto numbers = static_cast<double>(copies * window.block() * window.keys());
  return 2 * numbers * bytes_per_element(settings.precision);
}

double logits_bytes(const UptrainSettings& settings, const ModelSpec& spec, double predictions) {
  // The largest number of fp32 copies of a chunk, as counted on the paper device (docs/gpu.md).
  const double copies = settings.teacher.present() ? 8.0 : settings.teacher.any() ? 7.0 : 3.0;
  return copies * 4.0 *
         std::min(predictions, static_cast<double>(
                                   default_loss_rows(spec.vocab_size, settings.device.is_cpu()))) *
         static_cast<double>(spec.vocab_size);
}

// The outputs of all attentions of two models, and their differences in fp32.
double attention_bytes(const UptrainSettings& settings, const ModelSpec& spec,
                       const StackTokens& tokens) {
  double outputs = 0.0;
  for (const AttentionRole role : spec.roles()) {
    const double length = role == AttentionRole::kEncoder ? tokens.encoder : tokens.decoder;
    for (std::size_t layer = 0; layer < spec.stack(role).size(); ++layer) {
      outputs += spec.attention(role, layer).present() ? length : 0.0;
    }
  }
  return static_cast<double>(settings.batch * spec.hidden_size) * outputs *
         (2 * bytes_per_element(settings.precision) + 4);
}

void for_each_trained(const UptrainSettings& settings, const ModelSpec& spec,
                      const std::function<void(const std::string&, const Shape&)>& visit) {
  const std::vector<std::string> names = trained_tensors(spec, settings.trained);
  const std::set<std::string> trained(names.begin(), names.end());
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    if (trained.contains(tensor.name)) {
      visit(tensor.name, tensor.shape);
    }
  }
}

// Bytes per element of the tensor that is being updated: its copies in wider types.
double update_bytes(const UptrainSettings& settings, bool gradient_is_narrow) {
  const bool whole = settings.memory.value_or(MemoryMode::kFull) != MemoryMode::kCompact;
  const double widened = (whole ? 0 : 4) + (gradient_is_narrow ? 4 : 0);
  if (settings.optimizer.kind == OptimizerKind::kAdafactor) {
    return widened + 20;
  }
  const double moments = settings.optimizer.moments == Precision::kBf16 ? 8 : 0;
  return std::max(widened + moments, whole ? 0.0 : 8.0);
}

// LibTorch takes pinned memory in powers of two.
double pinned_bytes(double bytes) { return std::exp2(std::ceil(std::log2(bytes))); }

// The trained tensors, as far as memory is concerned.
struct Trained {
  double elements = 0.0;
  double largest = 0.0;    // elements of the largest tensor
  double optimizer = 0.0;  // bytes of its state
  double transfers = 0.0;  // bytes of pinned memory in kHost
};

Trained trained_by(const UptrainSettings& settings, const ModelSpec& spec) {
  Trained trained;
  const double narrow = bytes_per_element(settings.precision);
  for_each_trained(settings, spec, [&](const std::string&, const Shape& shape) {
    const double elements = elements_of(shape);
    trained.elements += elements;
    trained.largest = std::max(trained.largest, elements);
    trained.optimizer += optimizer_state_bytes(settings.optimizer, shape);
    trained.transfers += pinned_bytes(narrow * elements);
    if (settings.ranks > 1 && narrow < 4) {  // gradients are summed over ranks in fp32
      trained.transfers += pinned_bytes(4 * elements);
    }
  });
  return trained;
}

// Elements of the trained tensors of the largest block.
double largest_trained_block(const UptrainSettings& settings, const ModelSpec& spec) {
  std::map<std::string, double> trained;
  for_each_trained(settings, spec, [&](const std::string& name, const Shape& shape) {
    trained[name] = elements_of(shape);
  });
  double largest = 0.0;
  for (const AttentionRole role : {AttentionRole::kSelf, AttentionRole::kEncoder}) {
    for (const LayerTensors& layer : spec.stack(role)) {
      double elements = 0.0;
      for (const std::string& name : tensors_of(layer)) {
        elements += trained.contains(name) ? trained.at(name) : 0.0;
      }
      largest = std::max(largest, elements);
    }
  }
  return largest;
}

// Bytes of gradients that the device holds at a time if each leaves it when it is complete. That of
// the output head is summed in fp32 over chunks of tokens. With activation checkpointing a block's
// gradients are completed together.
double gradients_in_flight(const UptrainSettings& settings, const ModelSpec& spec, double largest) {
  const double narrow = bytes_per_element(settings.precision);
  const double block = settings.recomputing ? largest_trained_block(settings, spec) : 0.0;
  return std::max((narrow < 4 ? 6 : 8) * largest, narrow * block);
}

// Elements of a model's weights on one rank. A rank of ShardedWeights has its own part, all that is
// outside blocks, and three blocks: the one at work, the next one, and the last, which stays.
double weights_here(const UptrainSettings& settings, const ModelSpec& spec) {
  const auto all = static_cast<double>(count_parameters(spec));
  if (!settings.sharding.weights) {
    return all;
  }
  const BlockElements blocks = block_elements(spec);
  const double own = all / static_cast<double>(settings.sharing_ranks());
  return std::min(all, own + (blocks.outside + 3 * blocks.largest) * (1 - own / all));
}

// Bytes of gradients on one rank that has a part of the weights: those of the block at work, and in
// fp32 the sums of its own, what waits for a bucket of each rank to be full, and a bucket's copy.
double sharded_gradients(const UptrainSettings& settings, const ModelSpec& spec,
                         const Trained& trained, bool several) {
  const auto ranks = static_cast<double>(settings.sharing_ranks());
  const double own = trained.elements / ranks;
  const double block = std::max(largest_trained_block(settings, spec), trained.largest);
  const auto bucket = static_cast<double>(ZeroPartition::kBucketElements);
  const double kept = std::min(trained.elements, own + block + ranks * bucket);
  const double copy = std::min(own, std::max(bucket, trained.largest));
  return bytes_per_element(settings.precision) * block + 4 * (kept + copy + (several ? own : 0.0));
}

// Adds what training keeps for each weight, on the device or in its host.
void add_training_state(TrainingMemory& memory, const UptrainSettings& settings,
                        const ModelSpec& spec) {
  const Trained trained = trained_by(settings, spec);
  const MemoryMode mode = settings.memory.value_or(MemoryMode::kFull);
  const double narrow = bytes_per_element(settings.precision);
  const auto ranks = static_cast<double>(settings.sharing_ranks());
  const bool several = settings.accumulation > settings.ranks;
  const bool alone = settings.ranks == 1;
  memory.gradients = settings.sharding.weights ? sharded_gradients(settings, spec, trained, several)
                                               : trained.elements * (several ? 4 + narrow : 4);
  if (mode == MemoryMode::kHost) {
    const double sums = alone && several ? 4 * trained.elements : 0.0;
    const double update = trained.largest * update_bytes(settings, alone && !several && narrow < 4);
    memory.host =
        (4 * trained.elements + trained.optimizer + trained.transfers) / ranks + sums + update;
    memory.gradients =
        alone ? gradients_in_flight(settings, spec, trained.largest) : memory.gradients;
    return;
  }
  const bool kept_narrow = mode == MemoryMode::kCompact && alone && !several;
  memory.gradients = kept_narrow ? narrow * trained.elements : memory.gradients;
  memory.masters = settings.precision == Precision::kFp32
                       ? 0.0
                       : (mode == MemoryMode::kCompact ? 2 : 4) * trained.elements / ranks;
  memory.optimizer = trained.optimizer / ranks;
  memory.update = std::max(0.0, trained.largest * update_bytes(settings, kept_narrow) -
                                    memory.activations - memory.logits);
}

}  // namespace

TrainingMemory training_memory(const UptrainSettings& settings, const ModelSpec& spec,
                               const Task& task, std::int64_t sequence_length) {
  TrainingMemory memory;
  memory.weights = bytes_per_element(settings.precision) * weights_here(settings, spec);
  memory.activations = activation_bytes(settings, spec, tokens_of(task, sequence_length)) +
                       window_bytes(settings, spec, sequence_length);
  const auto predictions = static_cast<double>(predictions_in(task, sequence_length));
  memory.logits = logits_bytes(settings, spec, static_cast<double>(settings.batch) * predictions);
  add_training_state(memory, settings, spec);
  return memory;
}

double teacher_bytes(const UptrainSettings& settings, const ModelSpec& teacher, const Task& task,
                     std::int64_t sequence_length) {
  const StackTokens tokens = tokens_of(task, sequence_length);
  const double element = bytes_per_element(settings.teacher.precision.value_or(settings.precision));
  // Without gradients a pass holds one block's insides.
  const double inside = static_cast<double>(settings.batch) * element *
                        std::max(tokens.decoder * largest_block(teacher, AttentionRole::kSelf),
                                 tokens.encoder * largest_block(teacher, AttentionRole::kEncoder));
  const double weights = weights_here(settings, teacher) * element;
  return weights + inside +
         (settings.teacher.attention_weight > 0 ? attention_bytes(settings, teacher, tokens) : 0.0);
}

double saved_state_bytes(const UptrainSettings& settings, const ModelSpec& spec) {
  double bytes = 0.0;
  for_each_trained(settings, spec, [&](const std::string&, const Shape& shape) {
    bytes += 4 * elements_of(shape) + optimizer_state_bytes(settings.optimizer, shape);
  });
  return bytes;
}

}  // namespace regroup
