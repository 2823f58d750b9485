#include "uptrain/train/calibrate.h"

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <string>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "converter/heads/calibration.h"
#include "converter/pooling/head_moments.h"
#include "formats/base/callback.h"
#include "formats/base/error.h"
#include "formats/base/staged_directory.h"
#include "formats/spec/tensor_names.h"
#include "formats/tensors/checkpoint_writer.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/layers.h"
#include "uptrain/model/parameters.h"
#include "uptrain/train/objective.h"
#include "uptrain/train/sensitivity.h"

namespace regroup {

namespace {

// The model without its layers.
Transformer make_front(const Model& source, c10::Device device, at::ScalarType type) {
  ModelSpec front = without_head(without_layers(source.spec));
  front.final_norm = {};
  front.project_out = {};
  return {front, load_parameters(front, source.checkpoint, type, device)};
}

}  // namespace

std::int64_t count_windows(const TokenFile& data, const WindowSettings& settings) {
  if (settings.context < 2 || settings.batch < 1 || settings.max_tokens < 1) {
    throw_usage("context must be 2 or more, batch and tokens 1 or more");
  }
  if (data.size() < settings.context) {
    throw_bad_input("{}: {} tokens, a context of {} needs as many", data.name(), data.size(),
                    settings.context);
  }
  return std::min(data.size() / settings.context, (settings.max_tokens - 1) / settings.context + 1);
}

Batches read_windows(const TokenFile& data, const WindowSettings& settings) {
  const std::int64_t windows = count_windows(data, settings);
  const std::int64_t context = settings.context;
  Batches batches;
  const std::vector<std::int64_t> numbers = spread_windows(data.size() / context, windows);
  for (std::int64_t first = 0; first < windows; first += settings.batch) {
    const std::int64_t count = std::min(settings.batch, windows - first);
    batches.push_back(
        token_rows(count, context, [&](std::int64_t row, std::span<std::int64_t> ids) {
          data.read(numbers[static_cast<std::size_t>(first + row)] * context, ids);
        }));
  }
  return batches;
}

AttentionLayer with_heads(const AttentionLayer& attention, const AttentionHeads& heads,
                          std::span<const std::int64_t> query_order) {
  const at::TensorOptions options = attention.o.weight.options().requires_grad(false);
  const auto tensor = [&](const std::vector<double>& values, std::vector<std::int64_t> shape) {
    return tensor_of(values, std::move(shape), c10::kCPU).to(options);
  };
  const auto linear = [&](const DenseLinear& part) {
    return Linear{tensor(part.weight, {part.outputs, part.inputs}),
                  part.bias.empty() ? at::Tensor() : tensor(part.bias, {part.outputs})};
  };
  AttentionLayer changed = attention;
  changed.packing = Packing::kSeparate;
  changed.q = linear(heads.q);
  changed.k = linear(heads.k);
  changed.v = linear(heads.v);
  changed.o = linear(heads.o);
  changed.kv_heads = heads.kv_heads;
  const auto put_norm = [&](std::optional<Norm>& norm, const DenseLinear& part) {
    if (norm && !part.weight.empty()) {
      norm->weight = tensor(part.weight, {part.outputs});
      norm->bias = part.bias.empty() ? at::Tensor() : tensor(part.bias, {part.outputs});
    }
  };
  put_norm(changed.q_norm, heads.q_norm);
  put_norm(changed.k_norm, heads.k_norm);
  if (attention.alibi) {
    changed.alibi = attention.alibi->in_order(
        at::tensor(at::ArrayRef<std::int64_t>(query_order.data(), query_order.size()))
            .to(options.device()));
  }
  return changed;
}

LayerWalk::LayerWalk(const Model& source, const Batches& windows, c10::Device device,
                     at::ScalarType type)
    : source_(source),
      spec_(source.spec),
      device_(device),
      type_(type),
      relative_buckets_(source.spec.relative_bias),
      front_(make_front(source, device, type)) {
  const at::NoGradGuard no_gradients;
  if (!spec_.has_encoder()) {
    enter_stack(AttentionRole::kSelf, windows);
    return;
  }
  Batches sources;
  for (const at::Tensor& window : windows) {
    const TextPair halves = split_halves(window, spec_.decoder_start_token.value_or(0));
    sources.push_back(halves.source);
    decoder_tokens_.push_back(halves.target);
  }
  enter_stack(AttentionRole::kEncoder, sources);
}

void LayerWalk::enter_stack(AttentionRole stack, const Batches& tokens) {
  stack_ = stack;
  layer_ = 0;
  hidden_.clear();
  for (const at::Tensor& ids : tokens) {
    hidden_.push_back(front_.embed(ids.to(device_), 0, stack));
  }
  passes_ = front_.make_passes(tokens.front().size(1));
  passes_.in_window.causal = passes_.whole.causal = stack == AttentionRole::kSelf && spec_.causal;
}

bool LayerWalk::next() {
  const at::NoGradGuard no_gradients;
  layer_ = block_ ? layer_ + 1 : 0;
  if (stack_ == AttentionRole::kEncoder && layer_ == spec_.encoder_layers.size()) {
    finish_encoder();
    enter_stack(AttentionRole::kSelf, decoder_tokens_);
  }
  block_.reset();  // frees one layer before the next is loaded
  if (layer_ == spec_.stack(stack_).size()) {
    return false;
  }
  block_ = make_block(
      spec_, stack_, layer_,
      load_tensors(source_.checkpoint, tensors_of(spec_.stack(stack_)[layer_]), type_, device_));
  Pass& pass = passes_.of(*block_);
  bring_bias(pass, *block_, relative_buckets_, hidden_.front().size(1), pass.causal,
             hidden_.front().options());
  return true;
}

Pass LayerWalk::pass(std::size_t batch) const {
  Pass pass = passes_.of(*block_);
  if (stack_ == AttentionRole::kSelf && !encoded_.empty()) {
    pass.encoded = encoded_[batch];
  }
  return pass;
}

void LayerWalk::run(const AttentionObserver& observer, const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  const StopScope scope(&stop);
  for (std::size_t i = 0; i < hidden_.size(); ++i) {
    check_stop();
    Pass told = pass(i);
    told.on_attention = observer;
    hidden_[i] = run_block(*block_, spec_, hidden_[i], told);
  }
}

// Computes the encoder's output, which is an input of the decoder.
void LayerWalk::finish_encoder() {
  const NormTensors& last = spec_.encoder_final_norm;
  const bool normalised = last.present() || spec_.norm_without_parameters;
  std::set<std::string> names{last.weight, last.bias};
  names.erase("");
  const Norm norm = make_norm(last, spec_, load_tensors(source_.checkpoint, names, type_, device_));
  encoded_ = std::move(hidden_);
  for (at::Tensor& batch : encoded_) {
    batch = normalised ? norm(batch) : batch;
  }
}

namespace {

// Mean and covariance, accumulated over batches of vectors.
class RunningMoments {
 public:
  // x: [..., D].
  void add(const at::Tensor& x) {
    const at::Tensor rows = x.flatten(0, -2).to(at::kFloat);
    if (!origin_.defined()) {
      // Sums relative to a point close to the mean avoid cancellation.
      origin_ = rows.mean(0);
      const at::TensorOptions sums = rows.options().dtype(at::kDouble);
      sum_ = at::zeros({rows.size(1)}, sums);
      products_ = at::zeros({rows.size(1), rows.size(1)}, sums);
    }
    const at::Tensor centred = rows - origin_;
    sum_ += centred.sum(0).to(at::kDouble);
    products_ += at::matmul(centred.t(), centred).to(at::kDouble);
    count_ += rows.size(0);
  }

