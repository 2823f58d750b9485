// regroup bench train MODEL --data FILE...
#include "cli/commands/commands.h"
#include "cli/shell/devices.h"
#include "cli/shell/uptrain_options.h"
#include "uptrain/run/training_speed.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/train/metrics.h"

namespace regroup {
namespace {

struct BenchTrainOptions {
  UptrainSettings settings;
  std::vector<std::string> data;
  std::string device = "cpu";
  std::int64_t steps = 10;
  std::int64_t warmup = 2;
  double peak_flops = 0.0;
  int threads = 0;
  bool memory_check = true;
  bool json = false;
};

// Chooses the memory mode and returns the estimate in bytes. Throws kEnvironment if it exceeds the
// free memory, unless --memory-check off.
double estimated_memory(BenchTrainOptions& options, const Model& source,
                        std::int64_t sequence_length, const Console& console) {
  UptrainSettings& settings = options.settings;
  const Task task =
      make_training_task(with_special_tokens(settings.task, source), source.spec, sequence_length);
  const auto need_of = [&](const UptrainSettings& others) {
    return memory_needed(others, source.spec, nullptr, task, sequence_length);
  };
  const FreeMemory free = free_memory(settings.device);
  const MemoryChoice choice = choose_memory(settings, free, need_of);
  check_memory(shortage_of(settings, choice, free, need_of), options.memory_check, console);
  settings.memory = choice.mode;
  return choice.chosen().need.device;
}

Json json_of(const BenchTrainOptions& options, const Model& source, const TrainingSpeed& speed,
             double estimate) {
  Json report = {{"model", options.settings.model.string()},
                 {"parameters", count_parameters(source.spec)},
                 {"tokens_per_step", speed.tokens_per_step},
                 {"flops_per_step", speed.flops_per_step},
                 {"seconds_per_step", speed.median_seconds()},
                 {"tokens_per_second", speed.tokens_per_second()},
                 {"flops_per_second", speed.flops_per_second()},
                 {"fraction_of_matmul", speed.fraction_of_matmul()},
                 {"memory_mode", name_of(options.settings.memory.value())},
                 {"peak_memory_bytes", speed.peak_memory},
                 {"estimated_memory_bytes", estimate},
                 {"step_seconds", speed.step_seconds},
                 {"matmul_flops_per_second", speed.matmul_per_second}};
  if (options.peak_flops > 0) {
    report["model_flops_utilisation"] = speed.flops_per_second() / options.peak_flops;
  }
  return report;
}

std::string text_of(const BenchTrainOptions& options, const Model& source,
                    const TrainingSpeed& speed, double estimate) {
  std::string text = fmt::format(
      "model     {} parameters, {} on {}\n"
      "step      {:.4g} s for {} tokens (median of {})\n"
      "speed     {} tokens/s\n"
      "compute   {:.4g} TFLOP/s, {:.1f} % of this machine's {} matrix product in the same run\n",
      text_of_count(count_parameters(source.spec)), name_of(options.settings.precision),
      options.settings.device.str(), speed.median_seconds(), text_of_count(speed.tokens_per_step),
      speed.step_seconds.size(), text_of_count(speed.tokens_per_second()),
      speed.flops_per_second() / 1e12, 100 * speed.fraction_of_matmul(),
      name_of(options.settings.precision));
  if (options.peak_flops > 0) {
    text +=
        fmt::format("MFU       {:.1f} % of {:.4g} TFLOP/s\n",
                    100 * speed.flops_per_second() / options.peak_flops, options.peak_flops / 1e12);
  }
  return text + fmt::format("memory    {} at most, estimated {}, mode {}",
                            text_of_bytes(speed.peak_memory), text_of_bytes(estimate),
                            name_of(options.settings.memory.value()));
}

void run_bench_train(BenchTrainOptions options, const Console& console) {
  set_compute_threads(options.threads);
  UptrainSettings& settings = options.settings;
  set_data(settings, options.data);
  settings.device = parse_device(options.device);
  settings.validate_step();
  warn_of_precision(settings.precision, settings.device, console);

  const Model source = open_predicting_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  const double estimate = estimated_memory(options, source, data.sequence_length(), console);
  Progress progress(console, "bench train", options.warmup + options.steps, "steps");
  const TrainingSpeed speed =
      measure_training(source, settings, data, options.warmup, options.steps, progress.callback(),
                       interrupt_requested());
  progress.finish();
  if (options.json) {
    console.print(text_of_json(json_of(options, source, speed, estimate)));
  } else {
    console.print_facts(text_of(options, source, speed, estimate), 10);
  }
}

void add_bench_train_command(Command group, Console& console) {
  auto options = std::make_shared<BenchTrainOptions>();
  UptrainSettings& settings = options->settings;
  Command command = group.add_command(
      "train",
      "Measure training steps: tokens/s, share of the machine's matrix product speed, memory");
  command.add_option("model", settings.model, kTrainedHelp).required();
  command.add_option("--data", options->data, "token files, as for regroup uptrain")
      .required()
      .default_text("");
  add_count(command, "--steps", options->steps, "steps to measure", {1, 1U << 20});
  add_count(command, "--warmup", options->warmup, "warm-up steps, which are not measured",
            {0, 1U << 20});
  add_sequence_options(command, settings);
  add_count(command, "--accumulate", settings.accumulation, "batches in one step", {1, kMostBatch});
  add_optimizer_options(command, settings);
  command.add_flag("--activation-checkpointing", settings.recomputing,
                   "keep only the inputs of blocks and recompute the rest");
  add_precision_option(command, settings);
  add_memory_option(command, settings);
  add_device_option(command, options->device);
  add_number(command, "--peak-flops", options->peak_flops,
             "peak FLOP/s of the device according to its vendor, to compute the MFU",
             {0.0, 1e18, /*least_allowed=*/false})
      .default_text("");
  add_memory_check_option(command, options->memory_check);
  add_threads_option(command, options->threads);
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Example: regroup bench train Llama-2-7b-gqa8 --data corpus.bin --batch 4 "
      "--device cuda --peak-flops 989e12\n"
      "Nothing is written. A product of two large matrices follows each step, so that both are\n"
      "measured under the same conditions. FLOPs are those of the model, without what\n"
      "activation checkpointing recomputes.");
  command.on_run([options, &console] { run_bench_train(*options, console); });
}

}  // namespace

void add_bench_command(Command program, Console& console) {
  Command group = add_whole_command(program, "bench");
  group.needs_command();
  add_bench_train_command(group, console);
  add_bench_decode_command(group, console);
}

}  // namespace regroup
