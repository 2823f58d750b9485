#include "converter/convert/execute_plan.h"

#include <algorithm>
#include <cmath>
#include <condition_variable>
#include <deque>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <tuple>

#include "converter/convert/loader_choice.h"
#include "converter/convert/model_card.h"
#include "converter/convert/tensor_parts.h"
#include "converter/convert/tensor_step.h"
#include "formats/base/callback.h"
#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/staged_directory.h"
#include "formats/tensors/checkpoint.h"
#include "formats/tensors/checkpoint_writer.h"
#include "formats/tensors/dtype.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// Makes the tensor of a step from its moves. Reads each source once, and computes pooled tensors on
// demand.
class TensorMaker {
 public:
  TensorMaker(const TensorStep& step, const ConversionPlan& plan, const Checkpoint& checkpoint,
              AttentionPooler& pooler)
      : step_(step), plan_(plan), checkpoint_(checkpoint), pooler_(pooler) {}

  void make(std::span<std::byte> result) {
    if (step_.add != 0.0 || step_.fold || step_.unit_rows) {
      compute(result);
    } else {
      apply(step_.moves, step_.output.dtype, result);
    }
  }

 private:
  std::span<const std::byte> bytes(const HeadMove& move) {
    if (move.pooled) {
      const PooledTensor& tensor = *move.pooled;
      return std::as_bytes(std::span(tensor.values_in(pooler_.layer(tensor.role, tensor.layer))));
    }
    const auto [place, is_new] = read_.try_emplace(move.source);
    if (is_new) {
      const TensorInfo& source = checkpoint_.at(move.source);
      place->second.resize(source.bytes());
      checkpoint_.read(source, place->second);
    }
    return place->second;
  }

  bool must_be_finite() const {
    return !may_hold_nonfinite(step_.output, plan_.request.allow_nonfinite);
  }

  [[noreturn]] void refuse(const HeadMove& move) const {
    refuse_numbers(checkpoint_, checkpoint_.at(move.source), step_.output);
  }

  // Applies moves to `target`, whose elements are of type `dtype`.
  void apply(const std::vector<HeadMove>& moves, DType dtype, std::span<std::byte> target) {
    for (const HeadMove& move : moves) {
      const DType type = move.pooled ? DType::kF64 : checkpoint_.at(move.source).dtype;
      if (!move_heads(move, type, bytes(move), dtype, target) && must_be_finite()) {
        refuse(move);
      }
    }
  }

  std::vector<double> moved_values(const std::vector<HeadMove>& moves, const Shape& shape) {
    std::vector<double> values(static_cast<std::size_t>(element_count(shape)), 0.0);
    apply(moves, DType::kF64, std::as_writable_bytes(std::span(values)));
    return values;
  }

  // Executes moves and later operations in double, and rounds once at the end.
  void compute(std::span<std::byte> result) {
    std::vector<double> values = moved_values(step_.moves, step_.output.shape);
    for (double& value : values) {
      value += step_.add;
    }
    if (step_.fold) {
      const FoldedNorm folded(checkpoint_, *step_.fold, plan_.spec.norm_weight_offset);
      if (step_.output.shape.size() == 2) {
        folded.apply_to_weight(values);
      } else {
        folded.apply_to_bias(values,
                             moved_values(step_.fold->weight_moves, step_.fold->weight_shape));
      }
    }
    if (step_.unit_rows) {
      divide_by_norms(values, static_cast<std::size_t>(step_.output.shape.at(1)));
    }
    const double largest = largest_number(step_.output.dtype);
    const auto fits = [&](double value) { return std::abs(value) <= largest; };
    if (must_be_finite() && !std::ranges::all_of(values, fits)) {
      refuse(step_.moves.front());
    }
    encode_numbers(step_.output.dtype, values, result);
  }

  const TensorStep& step_;
  const ConversionPlan& plan_;
  const Checkpoint& checkpoint_;
  AttentionPooler& pooler_;
  std::map<std::string, std::vector<std::byte>> read_;
};

}  // namespace

