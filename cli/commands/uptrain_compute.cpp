// regroup uptrain MODEL OUTPUT --data FILE... --alpha A --pretrain-steps N
#include "uptrain/run/uptrain.h"

#include <cmath>

#include "cli/commands/commands.h"
#include "cli/measure/data_origin.h"
#include "cli/measure/made_tokens.h"
#include "cli/report/uptrain_report.h"
#include "cli/shell/devices.h"
#include "cli/shell/option_needs.h"
#include "cli/shell/progress.h"
#include "cli/shell/uptrain_options.h"
#include "formats/base/file.h"
#include "formats/model/model.h"
#include "formats/version.h"
#include "uptrain/run/run_record.h"
#include "uptrain/run/training_speed.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/train/rank_agreement.h"
#include "uptrain/train/run_directory.h"

namespace regroup {
namespace {

// An earlier run for the same output.
struct EarlierRun {
  bool there = false;
  bool complete = false;
  Json recipe = Json::object();
};

// What the first rank sees: the directory of the output may be on its machine's own disk. Throws
// kUsage if another rank sees a run that the first one does not: it would begin again.
EarlierRun earlier_run(const std::filesystem::path& output, ProcessGroup* ranks) {
  EarlierRun seen{RunDirectory::exists(output), path_exists(output),
                  RunDirectory::recorded_recipe(output)};
  if (ranks == nullptr) {
    return seen;
  }
  const std::vector<std::string> all =
      ranks->exchange(Json{seen.there, seen.complete, seen.recipe}.dump());
  const Json first = Json::parse(all.front());
  for (std::size_t rank = 1; rank < all.size(); ++rank) {
    const Json other = Json::parse(all[rank]);
    if ((other[0] && !first[0]) || (other[1] && !first[1])) {
      throw_usage("{}: rank {} sees an earlier run, rank 0 does not: start rank 0 where it is",
                  printable_path(output), rank);
    }
  }
  return {first[0], first[1], first[2]};
}

// Takes what is not given from the run that is resumed: the learning rate, the lengths of its
// schedule, and as many batches in a step as the samples of a step make.
void take_recorded(UptrainOptions& options, const Json& recipe) {
  if (!options.resume) {
    return;
  }
  const auto recorded = [&](const char* key) { return recipe.value(key, Json()); };
  if (!options.accumulation && recorded("accumulation").is_number_integer()) {
    const double samples =
        recorded("batch").is_number()
            ? recorded("batch").get<double>() * recorded("accumulation").get<double>()
            : 0.0;
    const double batches = samples / static_cast<double>(options.settings.batch);
    const bool whole = batches >= 1 && batches < 1e9 && batches == std::floor(batches);
    options.accumulation =
        whole ? static_cast<std::int64_t>(batches) : recorded("accumulation").get<std::int64_t>();
  }
  const auto take_steps = [&](const char* key, std::optional<std::int64_t>& steps) {
    if (!steps && recorded(key).is_number_integer()) {
      steps = recorded(key).get<std::int64_t>();
    }
  };
  if (recorded("schedule") == Json(name_of(options.settings.schedule))) {
    take_steps("warmup_steps", options.settings.warmup_steps);
    take_steps("decay_steps", options.settings.decay_steps);
    take_steps("start_step", options.settings.start_step);
  }
  if (!options.settings.learning_rate && recorded("learning_rate").is_number()) {
    options.settings.learning_rate = recorded("learning_rate");
    options.settings.found_rate = recorded("found_learning_rate") == Json(true);
  }
}

void check_data(const UptrainOptions& options, const Launch& launch) {
  check_one_input(!options.data.empty(), options.text);
  if (!options.text.files.empty() && !launch.alone()) {
    throw_usage(
        "--text: several ranks need a token file: regroup tokenize makes it, --data names it");
  }
}

void set_ranks(UptrainOptions& options, const Launch& launch) {
  UptrainSettings& settings = options.settings;
  if (options.planned_ranks && !launch.alone()) {
    refuse_without_effect("--ranks", "this process is one of several ranks already");
  }
  settings.ranks = options.planned_ranks.value_or(launch.ranks);
  settings.local_ranks = options.planned_ranks_per_machine.value_or(
      options.planned_ranks.value_or(launch.local_ranks));
  if (settings.local_ranks > settings.ranks) {
    throw_usage("--ranks-per-machine: {}, allowed are up to {}, the number of ranks",
                settings.local_ranks, settings.ranks);
  }
}

// Sets and checks the settings that the options and the launch determine.
void complete_settings(UptrainOptions& options, const Launch& launch, const Json& recipe) {
  UptrainSettings& settings = options.settings;
  check_data(options, launch);
  if (options.text.files.empty()) {
    set_data(settings, options.data);
  } else {
    settings.data.assign(options.text.files.begin(), options.text.files.end());  // until tokenized
  }
  take_recorded(options, recipe);
  settings.documents = options.documents.settings();
  set_ranks(options, launch);
  settings.accumulation =
      options.accumulation.value_or(std::max<std::int64_t>(1, settings.shares()));
  settings.sharding.weights = options.shard == "full";
  settings.sharding_is_open = options.shard == "auto" && settings.ranks > 1;
  if (settings.eval_max_tokens == 0) {
    settings.eval_max_tokens.reset();
  }
  take_published_length(settings);
  settings.validate();
}

void check_plan(const UptrainOptions& options, const UptrainPlan& plan, const Console& console) {
  check_memory(plan.shortage, options.memory_check && !options.dry_run, console);
  check_task_options(options.settings.task, plan.task.objective);
}

void print_dry_run(const UptrainPlan& plan, bool json, const Console& console) {
  if (json) {
    console.print(text_of_json(plan_json(plan)));
  } else {
    console.print_facts(plan_text(plan), kPlanIndent);
  }
  console.note("dry run: nothing was written");
}

// Chooses the learning rate if it is not given, and says which.
void choose_rate_aloud(UptrainPlan& plan, const Model& source, const DataLoader& data,
                       ProcessGroup* ranks, const Console& console) {
  Progress progress(console, "learning rate", 0, "trials");
  std::uint64_t done = 0;
  const auto show = [&](double rate, double loss) {
    progress.update(++done, fmt::format("{:.3g}: loss {:.4f}", rate, loss));
  };
  const auto choice = choose_rate(plan, source, data, show, interrupt_requested(), ranks);
  progress.finish();
  if (choice) {
    console.note(rate_text(*choice));
  }
}

// Connects to the other ranks. What decides in which order ranks exchange the rest comes first.
std::unique_ptr<ProcessGroup> join(const UptrainOptions& options, const Launch& launch,
                                   const Console& console) {
  auto ranks = join_process_group(launch, options.settings.device,
                                  std::chrono::seconds(options.timeout.value_or(kDefaultTimeout)),
                                  [&](const std::string& text) { console.note(text); });
  if (ranks) {
    const bool resumes = !options.resuming.empty();
    check_same_on_all(
        *ranks, {{"version", kVersion}, {"resume", resumes ? Json(options.resuming) : Json()}});
  }
  return ranks;
}

// Throws on all ranks unless they are about to do the same.
void agree(ProcessGroup& ranks, UptrainPlan& plan, const Model& source, bool resume) {
  agree_on_memory(plan, source, ranks);
  check_same_on_all(ranks, asked_of_rank(plan, source, resume));
  ranks.on_first([&] { RunDirectory::check_output(plan.settings.output, resume); });
}

// All ranks check, so that none waits for one that refuses; only the first rank prints.
void check_origins(const UptrainSettings& settings, const Model& source, bool of_text,
                   std::int64_t rank, Console console) {
  if (rank > 0) {
    console.set_verbosity(Verbosity::kSilent);
  }
  for (const auto& path : settings.data) {
    check_data_origin(source, of_text ? "" : path, console);
  }
  check_data_origin(source, settings.eval_data, console);
}

// The time of the whole run: that of large matrix products of twice as many operations, whose speed
// takes a second to measure. Empty for short runs.
std::string expected_text(const UptrainPlan& plan) {
  constexpr double kMinute = 60.0, kShort = 1e11;  // less than a minute on any machine
  if (plan.flops < kShort) {
    return "";
  }
  const UptrainSettings& settings = plan.settings;
  const double product =
      matmul_flops_per_second(scalar_type_of(settings.precision), settings.device);
  const double flops = plan.flops + (plan.evaluations ? plan.evaluations->flops : 0.0);
  const double seconds = 2.0 * flops / (product * static_cast<double>(settings.ranks));
  return seconds < kMinute ? "" : fmt::format("expected  about {}", text_of_duration(seconds));
}

void plan_and_train(UptrainOptions& options, const Launch& launch,
                    std::unique_ptr<ProcessGroup> ranks, const Console& console) {
  UptrainSettings& settings = options.settings;
  const Model source = open_predicting_model(settings.model);
  check_writable(source);
  std::optional<TrainingText> text;
  if (!options.text.files.empty()) {
    text.emplace(options.text, source, options.threads, settings.output, options.resume);
    settings.data = {text->path()};
  }
  check_origins(settings, source, text.has_value(), launch.rank, console);
  const DataLoader data = open_training_data(
      settings, source.spec, text ? printable(options.text.files.front(), 0) : std::string());
  UptrainPlan plan = plan_uptraining(settings, source, data);
  check_plan(options, plan, console);
  if (launch.rank == 0) {
    warn_of_precision(settings.precision, settings.device, console);
  }
  if (!ranks && !options.dry_run) {
    ranks = join(options, launch, console);
  }
  if (ranks) {
    agree(*ranks, plan, source, options.resume);
  }
  const auto train = [&](UptrainObserver& observer) {
    return run_uptraining(plan, source, data, options.resume, observer, interrupt_requested(),
                          ranks.get());
  };
  if (launch.rank > 0) {  // only the first rank prints
    UptrainObserver silent;
    if (ranks) {
      choose_rate(plan, source, data, {}, interrupt_requested(), ranks.get());
      train(silent);
    }
    return;
  }
  console.notes("note", plan.notes);
  console.notes("warning", plan.warnings);
  if (options.dry_run) {
    print_dry_run(plan, options.json, console);
    return;
  }
  console.note(plan_text(plan), kPlanIndent);
  if (const std::string expected = expected_text(plan); !expected.empty()) {
    console.note(expected);
  }
  if (plan.rate_trials) {
    choose_rate_aloud(plan, source, data, ranks.get(), console);
  }
  const auto keep_tokens = [&] {
    if (text) {
      text->keep();
    }
  };
  train_and_report(train, plan, keep_tokens, options.json, console);
}

// For --resume=auto.
void report_complete(const std::filesystem::path& output, bool json, const Console& console) {
  if (json) {
    console.print(text_of_json({{"output", output.string()}, {"complete", true}}));
  }
  console.note(fmt::format("{} is complete", printable_path(output)));
}

void run_uptrain(UptrainOptions options, const Launch& launch, const Console& console) {
  UptrainSettings& settings = options.settings;
  check_directory_name(settings.output);
  if (options.timeout && !launch.launched) {
    refuse_without_effect("--timeout", "this process is the only one of the run");
  }
  set_compute_threads(threads_of_rank(options.threads, launch));
  settings.device = device_of_rank(options.device, launch);
  std::unique_ptr<ProcessGroup> ranks;  // without --resume they connect when each has a plan
  EarlierRun earlier;
  if (!options.resuming.empty()) {
    ranks = options.dry_run ? nullptr : join(options, launch, console);
    earlier = earlier_run(settings.output, ranks.get());
  }
  const bool automatic = options.resuming == "auto";
  if (automatic && earlier.complete) {
    if (launch.rank == 0) {
      report_complete(settings.output, options.json, console);
    }
    return;
  }
  options.resume = automatic ? earlier.there : !options.resuming.empty();
  complete_settings(options, launch, earlier.recipe);
  settings.begin_again = automatic;
  if (launch.rank == 0 && (launch.alone() || options.dry_run)) {  // ranks: once they are connected
    RunDirectory::check_output(settings.output, options.resume);
  }
  plan_and_train(options, launch, std::move(ranks), console);
}

}  // namespace

void add_uptrain_command(Command program, Console& console) {
  auto options = std::make_shared<UptrainOptions>();
  Command command = add_whole_command(program, "uptrain");
  add_uptrain_options(command, *options);
  command.footer(
      "Example: regroup uptrain Llama-2-7b-gqa8 Llama-2-7b-gqa8-up --data corpus.bin \\\n"
      "           --alpha 0.0005\n"
      "Many GPUs: torchrun --no-python --nproc-per-node 8 regroup uptrain ... --device cuda\n"
      "T5's pretraining recipe: --optimizer adafactor --schedule inverse-sqrt --start-step N\n"
      "The result appears only when it is complete. Until then OUTPUT.run holds metrics.jsonl and\n"
      "the state. Ctrl-C saves the state, and --resume continues from it.");
  command.on_run([options, &console] {
    const Launch launch = launch_from(variable_of_process);
    with_rank_named(launch, [&] { run_uptrain(*options, launch, console); });
  });
}

}  // namespace regroup
