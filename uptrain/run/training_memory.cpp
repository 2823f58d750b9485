#include "uptrain/run/training_memory.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "converter/convert/conversion_plan.h"
#include "formats/families/family.h"
#include "uptrain/distributed/sharded_weights.h"
#include "uptrain/model/parameters.h"
#include "uptrain/ops/device_kernels.h"
#include "uptrain/ops/loss.h"
#include "uptrain/train/trained_weights.h"

namespace regroup {

namespace {

// Of these tensors.
BlockElements elements_in_blocks(const ModelSpec& spec,
                                 const std::vector<ExpectedTensor>& tensors) {
  BlockElements found;
  std::map<std::string, double> outside;
  for (const ExpectedTensor& tensor : tensors) {
    outside[tensor.name] = elements_of(tensor.shape);
  }
  for (const AttentionRole role : {AttentionRole::kEncoder, AttentionRole::kSelf}) {
    for (const LayerTensors& layer : spec.stack(role)) {
      found.last = 0.0;
      for (const std::string& name : tensors_of(layer)) {
        if (const auto tensor = outside.extract(name)) {
          found.last += tensor.mapped();
          found.largest_tensor = std::max(found.largest_tensor, tensor.mapped());
        }
      }
      found.inside += found.last;
      found.largest = std::max(found.largest, found.last);
    }
  }
  for (const auto& [name, elements] : outside) {
    found.outside += elements;
    found.largest_outside = std::max(found.largest_outside, elements);
  }
  return found;
}

std::vector<ExpectedTensor> tensors_to_train(const UptrainSettings& settings,
                                             const ModelSpec& spec) {
  const std::vector<std::string> names = trained_tensors(spec, settings.trained);
  const std::set<std::string> trained(names.begin(), names.end());
  std::vector<ExpectedTensor> tensors = expected_tensors(spec);
  std::erase_if(tensors, [&](const ExpectedTensor& each) { return !trained.contains(each.name); });
  return tensors;
}

// LibTorch takes pinned memory in powers of two.
double pinned_bytes(double bytes) { return std::exp2(std::ceil(std::log2(bytes))); }

// The trained tensors, as far as memory is concerned. Of several ranks, that with the most.
struct Trained {
  double elements = 0.0;
  double own = 0.0;        // elements that one rank updates
  double small = 0.0;      // elements of all that may wait in a bucket for others
  double optimizer = 0.0;  // bytes of its state
  double transfers = 0.0;  // bytes of pinned memory in kHost
  BlockElements blocks;