std::vector<std::byte> make_tensor(const TensorStep& step, const ConversionPlan& plan,
                                   const Checkpoint& checkpoint, AttentionPooler& pooler) {
  std::vector<std::byte> result(tensor_bytes(step.output.dtype, step.output.shape));
  if (step.unchanged()) {
    checkpoint.read(checkpoint.at(step.copy_of), result);
  } else if (!step.values.empty()) {
    encode_numbers(step.output.dtype, step.values, result);
  } else {
    TensorMaker(step, plan, checkpoint, pooler).make(result);
  }
  return result;
}

std::vector<std::pair<AttentionRole, std::size_t>> pooled_layers(const ConversionPlan& plan) {
  std::vector<std::pair<AttentionRole, std::size_t>> layers;
  for (const AttentionRole role : plan.spec.roles()) {
    for (std::size_t i = 0; i < plan.spec.stack(role).size(); ++i) {
      if (plan.spec.attention(role, i).present() &&
          plan.spec.kv_heads_of(role)[i] != plan.grouped.kv_heads_of(role)[i]) {
        layers.emplace_back(role, i);
      }
    }
  }
  return layers;
}

std::vector<LayerReport> measure_pooling(const ConversionPlan& plan, const Checkpoint& checkpoint,
                                         const std::atomic<bool>& stop) {
  AttentionPooler pooler(plan, checkpoint, &stop, /*refines=*/false);
  for (const auto& [role, layer] : pooled_layers(plan)) {
    pooler.layer(role, layer);
  }
  return pooler.reports();
}

namespace {

// make_tensor() for `sink`, in parts if possible: see parts_of(). Also throws what `sink` throws;
// parts before the error have been passed on.
void make_tensor_parts(const TensorStep& step, const ConversionPlan& plan,
                       const Checkpoint& checkpoint, AttentionPooler& pooler,
                       const TensorSink& sink) {
  const std::vector<TensorPart> parts = parts_of(step, checkpoint);
  if (parts.empty()) {
    sink(make_tensor(step, plan, checkpoint, pooler));
    return;
  }
  make_parts(parts, step, checkpoint, sink, [&](const TensorInfo& tensor) {
    if (!may_hold_nonfinite(step.output, plan.request.allow_nonfinite)) {
      refuse_numbers(checkpoint, tensor, step.output);
    }
  });
}

// Inputs of writing; keeps references to all.
struct TensorWork {
  const ConversionPlan& plan;
  const Checkpoint& checkpoint;
  AttentionPooler& pooler;
  CheckpointWriter& writer;
  const ConversionProgress& progress;
  const std::atomic<bool>& stop;
  TensorChecksums& checksums;  // receives those of refitted tensors
};

// With two threads, one can wait for the disk while the other computes. More than a few copying
// threads gain nothing on any disk.
constexpr unsigned kFewestThreads = 2, kMostThreads = 4;

// Tensors are computed concurrently as long as they need no more memory than this in total.
constexpr std::uint64_t kSideBySide = 64U << 20;

// The work queue. Only the first thread makes solved tensors, because a layer is solved once for
// all its tensors and a refiner processes layers in order.
class Steps {
 public:
  explicit Steps(const ConversionPlan& plan) {
    for (const TensorStep& step : plan.steps) {
      (step.unchanged() ? copied_ : step.solved() != nullptr ? solved_ : moved_).push_back(&step);
    }
    std::ranges::stable_sort(solved_, {}, [](const TensorStep* step) {  // as they are computed
      const PooledTensor& tensor = *step->solved();
      return std::tuple(tensor.role != AttentionRole::kEncoder, tensor.layer, tensor.role);
    });
  }

  // Returns the next tensor for a thread, or null. The first thread prefers computed tensors.
  const TensorStep* take(bool is_first) {
    auto& preferred = !is_first ? copied_ : solved_.empty() ? moved_ : solved_;
    auto& other = is_first ? copied_ : moved_;
    auto& steps = preferred.empty() ? other : preferred;
    if (steps.empty()) {
      return nullptr;
    }
    const TensorStep* step = steps.front();
    steps.pop_front();
    return step;
  }

