// regroup inspect PATH
#include "cli/commands/commands.h"
#include "cli/report/pages.h"
#include "formats/base/ranges.h"
#include "formats/model/model_directory.h"

namespace regroup {
namespace {

struct InspectOptions {
  std::string path;
  std::string layout;
  CacheLoad load;
  TensorChoice choice;
  bool tensors = false;
  bool layers = false;
  bool stats = false;
  bool json = false;
  std::string html;
  std::string conversion;
  std::string run;
};

std::vector<MeasuredTensor> measure(const Checkpoint& checkpoint,
                                    const std::vector<const TensorInfo*>& tensors,
                                    const Console& console) {
  std::uint64_t total = 0;
  for (const TensorInfo* tensor : tensors) {
    total += tensor->bytes();
  }
  Progress progress(console, "read", total, "bytes");
  std::uint64_t done = 0;
  std::vector<MeasuredTensor> measured;
  for (const TensorInfo* tensor : tensors) {
    measured.push_back({tensor, statistics_of(checkpoint, *tensor, [&](std::uint64_t bytes) {
                          throw_if_stopped(interrupt_requested(), "interrupted");
                          progress.update(done += bytes, printable(tensor->name, 60));
                        })});
  }
  progress.finish();
  return measured;
}

// Messages about tensors with NaN or infinities.
std::vector<std::string> faults_in(const std::vector<MeasuredTensor>& measured) {
  std::vector<std::string> faults;
  for (const auto& [tensor, found] : measured) {
    if (!found.finite()) {
      faults.push_back(fmt::format("{}: {} NaN and {} infinite of {} elements",
                                   printable(tensor->name), with_thousands(found.nan),
                                   with_thousands(found.infinite), with_thousands(found.elements)));
    }
  }
  return faults;
}

// The requested facts.
struct Inspection {
  ModelSummary summary;
  std::vector<const TensorInfo*> tensors;
  std::vector<LayerSummary> layers;
  std::vector<MeasuredTensor> measured;
};

Inspection inspect(const InspectOptions& options, const Checkpoint& checkpoint,
                   const Console& console) {
  Inspection found;
  found.summary = summarize_model(options.path, checkpoint, options.layout);
  if (options.tensors || options.stats) {
    found.tensors = chosen_tensors(checkpoint, options.choice);
  }
  const auto& spec = found.summary.spec;
  if (options.layers && !spec) {
    throw_usage("--layers: {}: no config.json describes the layers", printable(options.path, 0));
  }
  if (options.layers) {
    found.layers = summarize_layers(*spec, checkpoint);
  }
  if (options.stats) {
    found.measured = measure(checkpoint, found.tensors, console);
    append(found.summary.disagreements, faults_in(found.measured));
  }
  return found;
}

void print_json(const InspectOptions& options, const Inspection& found,
                const Checkpoint& checkpoint, const Console& console) {
  Json report = summary_json(found.summary, options.load);
  if (options.layers) {
    report["per_layer"] = layers_json(found.layers, found.summary.spec->head_dim);
  }
  if (options.tensors) {
    report["tensors"] = tensors_json(checkpoint, found.tensors);
  }
  if (options.stats) {
    report["statistics"] = statistics_json(found.measured);
  }
  console.print(text_of_json(report));
}

void print_text(const InspectOptions& options, const Inspection& found,
                const Checkpoint& checkpoint, const Console& console) {
  constexpr std::size_t kIndent = 12;
  console.print_facts(text_of_facts(summary_facts(found.summary, options.load), kIndent), kIndent);
  if (options.layers) {
    console.print("\n" + layers_table(found.layers, found.summary.spec->head_dim).text(console));
  }
  if (options.tensors) {
    console.print("\n" + tensors_table(checkpoint, found.tensors).text(console));
  }
  if (options.stats) {
    console.print("\n" + statistics_table(found.measured).text(console));
  }
  console.notes("warning", model_warnings(found.summary));
}

// Every page includes the layers; other parts depend on the options.
void put_page(const InspectOptions& options, const Inspection& found, const Checkpoint& checkpoint,
              const Console& console) {
  ModelPage page{.summary = found.summary, .load = options.load, .layers = found.layers};
  if (page.layers.empty() && found.summary.spec) {
    page.layers = summarize_layers(*found.summary.spec, checkpoint);
  }
  if (options.tensors) {
    page.tensors = tensors_table(checkpoint, found.tensors);
  }
  if (options.stats) {
    page.statistics = statistics_table(found.measured);
  }
  if (!options.conversion.empty()) {
    page.conversion = read_measurements(options.conversion);
  } else {
    page.conversion = measurements_in(settings_of(options.path), options.path);
  }
  const auto run =
      options.run.empty() ? run_directory_of(options.path) : std::filesystem::path(options.run);
  if (run) {
    page.training = read_training_curve(*run);
  }
  write_page(options.html, model_page(page), console);
}

void run_inspect(const InspectOptions& options, const Console& console) {
  check_page_path(options.html);
  const Checkpoint checkpoint = open_checkpoint(options.path);
  const Inspection found = inspect(options, checkpoint, console);
  if (options.json) {
    print_json(options, found, checkpoint, console);
  } else {
    print_text(options, found, checkpoint, console);
  }
  if (!options.html.empty()) {
    put_page(options, found, checkpoint, console);
  }
}

void add_page_options(Command command, InspectOptions& options) {
  command.add_option("--html", options.html, "write a page with charts to this file");
  command.add_option("--conversion", options.conversion,
                     "the output of convert --json, for the energy that layers keep");
  command.add_option("--run", options.run,
                     "an uptraining run, for its curves (default: MODEL.run, if it exists)");
}

}  // namespace

void add_inspect_command(Command program, Console& console) {
  auto options = std::make_shared<InspectOptions>();
  Command command = program.add_command(
      "inspect", "Show what a checkpoint is: heads per layer, cache cost, dtypes, how it was made");
  command.add_option("model", options->path, kCheckpointHelp).required();
  command.add_option("--layout", options->layout,
                     "layout file, which describes an architecture that regroup does not support");
  command.add_flag("--layers", options->layers, "list every layer: heads, parameters, cache");
  command.add_flag("--tensors", options->tensors, "list every tensor");
  command.add_flag("--stats", options->stats, "read every tensor: norm, range, NaN and infinities");
  command.add_option("--filter", options->choice.filter,
                     "only names that match this pattern, such as '*.k_proj.*'");
  command.add_option("--sort", options->choice.sort, "order of --tensors and --stats")
      .one_of({"shard", "name", "bytes"});
  add_count(command, "--context", options->load.context, "tokens per sequence in the KV cache",
            {1, kMostContext});
  add_count(command, "--batch", options->load.batch, "sequences in the KV cache", {1, kMostBatch});
  command.add_flag("--json", options->json, "report as JSON");
  add_page_options(command, *options);
  command.footer(
      "Examples: regroup inspect Llama-2-7b-gqa8 --context 32k --batch 8\n"
      "          regroup inspect Llama-2-7b-gqa8 --stats --filter '*.v_proj.*' --sort name\n"
      "          regroup inspect Llama-2-7b-gqa8-up --conversion convert.json --html report.html\n"
      "Reads only headers, except with --stats.");
  command.on_run([options, &console] { run_inspect(*options, console); });
}

}  // namespace regroup
