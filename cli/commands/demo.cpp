// regroup demo: trains a small model, converts it to fewer kv heads, and uptrains the results.
#include <chrono>
#include <filesystem>
#include <memory>
#include <vector>

#include <fmt/format.h>

#include "cli/commands/commands.h"
#include "cli/commands/demo_corpus.h"
#include "cli/options/command.h"
#include "cli/options/number_options.h"
#include "cli/options/output_name.h"
#include "cli/process/interrupt.h"
#include "cli/terminal/progress.h"
#include "cli/terminal/table.h"
#include "cli/terminal/text.h"
#include "converter/execute/execute_plan.h"
#include "converter/plan/conversion_plan.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"
#include "uptrain/model/initialise.h"
#include "uptrain/run/uptrain.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kQueryHeads = 8;
constexpr std::int64_t kSequence = 128;
constexpr std::uint64_t kCorpusBytes = 8'000'000;

struct DemoOptions {
  std::string output = "regroup-demo";
  std::string text;
  std::int64_t pretrain_steps = 600;
  double alpha = 0.05;
  std::string pool = "mean";
  bool json = false;
};

// A row of the final table.
struct DemoRow {
  std::string variant;
  std::int64_t kv_heads = 0;
  std::uint64_t kv_bytes_per_token = 0;
  double converted_loss = 0.0;
  double uptrained_loss = 0.0;
};

// A byte-level Llama of 0.9 million parameters.
std::string model_config() {
  const Json config = {{"architectures", {"LlamaForCausalLM"}},
                       {"model_type", "llama"},
                       {"hidden_size", 128},
                       {"intermediate_size", 344},
                       {"num_hidden_layers", 4},
                       {"num_attention_heads", kQueryHeads},
                       {"num_key_value_heads", kQueryHeads},
                       {"head_dim", 16},
                       {"vocab_size", 256},
                       {"max_position_embeddings", kSequence},
                       {"rms_norm_eps", 1e-5},
                       {"rope_theta", 10000.0},
                       {"hidden_act", "silu"},
                       {"tie_word_embeddings", false},
                       {"bos_token_id", nullptr},
                       {"eos_token_id", nullptr},
                       {"torch_dtype", "float32"}};
  return config.dump(2) + "\n";
}

// Shows the steps of a training run on a progress bar.
class StepsOnBar : public UptrainObserver {
 public:
  StepsOnBar(Progress& progress) : progress_(progress) {}
  void on_step(const StepReport& report) override {
    progress_.update(static_cast<std::uint64_t>(report.step),
                     fmt::format("loss {:.3f}", report.loss));
  }

 private:
  Progress& progress_;
};

class Demo {
 public:
  Demo(const DemoOptions& options, const Console& console)
      : options_(options), console_(console), root_(options.output) {}

  void run() {
    const auto begin = std::chrono::steady_clock::now();
    prepare_text();
    const fs::path mha = pretrain();
    std::vector<DemoRow> rows;
    for (const std::int64_t kv_heads : {kQueryHeads, kQueryHeads / 2, kQueryHeads / 4, {1}}) {
      rows.push_back(convert_and_uptrain(mha, kv_heads));
    }
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    report(rows, elapsed.count());
  }

 private:
  void prepare_text() {
    if (fs::exists(fs::symlink_status(root_))) {
      throw_usage("{}: exists already; remove it or choose another directory with --output",
                  printable(root_.string(), 0));
    }
    const DemoCorpus corpus = read_demo_corpus(options_.text, kCorpusBytes);
    fs::create_directories(root_);
    write_byte_tokens(root_ / "training.bin", corpus.training);
    write_byte_tokens(root_ / "held-out.bin", corpus.held_out);
    console_.note(
        fmt::format("text: {} ({} to train on, {} held out)", printable(corpus.origin.string(), 0),
                    text_of_bytes(corpus.training.size()), text_of_bytes(corpus.held_out.size())));
  }

  fs::path pretrain() {
    write_new_model({.text = model_config(), .name = "config.json"}, /*seed=*/1, DType::kF32,
                    root_ / "untrained");
    UptrainSettings settings = training_settings(root_ / "untrained", root_ / "mha");
    settings.steps = options_.pretrain_steps;
    settings.learning_rate = 2e-3;
    settings.record = false;
    train("pretrain", settings);
    fs::remove_all(root_ / "untrained");
    return root_ / "mha";
  }

  DemoRow convert_and_uptrain(const fs::path& mha, std::int64_t kv_heads) {
    DemoRow row;
    row.kv_heads = kv_heads;
    row.variant = kv_heads == kQueryHeads ? "mha"
                  : kv_heads == 1         ? "mqa"
                                          : fmt::format("gqa-{}", kv_heads);
    fs::path source = mha;
    if (kv_heads != kQueryHeads) {
      source = root_ / row.variant;
      convert(mha, source, kv_heads, row);
    } else {
      row.kv_bytes_per_token =
          kv_bytes_per_token(std::vector<std::int64_t>(4, kv_heads), 16, DType::kF32);
    }
    UptrainSettings settings = training_settings(source, source.string() + "-uptrained");
    settings.alpha = options_.alpha;
    settings.pretrain_steps = options_.pretrain_steps;
    settings.learning_rate = 1e-3;
    const UptrainResult result = train(row.variant + " uptrain", settings);
    row.converted_loss = result.before.value().loss;
    row.uptrained_loss = result.after.value().loss;
    return row;
  }

