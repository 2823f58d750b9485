// Shapes: B windows at a time of T tokens, D hidden size.
#include "uptrain/calibrate.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/zeros.h>

#include "converter/pooling/calibration.h"
#include "formats/error.h"
#include "formats/printable.h"
#include "formats/safetensors_writer.h"
#include "formats/staged_directory.h"
#include "uptrain/block.h"
#include "uptrain/layers.h"
#include "uptrain/objective.h"
#include "uptrain/parameters.h"
#include "uptrain/transformer.h"

namespace regroup {
namespace {

using Batches = std::vector<at::Tensor>;

// Mean and covariance of vectors that come in batches.
class RunningMoments {
 public:
  // x: [..., D] in fp32.
  void add(const at::Tensor& x) {
    const at::Tensor rows = x.flatten(0, -2);
    if (!origin_.defined()) {
      // Sums around a point close to the mean lose no digits to its size.
      origin_ = rows.mean(0);
      sum_ = at::zeros({rows.size(1)}, at::kDouble);
      products_ = at::zeros({rows.size(1), rows.size(1)}, at::kDouble);
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

// Attention in that place, if there is any.
bool has_attention(const ModelSpec& spec, AttentionRole role, std::size_t layer) {
  return spec.attention(role, layer).present();
}

// The tensors of the statistics file, in the order in which they are computed.
std::vector<OutputTensor> announced_moments(const ModelSpec& spec) {
  std::vector<OutputTensor> tensors;
  const std::int64_t width = spec.hidden_size;
  const auto announce = [&](const std::string& name) {
    tensors.push_back({name + ".mean", DType::kF32, {width}});
    tensors.push_back({name + ".covariance", DType::kF32, {width, width}});
  };
  for (const AttentionRole role : spec.roles()) {
    for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
      if (has_attention(spec, role, i)) {
        announce(moments_name(role, i, InputSide::kQueries));
      }
    }
  }
  if (spec.has_encoder()) {
    announce(moments_name(AttentionRole::kCross, 0, InputSide::kKeysAndValues));
  }
  return tensors;
}

void write_moments(CheckpointWriter& writer, const std::string& name,
                   const RunningMoments& moments) {
  const auto write = [&](const std::string& suffix, const at::Tensor& values) {
    const at::Tensor stored = values.to(at::kFloat).contiguous();
    writer.write(name + suffix,
                 {static_cast<const std::byte*>(stored.const_data_ptr()), stored.nbytes()});
  };
  write(".mean", moments.mean());
  write(".covariance", moments.covariance());
}

// The model without its layers: embeddings, and what they are told of positions.
Transformer make_front(const Model& source) {
  ModelSpec front = source.spec;
  front.layers.clear();
  front.encoder_layers.clear();
  front.kv_heads.clear();
  front.cross_kv_heads.clear();
  front.encoder_kv_heads.clear();
  front.alibi.slopes.clear();
  front.encoder_final_norm = front.final_norm = front.head_norm = {};
  front.project_out = front.head_transform = {};
  front.lm_head.clear();
  front.lm_head_bias.clear();
  return {front, load_parameters(front, source.checkpoint, at::kFloat, at::kCPU)};
}

class Calibrator {
 public:
  Calibrator(const Model& source, CheckpointWriter& writer, const CalibrationProgress& progress,
             const std::atomic<bool>& stop)
      : source_(source),
        spec_(source.spec),
        front_(make_front(source)),
        writer_(writer),
        progress_(progress),
        stop_(stop) {}

  // windows: int64 [B, T] each.
  void run(const Batches& windows) {
    if (!spec_.has_encoder()) {
      run_stack(AttentionRole::kSelf, windows, {});
      return;
    }
    Batches sources, targets;
    for (const at::Tensor& window : windows) {
      const Halves halves = split_halves(window, spec_.decoder_start_token.value_or(0));
      sources.push_back(halves.source);
      targets.push_back(halves.target);
    }
    Batches encoded = run_stack(AttentionRole::kEncoder, sources, {});
    finish_encoder(encoded);
    run_stack(AttentionRole::kSelf, targets, encoded);
  }

 private:
  Batches run_stack(AttentionRole self, const Batches& tokens, const Batches& encoded) {
    Batches hidden;
    for (const at::Tensor& ids : tokens) {
      hidden.push_back(front_.embed(ids));
    }
    Pass pass = front_.make_pass(tokens.front().size(1));
    pass.causal = self == AttentionRole::kSelf && spec_.causal;
    for (std::size_t layer = 0; layer < spec_.stack(self).size(); ++layer) {
      run_layer(self, layer, hidden, encoded, pass);
      progress_(++done_, std::ssize(spec_.layers) + std::ssize(spec_.encoder_layers));
    }
    return hidden;
  }

  void run_layer(AttentionRole self, std::size_t layer, Batches& hidden, const Batches& encoded,
                 Pass& pass) {
    const Block block = make_block(
        spec_, self, layer,
        load_layer_parameters(spec_, self, layer, source_.checkpoint, at::kFloat, at::kCPU));
    bring_bias(pass, block, spec_, hidden.front().size(1), pass.causal, hidden.front().options());
    RunningMoments own, cross;
    pass.on_attention_input = [&](AttentionRole role, const at::Tensor& x) {
      (role == AttentionRole::kCross ? cross : own).add(x);
    };
    for (std::size_t i = 0; i < hidden.size(); ++i) {
      if (stop_) {
        throw Error(ErrorKind::kInterrupted, "interrupted; nothing was left behind");
      }
      pass.encoded = encoded.empty() ? at::Tensor() : encoded[i];
      hidden[i] = run_block(block, spec_, hidden[i], pass);
    }
    pass.on_attention_input = {};
    if (has_attention(spec_, self, layer)) {
      write_moments(writer_, moments_name(self, layer, InputSide::kQueries), own);
    }
    if (cross.any()) {
      write_moments(writer_, moments_name(AttentionRole::kCross, layer, InputSide::kQueries),
                    cross);
    }
  }

  // What the decoder sees of the encoder.
  void finish_encoder(Batches& encoded) {
    RunningMoments moments;
    const bool normalised = spec_.encoder_final_norm.present() || spec_.norm_without_parameters;
    const Norm norm = make_norm(
        spec_.encoder_final_norm, spec_,
        load_norm_parameters(spec_.encoder_final_norm, source_.checkpoint, at::kFloat, at::kCPU));
    for (at::Tensor& batch : encoded) {
      batch = normalised ? norm(batch) : batch;
      moments.add(batch);
    }
    write_moments(writer_, moments_name(AttentionRole::kCross, 0, InputSide::kKeysAndValues),
                  moments);
  }

  const Model& source_;
  const ModelSpec& spec_;
  Transformer front_;
  CheckpointWriter& writer_;
  const CalibrationProgress& progress_;
  const std::atomic<bool>& stop_;
  std::int64_t done_ = 0;
};

Batches read_windows(const TokenFile& data, const CalibrationSettings& settings) {
  const std::int64_t windows = calibration_windows(data, settings);
  const std::int64_t context = settings.context;
  Batches batches;
  for (std::int64_t first = 0; first < windows; first += settings.batch) {
    const std::int64_t count = std::min(settings.batch, windows - first);
    at::Tensor ids = at::empty({count, context}, at::kLong);
    data.read(first * context,
              {ids.mutable_data_ptr<std::int64_t>(), static_cast<std::size_t>(count * context)});
    batches.push_back(std::move(ids));
  }
  return batches;
}

}  // namespace

std::int64_t calibration_windows(const TokenFile& data, const CalibrationSettings& settings) {
  if (settings.context < 2 || settings.batch < 1 || settings.max_tokens < 1) {
    throw_usage("context must be 2 or more, batch and tokens 1 or more");
  }
  if (data.size() < settings.context) {
    throw_bad_input("{}: {} tokens, a context of {} needs as many",
                    printable(data.path().string(), 0), data.size(), settings.context);
  }
  return std::min(data.size() / settings.context, (settings.max_tokens - 1) / settings.context + 1);
}

void calibrate(const Model& source, const TokenFile& data, const CalibrationSettings& settings,
               const std::filesystem::path& output, const CalibrationProgress& progress,
               const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  data.check_vocabulary(source.spec.vocab_size);
  const Batches windows = read_windows(data, settings);
  const std::int64_t tokens = calibration_windows(data, settings) * settings.context;
  StagedDirectory staged(output);
  SafetensorsWriter writer(staged.path(), announced_moments(source.spec),
                           {{kCalibrationFormatKey, kCalibrationFormat},
                            {kCalibrationSourceKey, fingerprint_of(source)},
                            {kCalibrationTokensKey, std::to_string(tokens)}},
                           std::numeric_limits<std::uint64_t>::max());
  Calibrator(source, writer, progress, stop).run(windows);
  writer.finish();
  staged.publish_file("model.safetensors");
}

}  // namespace regroup
