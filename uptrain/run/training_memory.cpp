#include "uptrain/run/training_memory.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "formats/families/family.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/loss.h"
#include "uptrain/train/metrics.h"

namespace regroup {

BlockElements block_elements(const ModelSpec& spec) {
  std::map<std::string, double> elements;
  BlockElements found;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    elements[tensor.name] = elements_of(tensor.shape);
    found.outside += elements_of(tensor.shape);
  }
  for (const AttentionRole role : {AttentionRole::kEncoder, AttentionRole::kSelf}) {
    for (const LayerTensors& layer : spec.stack(role)) {
      found.last = 0.0;
      for (const std::string& name : tensors_of(layer)) {
        found.last += elements[name];
      }
      found.inside += found.last;
      found.largest = std::max(found.largest, found.last);
    }
  }
  found.outside -= found.inside;
  return found;
}

namespace {

double logits_bytes(const UptrainSettings& settings, const ModelSpec& spec, double predictions) {
  // The largest number of fp32 copies of a chunk, as counted on the paper device (docs/gpu.md).
  const double copies = settings.teacher.present() ? 8.0 : settings.teacher.any() ? 7.0 : 3.0;
  const bool on_cpu = settings.device.is_cpu();
  const bool in_place = !on_cpu && !settings.teacher.any() && !spec.logit_softcap &&
                        has_fused_kernel(FusedKernel::kCrossEntropy, settings.device);
  const auto vocabulary = static_cast<double>(spec.vocab_size);
  const auto rows = static_cast<double>(default_loss_rows(spec.vocab_size, on_cpu, in_place));
  const double chunk = std::min(predictions, rows) * vocabulary;
  if (!in_place) {
    return copies * 4.0 * chunk;
  }
  // Logits that are replaced in place exist once, and their gradients' products next to them. Later
  // the gradient of the output head exists twice, while it is scaled.
  return bytes_per_element(settings.precision) *
         (2.0 * chunk + vocabulary * static_cast<double>(spec.hidden_size));
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

// The trained tensors, as far as memory is concerned. Of several ranks, that with the most.
struct Trained {
  double elements = 0.0;
  double own = 0.0;        // elements that one rank updates
  double largest = 0.0;    // elements of the largest tensor
  double inside = 0.0;     // elements of the largest one in a block
  double outside = 0.0;    // elements of the largest one that is in no block
  double small = 0.0;      // elements of all that may wait in a bucket for others
  double optimizer = 0.0;  // bytes of its state
  double transfers = 0.0;  // bytes of pinned memory in kHost
};

// The largest sum that one of `ranks` gets if the tensors of so many elements, with these amounts,
// are assigned to owners.
double largest_share(const std::vector<std::int64_t>& elements, const std::vector<double>& amounts,
                     std::int64_t ranks) {
  const std::vector<int> owners = balanced_owners(elements, static_cast<int>(ranks));
  std::vector<double> shares(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < owners.size(); ++i) {
    shares[static_cast<std::size_t>(owners[i])] += amounts[i];
  }
  return *std::max_element(shares.begin(), shares.end());
}

std::set<std::string> names_in_blocks(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const AttentionRole role : {AttentionRole::kSelf, AttentionRole::kEncoder}) {
    for (const LayerTensors& layer : spec.stack(role)) {
      names.merge(tensors_of(layer));
    }
  }
  return names;
}

Trained trained_by(const UptrainSettings& settings, const ModelSpec& spec) {
  Trained trained;
  const double narrow = bytes_per_element(settings.precision);
  const std::set<std::string> in_blocks = names_in_blocks(spec);
  std::vector<std::int64_t> sizes;
  std::vector<double> elements_of_each, optimizer, transfers;
  for_each_trained(settings, spec, [&](const std::string& name, const Shape& shape) {
    const double elements = elements_of(shape);
    sizes.push_back(static_cast<std::int64_t>(elements));
    elements_of_each.push_back(elements);
    trained.elements += elements;
    trained.largest = std::max(trained.largest, elements);
    double& place = in_blocks.contains(name) ? trained.inside : trained.outside;
    place = std::max(place, elements);
    trained.small += elements < ZeroPartition::kBucketElements ? elements : 0.0;
    optimizer.push_back(optimizer_state_bytes(settings.optimizer, shape));
    transfers.push_back(pinned_bytes(narrow * elements));
    if (settings.ranks > 1 && narrow < 4) {  // gradients are summed over ranks in fp32
      transfers.back() += pinned_bytes(4 * elements);
    }
  });
  const std::int64_t ranks = settings.sharing_ranks();
  trained.own = largest_share(sizes, elements_of_each, ranks);
  trained.optimizer = largest_share(sizes, optimizer, ranks);
  trained.transfers = largest_share(sizes, transfers, ranks);
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

// Elements of a model's weights that a rank of ShardedWeights holds: its own part, all that is
// outside blocks, and `blocks` blocks. `own` counts the elements that it updates.
double weights_here(const UptrainSettings& settings, const ModelSpec& spec, double own,
                    double blocks) {
  const auto all = static_cast<double>(count_parameters(spec));
  if (!settings.sharding.weights) {
    return all;
  }
  const BlockElements sizes = block_elements(spec);
  const double part = std::max(own, all / static_cast<double>(settings.sharing_ranks()));
  const double others = 1 - part / all;
  // Embedding and head are large tensors. Of three ranks, one owns neither.
  const double outside = sizes.outside * (settings.sharing_ranks() > 2 ? 1 : others);
  return std::min(all, part + outside + blocks * sizes.largest * others);
}

// The block at work and the next one.
constexpr double kBlocksAtWork = 2;

// Bytes of gradients on one rank that has a part of the weights, in fp32: the sums of its own.
double own_sums(const UptrainSettings& settings, const Trained& trained) {
  return 4 * trained.own * (settings.accumulation > settings.shares() ? 2 : 1);
}

// A bucket's copy of the gradients in it, while these exist.
double bucket_copy(const Trained& trained) {
  return 4 * std::min(trained.own, static_cast<double>(ZeroPartition::kBucketElements));
}

// While a block is at work, also those of other ranks: on their way, small ones that wait for a
// bucket of each rank to be full, its copy, and those just completed (with activation checkpointing
// all of a block together).
double gradients_at_block(const UptrainSettings& settings, const ModelSpec& spec,
                          const Trained& trained) {
  const auto bucket = static_cast<double>(ZeroPartition::kBucketElements);
  const double waiting =
      std::min(static_cast<double>(settings.sharing_ranks()) * bucket, trained.small);
  const double moving =
      static_cast<double>(GradientReducer::kFewInFlight) * std::max(bucket, trained.inside);
  const double last = settings.recomputing ? largest_trained_block(settings, spec) : trained.inside;
  return own_sums(settings, trained) + bucket_copy(trained) +
         4 * std::min(trained.elements - trained.own, moving + waiting) +
         bytes_per_element(settings.precision) * last;
}

// When the embedding's gradient has come, which is the last one, in both types.
double gradients_at_end(const UptrainSettings& settings, const Trained& trained) {
  const double narrow = bytes_per_element(settings.precision);
  const auto bucket = static_cast<double>(ZeroPartition::kBucketElements);
  return own_sums(settings, trained) + (narrow < 4 ? 4 + narrow : 4) * trained.outside +
         4 * std::min(trained.elements - trained.own, bucket);
}

// Bytes of gradients on one rank of several that have all weights, or on a single one.
double whole_gradients(const UptrainSettings& settings, const Trained& trained, bool several) {
  const double narrow = bytes_per_element(settings.precision);
  if (settings.ranks == 1 || several) {
    return trained.elements * (several ? 4 + narrow : 4);
  }
  return 4 * trained.elements + (narrow < 4 ? narrow * trained.largest : 0.0);
}

// Adds what training keeps for each weight, on the device or in its host.
void add_training_state(TrainingMemory& memory, const UptrainSettings& settings,
                        const ModelSpec& spec, const Trained& trained) {
  const MemoryMode mode = settings.memory.value_or(MemoryMode::kFull);
  const double narrow = bytes_per_element(settings.precision);
  const bool several = settings.accumulation > settings.shares();
  const bool alone = settings.ranks == 1;
  memory.gradients = settings.sharding.weights
                         ? std::max(gradients_at_block(settings, spec, trained),
                                    gradients_at_end(settings, trained))
                         : whole_gradients(settings, trained, several);
  if (mode == MemoryMode::kHost) {
    const double sums = alone && several ? 4 * trained.elements : 0.0;
    const double update = trained.largest * update_bytes(settings, alone && !several && narrow < 4);
    memory.host = 4 * trained.own + trained.optimizer + trained.transfers + sums + update;
    memory.gradients =
        alone ? gradients_in_flight(settings, spec, trained.largest) : memory.gradients;
    return;
  }
  const bool kept_narrow = mode == MemoryMode::kCompact && alone && !several;
  memory.gradients = kept_narrow ? narrow * trained.elements : memory.gradients;
  memory.masters = settings.precision == Precision::kFp32
                       ? 0.0
                       : (mode == MemoryMode::kCompact ? 2 : 4) * trained.own;
  memory.optimizer = trained.optimizer;
  memory.update = std::max(0.0, trained.largest * update_bytes(settings, kept_narrow) -
                                    memory.activations - memory.logits);
}

// What is needed at no moment of a step together. Gradients come while activations go, so that most
// is needed when the loss has been computed, in the backward pass of the last block (for long
// sequences) or of the first one, when the last gradient has come, or in the update. As counted on
// the paper device (docs/gpu.md): without a teacher two of the three copies of the logits exist
// while there are gradients, one of the output head in fp32; the last norm and the gradients of its
// output take 16 bytes for each element.
double not_at_once(const TrainingMemory& memory, const UptrainSettings& settings,
                   const ModelSpec& spec, const Trained& trained, const StackTokens& tokens) {
  const double backward = backward_bytes(settings, spec, tokens);
  if (settings.ranks == 1) {  // the others have not come before the last block's
    const double later = memory.gradients + memory.logits + memory.update - 4 * trained.outside;
    return std::clamp(later, 0.0, backward);
  }
  const bool shards = settings.sharding.weights;
  const bool several = settings.accumulation > settings.shares();
  const double width = bytes_per_element(settings.precision);
  const auto weights = [&](double blocks) {
    return width * weights_here(settings, spec, trained.own, blocks);
  };
  const double inside = largest_block_bytes(settings, spec, width, tokens);
  const double earlier = several ? 4 * (shards ? trained.own : trained.elements) : 0.0;
  const double at_loss =
      weights(1) + earlier + memory.activations - backward - (settings.recomputing ? inside : 0.0) +
      memory.logits * (settings.teacher.any() ? 1.0 : 2.0 / 3) + 4 * trained.outside +
      16 * static_cast<double>(settings.batch * spec.hidden_size) * tokens.decoder;
  const double at_last_block =
      weights(kBlocksAtWork) + earlier + memory.activations + 4 * trained.outside;
  const double at_first_block =
      weights(kBlocksAtWork) + inside +
      (shards ? gradients_at_block(settings, spec, trained)
              : memory.gradients + bucket_copy(trained) - (several ? 0.0 : 4 * trained.outside));
  const double at_end =
      weights(0) + (shards ? gradients_at_end(settings, trained) : memory.gradients);
  const bool on_device = settings.memory.value_or(MemoryMode::kFull) != MemoryMode::kHost;
  const double at_update = weights(0) + 4 * trained.own +
                           (on_device ? trained.largest * update_bytes(settings, false) : 0.0);
  return memory.weights + memory.gradients + memory.activations + memory.logits + memory.update -
         std::max({at_loss, at_last_block, at_first_block, at_end, at_update});
}

}  // namespace

TrainingMemory training_memory(const UptrainSettings& settings, const ModelSpec& spec,
                               const Task& task, std::int64_t sequence_length) {
  TrainingMemory memory;
  const Trained trained = trained_by(settings, spec);
  const std::int64_t here = sequence_length / settings.sequence_ranks;
  const StackTokens tokens = tokens_of(task, here);
  memory.weights = bytes_per_element(settings.precision) *
                   weights_here(settings, spec, trained.own, kBlocksAtWork);
  memory.activations = activation_bytes(settings, spec, tokens) +
                       window_bytes(settings, spec, sequence_length) +
                       shared_sequence_bytes(settings, spec, tokens);
  const auto predictions = static_cast<double>(predictions_in(task, here));
  memory.logits = logits_bytes(settings, spec, static_cast<double>(settings.batch) * predictions);
  add_training_state(memory, settings, spec, trained);
  memory.activations += backward_bytes(settings, spec, tokens);
  memory.not_at_once = not_at_once(memory, settings, spec, trained, tokens);
  return memory;
}

double teacher_bytes(const UptrainSettings& settings, const ModelSpec& teacher, const Task& task,
                     std::int64_t sequence_length) {
  const StackTokens tokens = tokens_of(task, sequence_length / settings.sequence_ranks);
  const double element = bytes_per_element(settings.teacher.precision.value_or(settings.precision));
  // Without gradients a pass holds one block's insides.
  const double inside = largest_block_bytes(settings, teacher, element, tokens);
  const double weights = weights_here(settings, teacher, 0.0, kBlocksAtWork) * element;
  UptrainSettings one_block = settings;
  one_block.recomputing = true;
  one_block.precision = settings.teacher.precision.value_or(settings.precision);
  return weights + inside + shared_sequence_bytes(one_block, teacher, tokens) +
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