  void convert(const fs::path& mha, const fs::path& destination, std::int64_t kv_heads,
               DemoRow& row) {
    const Model source = open_model(mha);
    ConversionRequest request;
    request.kv_heads = {kv_heads};
    request.pooling.method = parse_pool_method(options_.pool);
    const ConversionPlan plan = plan_conversion(source, request);
    execute_conversion(plan, source, destination, {}, interrupt_requested());
    row.kv_bytes_per_token = plan.kv_bytes_per_token->after;
  }

  UptrainSettings training_settings(const fs::path& model, const fs::path& output) const {
    UptrainSettings settings;
    settings.model = model;
    settings.output = output;
    settings.data = {root_ / "training.bin"};
    settings.eval_data = root_ / "held-out.bin";
    settings.eval_max_tokens = 128 * kSequence;
    settings.sequence_length = kSequence;
    settings.batch = 16;
    settings.save_every = 0;
    settings.seed = 1;
    return settings;
  }

  UptrainResult train(const std::string& label, const UptrainSettings& settings) {
    const Model source = open_predicting_model(settings.model);
    const DataLoader data = open_training_data(settings, source.spec);
    const UptrainPlan plan = plan_uptraining(settings, source, data);
    Progress progress(console_, label, static_cast<std::uint64_t>(plan.steps), "steps");
    StepsOnBar observer(progress);
    UptrainResult result =
        run_uptraining(plan, source, data, /*resume=*/false, observer, interrupt_requested());
    progress.finish();
    return result;
  }

  void report(const std::vector<DemoRow>& rows, double seconds) const {
    if (options_.json) {
      Json list = Json::array();
      for (const DemoRow& row : rows) {
        list.push_back({{"variant", row.variant},
                        {"kv_heads", row.kv_heads},
                        {"kv_bytes_per_token", row.kv_bytes_per_token},
                        {"loss_after_conversion", row.converted_loss},
                        {"loss_after_uptraining", row.uptrained_loss}});
      }
      console_.print(text_of_json({{"alpha", options_.alpha},
                                   {"pretrain_steps", options_.pretrain_steps},
                                   {"seconds", seconds},
                                   {"variants", std::move(list)}}));
      return;
    }
    console_.print(table_of(rows).text(console_));
    console_.print(fmt::format(
        "\nHeld-out loss in nats per byte. Heads pooled by {}; uptraining for alpha = {} of {} "
        "steps.\nThe mha row is not converted: it shows the effect of the same extra steps on the "
        "source.",
        options_.pool, options_.alpha, options_.pretrain_steps));
    console_.note(
        fmt::format("\ndone in {}. Inspect the checkpoints, for example:\n"
                    "  regroup inspect {}/gqa-2-uptrained",
                    text_of_duration(seconds), printable(root_.string(), 0)));
  }

  static Table table_of(const std::vector<DemoRow>& rows) {
    Table table;
    table.add_column("variant", Table::Align::kLeft);
    table.add_column("kv heads", Table::Align::kRight);
    table.add_column("KV bytes/token", Table::Align::kRight);
    table.add_column("loss converted", Table::Align::kRight);
    table.add_column("loss uptrained", Table::Align::kRight);
    table.add_column("loss won back", Table::Align::kRight);
    const DemoRow& source = rows.front();
    for (const DemoRow& row : rows) {
      // Relative to the source before uptraining.
      const double lost = row.converted_loss - source.converted_loss;
      const double left = row.uptrained_loss - source.converted_loss;
      table.add_row(
          {row.variant, std::to_string(row.kv_heads), with_thousands(row.kv_bytes_per_token),
           fmt::format("{:.3f}", row.converted_loss), fmt::format("{:.3f}", row.uptrained_loss),
           &row == &source ? "-" : fmt::format("{:.0f} %", 100 * (1 - left / lost))});
    }
    return table;
  }

  const DemoOptions& options_;
  const Console& console_;
  fs::path root_;
};

}  // namespace

void add_demo_command(Command program, Console& console) {
  auto options = std::make_shared<DemoOptions>();
  Command command = add_whole_command(program, "demo");
  command.add_option("-o,--output", options->output, "directory to make for data and checkpoints");
  command.add_option("--text", options->text,
                     "text file or directory to train on (default: the C++ headers)");
  add_count(command, "--pretrain-steps", options->pretrain_steps, "steps to train the source for");
  add_number(command, "--alpha", options->alpha, "uptrain for this fraction of --pretrain-steps",
             {0.0, 100.0, /*least_allowed=*/false});
  command
      .add_option("--pool", options->pool, "how heads are pooled, as for convert (docs/pooling.md)")
      .one_of({"mean", "first", "random", "lowrank"});
  command.add_flag("--json", options->json, "report as JSON");
  command.on_run([options, &console] {
    check_directory_name(options->output);
    Demo(*options, console).run();
  });
}

}  // namespace regroup