  at::Tensor mean() const { return origin_.to(at::kDouble) + shift(); }
  at::Tensor covariance() const {
    return products_ / static_cast<double>(count_) - shift().unsqueeze(1) * shift();
  }
  bool any() const { return count_ > 0; }

 private:
  at::Tensor shift() const { return sum_ / static_cast<double>(count_); }

  at::Tensor origin_, sum_, products_;
  std::int64_t count_ = 0;
};

// The tensors of the statistics file, in the order in which they are computed.
std::vector<OutputTensor> announced_tensors(const ModelSpec& spec, std::int64_t context) {
  std::vector<OutputTensor> tensors;
  const std::int64_t width = spec.hidden_size;
  const auto announce = [&](const std::string& name) {
    tensors.push_back({name + ".mean", DType::kF32, {width}});
    tensors.push_back({name + ".covariance", DType::kF32, {width, width}});
  };
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
      if (!spec.attention(role, i).present()) {
        continue;
      }
      announce(moments_name(role, i, InputSide::kQueries));
      if (has_distances(spec, role, i)) {
        tensors.push_back({distances_name(role, i),
                           DType::kF32,
                           {spec.query_heads, std::min(context, kMostDistances)}});
      }
    }
  }
  if (spec.has_encoder()) {
    announce(moments_name(AttentionRole::kCross, 0, InputSide::kKeysAndValues));
  }
  tensors.push_back({kCalibrationChecksums, DType::kU64, {std::ssize(tensors)}});
  return tensors;
}