 private:
  std::deque<const TensorStep*> solved_, moved_, copied_;
};

// The memory for making a tensor. A tensor made in parts needs one part and its sources. Others
// need the sources, the tensor, and doubles if it is computed.
std::uint64_t working_bytes(const TensorStep& step, const Checkpoint& checkpoint) {
  if (const auto parts = parts_of(step, checkpoint); !parts.empty()) {
    return bytes_at_once(parts, step, checkpoint);
  }
  std::uint64_t bytes = tensor_bytes(step.output.dtype, step.output.shape);
  const std::string* last = nullptr;
  for (const HeadMove& move : step.moves) {
    if (last == nullptr || *last != move.source) {
      bytes += checkpoint.at(move.source).bytes();
    }
    last = &move.source;
  }
  return step.fold || step.add != 0.0 || step.unit_rows ? 8 * bytes : bytes;
}

class TensorWriters {
 public:
  explicit TensorWriters(const TensorWork& work) : work_(work), steps_(work.plan) {}

  // Writes every tensor of the plan, on up to `threads` threads (0: one per core). One thread
  // starts with computed tensors, the others with copied ones, so that the disk is busy while heads
  // are pooled. Throws what the first to fail throws, or kInterrupted once `stop` is true.
  void run(int threads) {
    const unsigned count =
        threads > 0 ? std::min(static_cast<unsigned>(threads), kMostThreads)
                    : std::clamp(std::thread::hardware_concurrency(), kFewestThreads, kMostThreads);
    {
      std::vector<std::jthread> others;
      try {
        for (unsigned i = 1; i < count; ++i) {
          others.emplace_back([this] { write_all(false); });
        }
      } catch (const std::system_error&) {
        // Fewer threads suffice.
      }
      write_all(true);
    }
    if (failure_) {
      std::rethrow_exception(failure_);
    }
  }

 private:
  void write_all(bool is_first) {
    try {
      while (const TensorStep* step = next(is_first)) {
        write(*step);
        report(*step);
      }
    } catch (...) {
      const std::lock_guard lock(mutex_);
      failure_ = failure_ ? failure_ : std::current_exception();
    }
    freed_.notify_all();
  }

  const TensorStep* next(bool is_first) {
    const std::lock_guard lock(mutex_);
    return failure_ ? nullptr : (check_stop(), steps_.take(is_first));
  }

  void check_stop() const { throw_if_stopped(work_.stop, "interrupted; nothing was left behind"); }

  void write(const TensorStep& step) {
    const std::string& name = step.output.name;
    if (step.unchanged()) {
      work_.writer.copy(name, work_.checkpoint, work_.checkpoint.at(step.copy_of));
      return;
    }
    const std::uint64_t bytes = working_bytes(step, work_.checkpoint);
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return in_use_ == 0 || in_use_ + bytes <= kSideBySide; });
    in_use_ += bytes;
    lock.unlock();
    struct Release {
      TensorWriters& writers;
      std::uint64_t bytes;
      ~Release() { writers.release(bytes); }
    } const release{*this, bytes};
    if (has_checksum(work_.plan, step)) {
      const std::vector<std::byte> tensor =
          make_tensor(step, work_.plan, work_.checkpoint, work_.pooler);
      work_.checksums[name] = checksum_of(tensor);
      work_.writer.write(name, tensor);
      return;
    }
    work_.writer.write_parts(name, [&](const TensorSink& sink) {
      make_tensor_parts(step, work_.plan, work_.checkpoint, work_.pooler, sink);
    });
  }

  void release(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    in_use_ -= bytes;
    freed_.notify_all();
  }

  void report(const TensorStep& step) {
    const std::lock_guard lock(mutex_);
    check_stop();
    done_ += work_.writer.bytes_of(step.output.name);
    call_if_given(work_.progress, done_, step.output.name);
  }

  const TensorWork& work_;
  std::mutex mutex_;  // guards all members below
  std::condition_variable freed_;
  Steps steps_;
  std::uint64_t in_use_ = 0;
  std::uint64_t done_ = 0;
  std::exception_ptr failure_;
};

// The path of a single file while it is staged.
constexpr const char* kStagedFile = "model";

