// How long a conversion with a text is expected to take.
#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "cli/measure/text_conversion.h"
#include "cli/shell/text.h"
#include "formats/model/serving_cost.h"
#include "uptrain/model/device.h"
#include "uptrain/run/sample.h"
#include "uptrain/run/training_speed.h"
#include "uptrain/train/calibrate.h"
#include "uptrain/train/metrics.h"
#include "uptrain/train/objective.h"

namespace regroup {

std::int64_t weights_in_products(const Model& source) {
  const ModelSpec& spec = source.spec;
  return multiplied_weights(spec) -
         (source.missing_head.empty() ? 0 : spec.vocab_size * spec.embedding_width());
}

std::int64_t calibration_tokens(const Model& source, const ConvertOptions& options,
                                std::int64_t tokens) {
  constexpr std::int64_t kFewest = 8'192;
  const std::int64_t most = std::max<std::int64_t>(32'768, 64 * source.spec.hidden_size);
  const std::int64_t part = options.text.distills() ? std::max(kFewest, tokens / 4) : tokens;
  return std::min({tokens, part, most});
}

namespace {

// A stage that passes `tokens` through the model takes `work` times as long for each as a large
// matrix product of as many operations, and `work_in_fp32` times as long as one in fp32 (measured
// with SmolLM2-135M on CPUs with and without bf16).
struct Stage {
  std::string_view label;
  std::int64_t tokens;
  double work, work_in_fp32;
};

// Measuring the layers for --kv-budget in passes through the whole model: one of the source, and
// for each number of kv heads that a layer may get, this layer, those after it and the output head.
double passes_to_measure(const ModelSpec& spec) {
  const auto layers = static_cast<double>(spec.kv_heads.size());
  const double head = static_cast<double>(spec.vocab_size * spec.embedding_width()) /
                      static_cast<double>(multiplied_weights(spec));
  double passes = 1.0;
  for (std::size_t layer = 0; layer < spec.kv_heads.size(); ++layer) {
    const double rest = layers - static_cast<double>(layer);
    for (std::int64_t count = 1; count < spec.kv_heads[layer]; ++count) {
      passes += spec.kv_heads[layer] % count == 0 ? rest / layers * (1.0 - head) + head : 0.0;
    }
  }
  return passes;
}

std::array<Stage, 6> stages_with(const Model& source, const ConvertOptions& options,
                                 const PreparedText& text) {
  const std::int64_t step = options.refit.batch * text.context;
  const std::int64_t calibrated =
      calibration_tokens(source, options, (text.windows + text.own_windows) * text.context);
  const std::int64_t refit_steps = can_refit(source.spec) ? refit_steps_of(options) : 0;
  const std::int64_t measured =
      options.budget.given()
          ? std::min(options.budget.max_tokens, (text.windows + text.own_windows) * text.context)
          : 0;
  const std::int64_t written =
      options.text.samples ? text.windows + text.held_out : text.own_windows + text.own_held_out;
  return {{{"sample", written * text.context, 2.5, 0.9},
           {"calibrate", options.calibrates() ? calibrated : 0, 1.2, 0.6},
           {"measure", measured, 2.2 * passes_to_measure(source.spec), 0.0},
           {"refit", refit_steps * step, 0.0, 2.0},
           {"distill", text.distill_steps * step, 7.5, 0.0},
           {"evaluate", (text.held_out + text.own_held_out) * text.context, 3.6, 0.9}}};
}

// The time of the steps of writing. On a GPU it is a lower bound (measured on an H100); on a CPU it
// comes on top of the products (measured on two cores with AMX).
double seconds_of_writing_steps(const Model& source, std::int64_t tokens, std::int64_t context,
                                c10::Device device) {
  const double seconds_of_layer = device.is_cpu() ? 1e-3 : 1.4e-4;
  const std::int64_t batch = usual_sampling_batch(source, context, device);
  const auto steps =
      static_cast<double>((tokens - 1) / (batch * context) + 1) * static_cast<double>(context);
  return steps * seconds_of_layer * static_cast<double>(source.spec.layer_count());
}

// Memory of writing own text: weights and KV caches.
double bytes_to_write(const Model& source, const PreparedText& text, c10::Device device) {
  const bool wide = fast_precision(device) == Precision::kFp32;
  const auto cost = kv_cache_cost(source.spec, wide ? DType::kF32 : DType::kBF16);
  const std::int64_t sequences = std::min(text.own_windows + text.own_held_out,
                                          usual_sampling_batch(source, text.context, device));
  if (!cost || sequences == 0) {
    return 0.0;
  }
  return static_cast<double>(multiplied_weights(source.spec)) * (wide ? 4.0 : 2.0) +
         static_cast<double>(sequences) *
             static_cast<double>(cost->at(static_cast<std::uint64_t>(text.context)));
}

}  // namespace

std::string expected_cost(const Model& source, const ConvertOptions& options,
                          const PreparedText& text) {
  const c10::Device device = parse_device(options.device);
  set_compute_threads(options.threads);
  const double fast = matmul_flops_per_second(scalar_type_of(fast_precision(device)), device);
  const bool narrow = device.is_cpu() && fast_precision(device) != Precision::kFp32;
  const double in_fp32 = narrow ? matmul_flops_per_second(at::kFloat, device) : fast;
  const Task task = evaluation_task(source, text.context).value_or(Task{});
  const double pass =
      training_flops_per_token(source.spec, task, text.context) / 3 -
      2.0 * static_cast<double>(multiplied_weights(source.spec) - weights_in_products(source));
  double total = 0.0;
  std::vector<std::string> parts;
  for (const Stage& stage : stages_with(source, options, text)) {
    double seconds = static_cast<double>(stage.tokens) * pass *
                     (stage.work / fast + stage.work_in_fp32 / in_fp32);
    if (stage.label == "sample" && stage.tokens > 0) {
      const double steps = seconds_of_writing_steps(source, stage.tokens, text.context, device);
      seconds = device.is_cpu() ? seconds + steps : std::max(seconds, steps);
    }
    total += seconds;
    if (stage.tokens > 0) {
      parts.push_back(fmt::format("{} {}", stage.label, text_of_duration(seconds)));
    }
  }
  std::string expected =
      fmt::format("about {} ({})", text_of_duration(total), fmt::join(parts, ", "));
  if (text.distill_steps > 0) {
    const double bytes =
        std::max(bytes_to_distill(source, options), bytes_to_write(source, text, device));
    expected += fmt::format("; {} of memory", text_of_bytes(bytes));
  }
  return expected;
}

}  // namespace regroup
