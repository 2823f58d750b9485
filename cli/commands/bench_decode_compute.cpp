// regroup bench decode MODEL...
#include <set>

#include <ATen/Parallel.h>

#include "cli/commands/commands.h"
#include "cli/shell/devices.h"
#include "cli/shell/table.h"
#include "formats/model/model.h"
#include "formats/model/record_words.h"
#include "formats/spec/config_writers.h"
#include "uptrain/model/decode.h"
#include "uptrain/model/language_model.h"
#include "uptrain/model/parameters.h"

namespace regroup {
namespace {

struct BenchDecodeOptions {
  std::vector<std::string> models;
  std::vector<std::int64_t> kv_heads;
  std::vector<std::int64_t> batches{1};
  std::vector<std::int64_t> contexts{2048};
  DecodeLoad load;
  std::string device = "cpu";
  Precision precision = Precision::kBf16;
  int threads = 0;
  bool json = false;
  bool no_graphs = false;
};

struct BenchRow {
  const DecodeVariant* variant = nullptr;
  DecodeLoad load;
  DecodeSpeed speed;
  double first_seconds = 0.0;  // of the first variant under the same load

  double tokens_per_second() const {
    return static_cast<double>(load.batch) / speed.seconds_per_token;
  }
  double bytes_per_second() const {
    return (variant->step_weight_bytes(load.batch) + static_cast<double>(speed.cache_bytes)) /
           speed.seconds_per_token;
  }
};

// The weights of a checkpoint, or random weights for a config.json without a checkpoint.
Parameters parameters_of(const Model& model, at::ScalarType type, at::Device device) {
  if (!model.checkpoint.files().empty()) {
    return load_parameters(model.spec, model.checkpoint, type, device);
  }
  const Parameters fresh = initialise_parameters(model.spec, 0);
  return Parameters(
      mapped(fresh.entries(), [&](const Parameters::Entry& entry) -> Parameters::Entry {
        return {entry.name, entry.value.to(device, type)};
      }));
}

std::vector<DecodeVariant> make_variants(const BenchDecodeOptions& options) {
  const c10::Device device = parse_device(options.device);
  const c10::ScalarType type = scalar_type_of(options.precision);
  std::vector<DecodeVariant> variants;
  for (const std::string& path : options.models) {
    const Model model = open_model_outline(path);
    check_predicts(model);
    const std::string name = std::filesystem::path(path).filename().string();
    const Parameters parameters = parameters_of(model, type, device);
    if (options.kv_heads.empty()) {
      variants.push_back(make_decode_variant(name, model.spec, parameters));
    }
    for (const std::int64_t kv_heads : options.kv_heads) {
      variants.push_back(with_leading_kv_heads(name, model.spec, parameters, kv_heads));
    }
  }
  return variants;
}

std::vector<BenchRow> measure(const BenchDecodeOptions& options,
                              const std::vector<DecodeVariant>& variants, const Console& console) {
  std::vector<BenchRow> rows;
  for (const std::int64_t batch : options.batches) {
    for (const std::int64_t context : options.contexts) {
      DecodeLoad load = options.load;
      load.batch = batch;
      load.context = context;
      load.graphs = !options.no_graphs;
      console.detail(fmt::format("batch {}, context {}", batch, context));
      const auto speeds = measure_decoding(variants, load, interrupt_requested());
      for (std::size_t i = 0; i < speeds.size(); ++i) {
        rows.push_back({&variants[i], load, speeds[i], speeds.front().seconds_per_token});
      }
    }
  }
  return rows;
}

Table table_of(const std::vector<BenchRow>& rows, bool prefilled) {
  Table table(/*keys=*/4);
  table.add_texts({"model"});
  table.add_numbers({"kv heads", "batch", "context", "cache", "weights", "ms/token", "tokens/s"});
  const bool several = std::ranges::any_of(
      rows, [&](const BenchRow& row) { return row.variant != rows.front().variant; });
  if (several) {
    table.add_numbers({"speed-up"});
  }
  table.add_numbers({"read/s"});
  if (prefilled) {
    table.add_numbers({"prefill tokens/s"});
  }
  for (const BenchRow& row : rows) {
    const auto context_tokens = static_cast<double>(row.load.batch * row.load.context);
    std::vector<std::string> cells{printable(row.variant->name, 0),
                                   text_of_heads(row.variant->model.spec().kv_heads),
                                   std::to_string(row.load.batch),
                                   with_thousands(row.load.context),
                                   text_of_bytes(row.speed.cache_bytes),
                                   text_of_bytes(row.variant->weight_bytes),
                                   fmt::format("{:.2f}", 1000 * row.speed.seconds_per_token),
                                   fmt::format("{:.1f}", row.tokens_per_second())};
    if (several) {
      cells.push_back(fmt::format("{:.2f}", row.first_seconds / row.speed.seconds_per_token));
    }
    cells.push_back(text_of_bytes(row.bytes_per_second()));
    if (prefilled) {
      cells.push_back(fmt::format("{:.0f}", context_tokens / *row.speed.prefill_seconds));
    }
    table.add_row(std::move(cells));
  }
  return table;
}

Json json_of(const BenchRow& row) {
  Json json = {{"model", row.variant->name},
               {"kv_heads", Json::parse(kv_heads_json(row.variant->model.spec()))},
               {"batch", row.load.batch},
               {"context", row.load.context},
               {"cache_bytes", row.speed.cache_bytes},
               {"weight_bytes", row.variant->weight_bytes},
               {"seconds_per_token", row.speed.seconds_per_token},
               {"tokens_per_second", row.tokens_per_second()},
               {"bytes_per_second", row.bytes_per_second()}};
  if (row.speed.prefill_seconds) {
    json["prefill_seconds"] = *row.speed.prefill_seconds;
  }
  if (!row.variant->model.device().is_cpu()) {
    json["graph"] = !row.speed.graph_obstacle;
  }
  return json;
}

// Without graphs the host may be what is measured.
void warn_of_launches(const std::vector<BenchRow>& rows, const Console& console) {
  std::set<std::string> obstacles;
  for (const BenchRow& row : rows) {
    if (row.speed.graph_obstacle && row.load.graphs && !row.variant->model.device().is_cpu()) {
      obstacles.insert(*row.speed.graph_obstacle);
    }
  }
  for (const std::string& obstacle : obstacles) {
    console.note(fmt::format("measured without CUDA graphs, times may be those of launching: {}",
                             printable(obstacle)));
  }
}

void run_bench_decode(const BenchDecodeOptions& options, const Console& console) {
  set_compute_threads(options.threads);
  if (options.no_graphs && options.device == "cpu") {
    throw_usage("--no-graphs has no effect on a CPU, which has no graphs; leave it out");
  }
  const std::vector<DecodeVariant> variants = make_variants(options);
  const std::vector<BenchRow> rows = measure(options, variants, console);
  warn_of_launches(rows, console);
  warn_of_precision(options.precision, parse_device(options.device), console);
  if (!options.json) {
    console.print(table_of(rows, options.load.prefill_chunk.has_value()).text(console));
    return;
  }
  Json report = {{"device", options.device},
                 {"dtype", name_of(options.precision)},
                 {"threads", at::get_num_threads()},
                 {"tokens", options.load.tokens},
                 {"rounds", options.load.rounds},
                 {"results", json_list(rows, [](const BenchRow& row) { return json_of(row); })}};
  if (options.load.window) {
    report["window"] = *options.load.window;
    report["sinks"] = options.load.sinks;
  }
  console.print(text_of_json(report));
}

void add_load_options(Command command, BenchDecodeOptions& options) {
  add_counts(command, "--kv-heads", options.kv_heads,
             "measure each model with these numbers of kv heads instead of its own, such as 32,8,1",
             {1, kMostHeads});
  add_counts(command, "--batch", options.batches, "sequences at a time, such as 1,8",
             {1, kMostBatch});
  add_counts(command, "--context", options.contexts,
             "tokens per sequence in the KV cache when decoding begins, such as 512,2k",
             {1, kMostContext});
  add_count(command, "--tokens", options.load.tokens, "tokens to decode in each round",
            {1, kMostContext});
  add_count(command, "--rounds", options.load.rounds, "rounds; the median is reported",
            {1, 1U << 20});
  add_count(
      command, "--prefill-chunk", options.load.prefill_chunk,
      "also time reading the context, this many tokens at a time (default: the cache is filled "
      "with noise)",
      {1, kMostContext});
  add_count(command, "--window", options.load.window,
            "sliding window: keep only this many tokens (default: the model's own window)",
            {1, kMostContext});
  add_count(command, "--sinks", options.load.sinks,
            "also keep this many tokens at the beginning, as in StreamingLLM", {1, kMostContext});
}

}  // namespace

void add_bench_decode_command(Command group, Console& console) {
  auto options = std::make_shared<BenchDecodeOptions>();
  Command command = group.add_command(
      "decode", "Measure time per token and size of the KV cache, for one or more models");
  command
      .add_option("models", options->models,
                  "model directories; for a config.json without weights, random weights are used")
      .required();
  add_load_options(command, *options);
  add_device_option(command, options->device);
  add_word(command, "--dtype", options->precision, "dtype to compute in", kPrecisions,
           parse_precision);
  add_threads_option(command, options->threads);
  command.add_flag("--no-graphs", options->no_graphs,
                   "on a GPU: launch operators one by one instead of as a CUDA graph");
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Examples: regroup bench decode Llama-2-7b-hf --kv-heads 32,8,1 --batch 1,8 --context 2k\n"
      "          regroup bench decode Llama-2-7b-hf Llama-2-7b-gqa8\n"
      "Decodes greedily, with each variant in turn in every round. A step reads the weights and\n"
      "the cache once; read/s is the speed of reading them. With --kv-heads tensors are cut, not\n"
      "pooled: the time is that of a converted model, the text is not.");
  command.on_run(
      [options, &console] { with_torch_errors([&] { run_bench_decode(*options, console); }); });
}

}  // namespace regroup