std::vector<OutputTensor> outputs_of(const ConversionPlan& plan, const Checkpoint& checkpoint,
                                     const fs::path& staged) {
  std::vector<bool> shareable;
  for (const File& file : checkpoint.files()) {
    shareable.push_back(file.shares_blocks_with(staged));
  }
  std::vector<OutputTensor> outputs;
  for (const TensorStep& step : plan.steps) {
    outputs.push_back(step.output);
    if (step.unchanged()) {
      const std::vector<ByteRange> ranges = ranges_of(checkpoint.at(step.copy_of));
      if (ranges.size() == 1) {
        outputs.back().stands = ranges.front();
        outputs.back().shareable = shareable[ranges.front().file];
      }
    }
  }
  return outputs;
}

std::unique_ptr<CheckpointWriter> make_writer(const ConversionPlan& plan,
                                              const Checkpoint& checkpoint,
                                              const fs::path& staged) {
  const std::vector<OutputTensor> outputs = outputs_of(plan, checkpoint, staged);
  switch (plan.container) {
    case Container::kTorch:
      return std::make_unique<TorchWriter>(staged, outputs, plan.request.max_shard_bytes);
    case Container::kGguf:
      return std::make_unique<GgufWriter>(
          staged / kStagedFile, gguf_with_checksums(*plan.gguf, checksums_to_come(plan)), outputs);
    case Container::kSafetensors: break;
  }
  return std::make_unique<SafetensorsWriter>(staged, outputs, plan.metadata,
                                             plan.request.max_shard_bytes);
}

// What is known of a result once its tensors are written.
ConversionRecord measured_facts(const std::vector<LayerReport>& reports,
                                const TensorChecksums& checksums) {
  std::vector<RecordedLayer> layers;
  for (const LayerReport& report : reports) {
    if (report.over_text || report.refinement) {
      layers.push_back(measurements_of(report));
    }
  }
  ConversionRecord facts;
  if (!layers.empty()) {
    facts.layers = std::move(layers);
  }
  if (!checksums.empty()) {
    facts.checksums = checksums;
  }
  return facts;
}

// Everything in a result's directory except the weights.
void write_other_files(const ConversionPlan& plan, const Model& source, const fs::path& directory,
                       const std::vector<LayerReport>& layers, const TensorChecksums& checksums) {
  write_companions(source, directory, plan.left_out, plan.loader_files);
  for (const NamedText& file : plan.files) {
    write_text(directory / file.name, file.text);
  }
  const std::string config_text =
      config_with_facts(plan.config_text, measured_facts(layers, checksums));
  write_text(directory / "config.json", config_text);
  write_model_card(source, directory, config_text, plan.target);
}

}  // namespace

std::vector<LayerReport> execute_conversion(const ConversionPlan& plan, const Model& source,
                                            const fs::path& destination,
                                            const ConversionProgress& progress,
                                            const std::atomic<bool>& stop,
                                            const ConversionCheck& check, int threads) {
  const bool single = is_single_file(plan.container);
  if (!single) {
    refuse_output_inside(source, destination);
  }
  StagedDirectory staged(destination);
  AttentionPooler pooler(plan, source.checkpoint, &stop);
  const auto writer = make_writer(plan, source.checkpoint, staged.path());
  TensorChecksums checksums;
  const TensorWork work{plan, source.checkpoint, pooler, *writer, progress, stop, checksums};
  TensorWriters(work).run(threads);
  writer->finish();
  if (plan.container == Container::kGguf && !checksums.empty()) {
    overwrite_metadata(staged.path() / kStagedFile, plan.steps.size(),
                       gguf_with_checksums(*plan.gguf, checksums_to_come(plan)),
                       gguf_with_checksums(*plan.gguf, checksums));
  }
  for (const File& file : source.checkpoint.files()) {
    file.check_unchanged();
  }
  if (!single) {
    write_other_files(plan, source, staged.path(), pooler.reports(), checksums);
  }
  if (check) {
    check(single ? staged.path() / kStagedFile : staged.path());
  }
  if (single) {
    staged.publish_file(kStagedFile);
  } else {
    staged.publish();
  }
  return pooler.reports();
}

}  // namespace regroup