// Writes tensors one by one, and computes a checksum of each.
struct StatisticsWriter {
  CheckpointWriter& file;
  std::string source, tokens;
  std::map<std::string, std::uint64_t> checksums = {};

  void write(const std::string& name, const at::Tensor& values) {
    const at::Tensor stored = values.to(at::kCPU, at::kFloat).contiguous();
    if (!stored.isfinite().all().item<bool>()) {
      throw_bad_input(
          "statistics {}: NaN or infinity: either the model's weights are not finite (regroup "
          "inspect --stats tells which) or activations on this text exceed the range of F32; "
          "nothing was written",
          name);
    }
    checksums[name] = statistics_checksum(source, tokens, name, bytes_of(stored));
    file.write(name, bytes_of(stored));
  }

  void write(const std::string& name, const RunningMoments& moments) {
    write(name + ".mean", moments.mean());
    write(name + ".covariance", moments.covariance());
  }

  // Writes the checksums of all other tensors, in file order.
  void write_checksums(std::span<const OutputTensor> tensors) {
    std::vector<std::uint64_t> values;
    for (const OutputTensor& tensor : tensors) {
      if (tensor.name != kCalibrationChecksums) {
        values.push_back(checksums.at(tensor.name));
      }
    }
    file.write(kCalibrationChecksums, std::as_bytes(std::span(values)));
  }
};

// Statistics of all layers, collected during the walk.
void write_layers(LayerWalk& walk, const ModelSpec& spec, StatisticsWriter& writer,
                  const CountProgress& progress, const std::atomic<bool>& stop) {
  std::int64_t done = 0;
  while (walk.next()) {
    RunningMoments own, cross;
    AttentionDistances distances(kMostDistances);
    const Pass pass = walk.pass(0);
    const auto window =
        pass.window ? std::optional(pass.window->width()) : std::optional<std::int64_t>();
    walk.run(
        [&](AttentionRole role, const at::Tensor& input, const at::Tensor&) {
          (role == AttentionRole::kCross ? cross : own).add(input);
          if (role != AttentionRole::kCross && has_distances(spec, walk.stack(), walk.layer())) {
            distances.add(self_attention_heads(walk.block().attention, spec, input, pass),
                          pass.mask, window, {spec.attention_scale, spec.attention_softcap},
                          pass.causal);
          }
        },
        stop);
    if (own.any()) {
      writer.write(moments_name(walk.stack(), walk.layer(), InputSide::kQueries), own);
    }
    if (distances.any()) {
      writer.write(distances_name(walk.stack(), walk.layer()), distances.shares());
    }
    if (cross.any()) {
      writer.write(moments_name(AttentionRole::kCross, walk.layer(), InputSide::kQueries), cross);
    }
    call_if_given(progress, ++done, std::ssize(spec.layers) + std::ssize(spec.encoder_layers));
  }
  if (spec.has_encoder()) {
    RunningMoments encoded;
    for (const at::Tensor& batch : walk.encoded()) {
      encoded.add(batch);
    }
    writer.write(moments_name(AttentionRole::kCross, 0, InputSide::kKeysAndValues), encoded);
  }
}

}  // namespace

void calibrate(const Model& source, const TokenFile& data, const WindowSettings& settings,
               c10::Device device, const std::filesystem::path& output,
               const CountProgress& progress, const std::atomic<bool>& stop, at::ScalarType type) {
  data.check_vocabulary(source.spec.vocab_size);
  LayerWalk walk(source, read_windows(data, settings), device, type);
  const std::string tokens = std::to_string(count_windows(data, settings) * settings.context);
  const std::string fingerprint = fingerprint_of(source);
  const std::vector<OutputTensor> tensors = announced_tensors(source.spec, settings.context);
  StagedDirectory staged(output);
  SafetensorsWriter file(staged.path(), tensors,
                         {{kCalibrationFormatKey, kCheckedCalibrationFormat},
                          {kCalibrationSourceKey, fingerprint},
                          {kCalibrationTokensKey, tokens}},
                         std::numeric_limits<std::uint64_t>::max());
  StatisticsWriter writer{file, fingerprint, tokens};
  write_layers(walk, source.spec, writer, progress, stop);
  writer.write_checksums(tensors);
  file.finish();
  staged.publish_file("model.safetensors");
}

}  // namespace regroup