  // Elements of the largest tensor.
  double largest() const { return std::max(blocks.largest_tensor, blocks.largest_outside); }
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

Trained trained_by(const UptrainSettings& settings, const ModelSpec& spec) {
  Trained trained;
  const double narrow = bytes_per_element(settings.precision);
  const std::vector<ExpectedTensor> tensors = tensors_to_train(settings, spec);
  std::vector<std::int64_t> sizes;
  std::vector<double> elements_of_each, optimizer, transfers;
  for (const ExpectedTensor& tensor : tensors) {
    const double elements = elements_of(tensor.shape);
    sizes.push_back(static_cast<std::int64_t>(elements));
    elements_of_each.push_back(elements);
    trained.elements += elements;
    trained.small += elements < ZeroPartition::kBucketElements ? elements : 0.0;
    optimizer.push_back(optimizer_state_bytes(settings.optimizer, tensor.shape));
    transfers.push_back(pinned_bytes(narrow * elements));
    if (settings.ranks > 1 && narrow < 4) {  // gradients are summed over ranks in fp32
      transfers.back() += pinned_bytes(4 * elements);
    }
  }
  trained.blocks = elements_in_blocks(spec, tensors);
  const std::int64_t ranks = settings.sharing_ranks();
  trained.own = largest_share(sizes, elements_of_each, ranks);
  trained.optimizer = largest_share(sizes, optimizer, ranks);
  trained.transfers = largest_share(sizes, transfers, ranks);
  return trained;
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

// Bytes of one step on one rank.
struct StepMemory {
  const UptrainSettings& settings;
  const ModelSpec& spec;
  StackTokens tokens;  // of a sequence, or of a rank's part of it

  PassMemory passes{settings, spec, tokens};
  Trained trained = trained_by(settings, spec);
  double width = bytes_per_element(settings.precision);  // of the model's type
  bool alone = settings.ranks == 1;
  bool several = settings.accumulation > settings.shares();  // batches, whose gradients are summed
  bool shards = settings.sharding.weights;

  // `predictions`: of a batch.
  TrainingMemory estimate(std::int64_t sequence_length, double predictions) const {
    TrainingMemory memory;
    memory.weights = weights(kBlocksAtWork);
    memory.activations =
        passes.kept() + passes.window_masks(sequence_length) + passes.shared_sequences();
    memory.logits = logits(predictions);
    add_training_state(memory);
    memory.activations += passes.backward();
    memory.not_at_once = not_at_once(memory);
    return memory;
  }

  double weights(double blocks) const {
    return width * weights_here(settings, spec, trained.own, blocks);
  }

  double logits(double predictions) const {
    // The largest number of fp32 copies of a chunk, as counted on the paper device (docs/gpu.md).
    const TeacherSettings& teacher = settings.teacher;
    const double copies = teacher.present() ? 8.0 : teacher.any() ? 7.0 : 3.0;
    const bool on_cpu = settings.device.is_cpu();
    const bool in_place = !on_cpu && !teacher.any() && !spec.logit_softcap &&
                          has_fused_kernel(FusedKernel::kCrossEntropy, settings.device);
    const auto vocabulary = static_cast<double>(spec.vocab_size);
    const auto rows = static_cast<double>(default_loss_rows(spec.vocab_size, on_cpu, in_place));
    const double chunk = std::min(predictions, rows) * vocabulary;
    if (!in_place) {
      return copies * 4.0 * chunk;
    }
    // Logits that are replaced in place exist once, and their gradients' products next to them.
    // Later the gradient of the output head exists twice, while it is scaled.
    return width * (2.0 * chunk + vocabulary * static_cast<double>(spec.hidden_size));
  }

  // Copies in wider types of the tensor that is being updated.
  double update(bool gradient_is_narrow) const {
    const bool whole = settings.memory_mode() != MemoryMode::kCompact;
    const double widened = (whole ? 0 : 4) + (gradient_is_narrow ? 4 : 0);
    if (settings.optimizer.kind == OptimizerKind::kAdafactor) {
      return trained.largest() * (widened + 20);
    }
    const double moments = settings.optimizer.moments == Precision::kBf16 ? 8 : 0;
    return trained.largest() * std::max(widened + moments, whole ? 0.0 : 8.0);
  }

  // Elements of the gradients that are completed together: with activation checkpointing all of a
  // block, otherwise those of the weights of one input (q, k and v).
  double completed_together() const {
    return settings.recomputing ? trained.blocks.largest : 3 * trained.blocks.largest_tensor;
  }

  // Gradients that the device holds at a time if each leaves it when it is complete. That of the
  // output head is summed in fp32 over chunks of tokens.
  double gradients_in_flight() const {
    return std::max((width < 4 ? 6 : 8) * trained.largest(), width * completed_together());
  }

  // The sums of its own gradients on a rank that has a part of the weights, in fp32.
  double own_sums() const { return 4 * trained.own * (several ? 2 : 1); }

  // A bucket's copy of the gradients in it, while these exist.
  double bucket_copy() const {
    return 4 * std::min(trained.own, static_cast<double>(ZeroPartition::kBucketElements));
  }

  // While a block is at work, also those of other ranks: on their way, small ones that wait for a
  // bucket of each rank to be full, its copy, and those just completed.
  double gradients_at_block() const {
    const auto bucket = static_cast<double>(ZeroPartition::kBucketElements);
    const double waiting =
        std::min(static_cast<double>(settings.sharing_ranks()) * bucket, trained.small);
    const double moving = static_cast<double>(GradientReducer::kFewInFlight) *
                          std::max(bucket, trained.blocks.largest_tensor);
    return own_sums() + bucket_copy() +
           4 * std::min(trained.elements - trained.own, moving + waiting) +
           width * completed_together();
  }

  // When the embedding's gradient has come, which is the last one, in both types.
  double gradients_at_end() const {
    const auto bucket = static_cast<double>(ZeroPartition::kBucketElements);
    return own_sums() + (width < 4 ? 4 + width : 4) * trained.blocks.largest_outside +
           4 * std::min(trained.elements - trained.own, bucket);
  }

  // Gradients on one rank of several that have all weights, or on a single one.
  double whole_gradients() const {
    if (alone || several) {
      return trained.elements * (several ? 4 + width : 4);
    }
    return 4 * trained.elements + (width < 4 ? width * trained.largest() : 0.0);
  }

  // Adds what training keeps for each weight, on the device or in its host.
  void add_training_state(TrainingMemory& memory) const {
    const MemoryMode mode = settings.memory_mode();
    memory.gradients =
        shards ? std::max(gradients_at_block(), gradients_at_end()) : whole_gradients();
    if (mode == MemoryMode::kHost) {
      const double sums = alone && several ? 4 * trained.elements : 0.0;
      memory.host = 4 * trained.own + trained.optimizer + trained.transfers + sums +
                    update(alone && !several && width < 4);
      memory.gradients = alone ? gradients_in_flight() : memory.gradients;
      return;
    }
    const bool kept_narrow = mode == MemoryMode::kCompact && alone && !several;
    memory.gradients = kept_narrow ? width * trained.elements : memory.gradients;
    memory.masters = settings.precision == Precision::kFp32
                         ? 0.0
                         : (mode == MemoryMode::kCompact ? 2 : 4) * trained.own;
    memory.optimizer = trained.optimizer;
    memory.update = std::max(0.0, update(kept_narrow) - memory.activations - memory.logits);
  }

  // What is needed at no moment of a step together. Gradients come while activations go, so that
  // most is needed when the loss has been computed, in the backward pass of the last block (for
  // long sequences) or of the first one, when the last gradient has come, or in the update. As
  // counted on the paper device (docs/gpu.md): without a teacher two of the three copies of the
  // logits exist while there are gradients, one of the output head in fp32; the last norm and the
  // gradients of its output take 16 bytes for each element.
  double not_at_once(const TrainingMemory& memory) const {
    const double backward = passes.backward();
    const double outside = 4 * trained.blocks.largest_outside;
    if (alone) {  // the others have not come before the last block's
      const double later = memory.gradients + memory.logits + memory.update - outside;
      return std::clamp(later, 0.0, backward);
    }
    const double inside = passes.largest_block(width);
    const double earlier = several ? 4 * (shards ? trained.own : trained.elements) : 0.0;
    const double at_loss =
        weights(1) + earlier + memory.activations - backward -
        (settings.recomputing ? inside : 0.0) +
        memory.logits * (settings.teacher.any() ? 1.0 : 2.0 / 3) + outside +
        16 * static_cast<double>(settings.batch * spec.hidden_size) * passes.tokens.decoder;
    const double at_last_block = weights(kBlocksAtWork) + earlier + memory.activations + outside;
    const double at_first_block =
        weights(kBlocksAtWork) + inside +
        (shards ? gradients_at_block()
                : memory.gradients + bucket_copy() - (several ? 0.0 : outside));
    const double at_end = weights(0) + (shards ? gradients_at_end() : memory.gradients);
    const bool on_device = settings.memory_mode() != MemoryMode::kHost;
    const double at_update = weights(0) + 4 * trained.own + (on_device ? update(false) : 0.0);
    return memory.weights + memory.gradients + memory.activations + memory.logits + memory.update -
           std::max({at_loss, at_last_block, at_first_block, at_end, at_update});
  }
};

// Batches that a rank computes in a step, alone or with others.
double batches_of_rank(const UptrainSettings& settings) {
  return static_cast<double>(settings.accumulation) / static_cast<double>(settings.shares());
}

// Bytes of the keys and values of a token, in all layers.
double bytes_of_token(const ModelSpec& spec, Precision precision) {
  return static_cast<double>(kv_bytes_per_token(
      spec.kv_heads, spec.head_dim, precision == Precision::kBf16 ? DType::kBF16 : DType::kF32));
}

double sequence_traffic(const UptrainSettings& settings, const ModelSpec& spec,
                        const ModelSpec* teacher, std::int64_t sequence_length) {
  const auto parts = static_cast<double>(settings.sequence_ranks);
  const double tokens =
      batches_of_rank(settings) * static_cast<double>(settings.batch * sequence_length) / parts;
  const double passes = settings.recomputing ? 2 : 1;
  double bytes = passes * bytes_of_token(spec, settings.precision) +
                 bytes_of_token(spec, Precision::kFp32);  // their gradients
  if (teacher != nullptr) {
    bytes += bytes_of_token(*teacher, settings.teacher_precision());
  }
  return (parts - 1) * tokens * bytes;
}

// What travels because ranks share the weights or their masters.
TrainingTraffic weight_traffic(const UptrainSettings& settings, const ModelSpec& spec,
                               const ModelSpec* teacher) {
  const auto sharing = static_cast<double>(settings.sharing_ranks());
  const double others = 1 - 1 / sharing;  // the part of all tensors that other ranks own
  double trained = 0.0;
  for (const ExpectedTensor& tensor : tensors_to_train(settings, spec)) {
    trained += elements_of(tensor.shape);
  }
  const double width = bytes_per_element(settings.precision);
  if (!settings.sharding.weights) {
    return {others * width * trained, others * 4 * trained, 0.0, 0.0};
  }
  const double batches = batches_of_rank(settings);
  const BlockElements blocks = block_elements(spec);
  // Forward and backward; the last block stays in between, and what is outside for all batches.
  double weights = width * (batches * (2 * blocks.inside - blocks.last) + blocks.outside);
  if (teacher != nullptr) {
    const Precision precision = settings.teacher_precision();
    weights += bytes_per_element(precision) * batches * block_elements(*teacher).inside;
  }
  const double other_copies = 1 - 1 / static_cast<double>(settings.sharding.copies);
  return {others * weights, others * 4 * batches * trained,
          2 * other_copies * 4 * trained / sharing, 0.0};
}

}  // namespace

BlockElements block_elements(const ModelSpec& spec) {
  return elements_in_blocks(spec, expected_tensors(spec));
}

TrainingMemory training_memory(const UptrainSettings& settings, const ModelSpec& spec,
                               const Task& task, std::int64_t sequence_length) {
  const std::int64_t here = sequence_length / settings.sequence_ranks;
  const auto predictions = static_cast<double>(predictions_in(task, here));
  return StepMemory{settings, spec, tokens_of(task, here)}.estimate(
      sequence_length, static_cast<double>(settings.batch) * predictions);
}

double teacher_bytes(const UptrainSettings& settings, const ModelSpec& teacher, const Task& task,
                     std::int64_t sequence_length) {
  const StackTokens tokens = tokens_of(task, sequence_length / settings.sequence_ranks);
  const double element = bytes_per_element(settings.teacher_precision());
  // Without gradients a pass holds one block's insides.
  const PassMemory passes{settings, teacher, tokens};
  const double inside = passes.largest_block(element);
  const double weights = weights_here(settings, teacher, 0.0, kBlocksAtWork) * element;
  UptrainSettings one_block = settings;
  one_block.recomputing = true;
  one_block.precision = settings.teacher_precision();
  return weights + inside + PassMemory{one_block, teacher, tokens}.shared_sequences() +
         (settings.teacher.attention_weight > 0 ? passes.attention_outputs() : 0.0);
}

double saved_state_bytes(const UptrainSettings& settings, const ModelSpec& spec) {
  double bytes = 0.0;
  for (const ExpectedTensor& tensor : tensors_to_train(settings, spec)) {
    bytes +=
        4 * elements_of(tensor.shape) + optimizer_state_bytes(settings.optimizer, tensor.shape);
  }
  return bytes;
}

TrainingTraffic training_traffic(const UptrainSettings& settings, const ModelSpec& spec,
                                 const ModelSpec* teacher, std::int64_t sequence_length) {
  TrainingTraffic traffic = weight_traffic(settings, spec, teacher);
  traffic.sequences = sequence_traffic(settings, spec, teacher, sequence_length);
  return traffic;
}

}  // namespace regroup
