#include "uptrain/model/decode.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <set>
#include <utility>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include "converter/convert/kv_head_request.h"
#include "formats/base/error.h"
#include "formats/families/family.h"
#include "formats/model/model_summary.h"
#include "formats/model/serving_cost.h"
#include "uptrain/model/device.h"
#include "uptrain/model/device_graph.h"
#include "uptrain/model/measurements.h"

namespace regroup {

namespace {

at::Tensor read_chunk(const Transformer& model, const at::Tensor& tokens, KvCache& cache) {
  const at::Tensor hidden = model.hidden_states(tokens, cache);
  return model.logits(hidden.select(1, hidden.size(1) - 1));
}

}  // namespace

at::Tensor read_tokens(const Transformer& model, const at::Tensor& tokens, KvCache& cache,
                       std::int64_t chunk) {
  if (chunk < 1 || tokens.size(1) < 1) {
    throw_usage("{} tokens to read in chunks of {}: both must be 1 or more", tokens.size(1), chunk);
  }
  const at::NoGradGuard no_gradients;
  at::Tensor logits;
  for (std::int64_t first = 0; first < tokens.size(1);) {
    const std::int64_t step =
        std::min({chunk, tokens.size(1) - first, std::max<std::int64_t>(1, cache.longest_step())});
    logits = read_chunk(model, tokens.narrow(1, first, step), cache);
    first += step;
  }
  return logits;
}

at::Tensor decode_greedily(const Transformer& model, at::Tensor& logits, KvCache& cache,
                           std::int64_t count) {
  const at::NoGradGuard no_gradients;
  std::vector<at::Tensor> tokens;
  for (std::int64_t i = 0; i < count; ++i) {
    tokens.push_back(logits.argmax(-1, /*keepdim=*/true));
    logits = read_chunk(model, tokens.back(), cache);
  }
  return at::cat(tokens, 1);
}

namespace {

double seconds_of(at::Device device, const std::function<void()>& work) {
  wait_for(device);
  const auto begin = std::chrono::steady_clock::now();
  work();
  wait_for(device);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

KvCacheSettings settings_of(const DecodeLoad& load) {
  return {.batch = load.batch,
          .capacity = load.context + load.tokens,
          .window = load.window,
          .sinks = load.sinks};
}

// A variant with its cache and its next logits.
struct Decoding {
  const Transformer& model;
  KvCache cache;
  at::Tensor logits;
  DecodeSpeed speed;
  std::vector<double> times = {};          // seconds per token, one for each round
  at::Tensor first_logits = {};            // from which every round of a graph starts
  std::function<void()> replay = nullptr;  // of the graph, if rounds are one

  void decode(std::int64_t context, std::int64_t tokens) {
    if (!cache.drops()) {
      cache.assume_length(context);
    }
    decode_greedily(model, logits, cache, tokens);
  }

  // The graph refers to this object, which must stay where it is.
  void record(const DecodeLoad& load) {
    if (!load.graphs) {
      speed.graph_obstacle = "not wanted";
      return;
    }
    if (cache.drops()) {
      speed.graph_obstacle = "a window that drops tokens moves with each round";
      return;
    }
    if (model.spec().routing.experts > 0) {
      speed.graph_obstacle = "the host reads how many tokens each expert has";
      return;
    }
    first_logits = logits.clone();
    GraphRecording recording = record_graph(model.device(), [this, load] {
      logits = first_logits;
      decode(load.context, load.tokens);
    });
    replay = std::move(recording.replay);
    speed.graph_obstacle = replay ? std::nullopt : std::optional(std::move(recording.obstacle));
  }

  void run_round(const DecodeLoad& load) { replay ? replay() : decode(load.context, load.tokens); }
};

Decoding after_noise(const Transformer& model, const DecodeLoad& load) {
  const ModelSpec& spec = model.spec();
  const auto options = at::TensorOptions().dtype(model.scalar_type()).device(model.device());
  KvCache cache(spec, settings_of(load), options);
  if (spec.has_encoder()) {
    cache.set_encoded(at::randn({load.batch, load.context, spec.hidden_size}, options));
  }
  cache.fill_with_noise(load.context);
  return {model, std::move(cache), at::zeros({load.batch, spec.vocab_size}, options), {}};
}

Decoding after_reading(const Transformer& model, const DecodeLoad& load) {
  const ModelSpec& spec = model.spec();
  const at::Tensor text = at::randint(spec.vocab_size, {load.batch, load.context},
                                      at::TensorOptions().dtype(at::kLong).device(model.device()));
  std::optional<KvCache> cache;
  at::Tensor logits;
  DecodeSpeed speed;
  speed.prefill_seconds = seconds_of(model.device(), [&] {
    cache = model.make_cache(settings_of(load), spec.has_encoder() ? text : at::Tensor());
    logits = read_tokens(model, text, *cache, *load.prefill_chunk);
  });
  return {model, *std::move(cache), logits, speed};
}

std::uint64_t cache_bytes(const Transformer& model, const DecodeLoad& load) {
  const DType dtype = model.scalar_type() == at::kBFloat16 ? DType::kBF16 : DType::kF32;
  KvCacheCost cost = *kv_cache_cost(model.spec(), dtype);
  const auto context = static_cast<std::uint64_t>(load.context);
  std::uint64_t saved = 0;  // by the window of the load, in layers without one of the model
  if (load.window) {
    const auto window = static_cast<std::uint64_t>(*load.window);
    const auto sinks = static_cast<std::uint64_t>(load.sinks);
    saved = cost.unlimited * (context - std::min(context, window + sinks));
    cost.window = std::min(cost.window.value_or(window), window) + sinks;
  }
  return static_cast<std::uint64_t>(load.batch) * (cost.at(context) - saved);
}

std::set<std::string> names_of_experts(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const LayerTensors& layer : spec.layers) {
    for (const auto* experts : {&layer.experts.gate, &layer.experts.up, &layer.experts.down}) {
      names.insert(experts->begin(), experts->end());
    }
  }
  return names;
}

}  // namespace

DecodeVariant make_decode_variant(const std::string& name, const ModelSpec& spec,
                                  const Parameters& parameters) {
  DecodeVariant variant{name, Transformer(spec, parameters)};
  for (const Parameters::Entry& entry : parameters.entries()) {
    variant.weight_bytes += entry.value.nbytes();
  }
  const std::set<std::string> experts = names_of_experts(spec);
  for (const std::string& tensor : names_read_per_step(spec)) {
    (experts.contains(tensor) ? variant.expert_bytes : variant.dense_bytes) +=
        parameters.at(tensor).nbytes();
  }
  return variant;
}

double DecodeVariant::step_weight_bytes(std::int64_t batch) const {
  const double share = model.spec().share_of_experts(static_cast<std::uint64_t>(batch));
  return static_cast<double>(dense_bytes) + share * static_cast<double>(expert_bytes);
}

DecodeVariant with_leading_kv_heads(const std::string& name, const ModelSpec& spec,
                                    const Parameters& parameters, std::int64_t kv_heads) {
  ModelSpec fewer = spec;
  for (const AttentionRole role : {AttentionRole::kSelf, AttentionRole::kCross}) {
    if (!spec.kv_heads_of(role).empty()) {
      fewer.kv_heads_of(role) = resolve_kv_heads({kv_heads}, spec, role);
    }
  }
  for (LayerTensors& layer : fewer.layers) {
    if (spec.qk_norm == QkNorm::kPerHead && layer.attention.present()) {
      layer.attention.k_norms.resize(static_cast<std::size_t>(kv_heads));
    }
  }
  std::vector<Parameters::Entry> entries;
  for (const ExpectedTensor& tensor : expected_tensors(fewer)) {
    at::Tensor value = parameters.at(tensor.name);
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
      value = value.narrow(static_cast<std::int64_t>(i), 0, tensor.shape[i]);
    }
    entries.push_back({tensor.name, value.contiguous()});
  }
  return make_decode_variant(name, fewer, Parameters(std::move(entries)));
}

std::vector<DecodeSpeed> measure_decoding(const std::vector<DecodeVariant>& variants,
                                          const DecodeLoad& load, const std::atomic<bool>& stop) {
  const at::NoGradGuard no_gradients;
  std::vector<Decoding> all;
  all.reserve(variants.size());
  for (const DecodeVariant& variant : variants) {
    throw_if_stopped(stop, "measuring was stopped");
    all.push_back(load.prefill_chunk ? after_reading(variant.model, load)
                                     : after_noise(variant.model, load));
    all.back().speed.cache_bytes = cache_bytes(variant.model, load);
    all.back().decode(load.context, 1);  // a first step does work that later steps do not
    all.back().record(load);
  }
  for (std::int64_t round = 0; round < load.rounds; ++round) {
    for (Decoding& one : all) {
      throw_if_stopped(stop, "measuring was stopped");
      const double seconds = seconds_of(one.model.device(), [&] { one.run_round(load); });
      one.times.push_back(seconds / static_cast<double>(load.tokens));
    }
  }
  std::vector<DecodeSpeed> speeds;
  for (Decoding& one : all) {
    one.speed.seconds_per_token = median(one.times);
    speeds.push_back(one.speed);
  }
  return speeds;
}

}  // namespace regroup
