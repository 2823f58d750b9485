// regroup teach TEACHER OUTPUT --data FILE...
#include "uptrain/run/teach.h"

#include "cli/commands/commands.h"
#include "cli/measure/data_origin.h"
#include "cli/shell/devices.h"
#include "cli/shell/uptrain_options.h"
#include "uptrain/model/device.h"
#include "uptrain/model/language_model.h"
#include "uptrain/run/uptrain_plan.h"

namespace regroup {
namespace {

struct TeachOptions {
  TeachSettings settings;
  std::vector<std::string> data;
  DocumentOptions documents;
  std::string output;
  std::string device = "cpu";
  int threads = 0;
  bool dry_run = false;
  bool json = false;
};

Json json_of(const TeachPlan& plan, const std::string& output) {
  return {{"output", output},
          {"teacher", plan.facts.teacher},
          {"windows", plan.facts.samples},
          {"predictions_per_window", plan.facts.predictions},
          {"top", plan.facts.top},
          {"temperature", plan.facts.temperature},
          {"files", plan.facts.files()},
          {"bytes", plan.bytes()}};
}

std::string text_of(const TeachPlan& plan) {
  const TeacherLogitsFacts& facts = plan.facts;
  return fmt::format(
      "windows   {} of {} tokens, {} predictions in each ({}), seed {}\n"
      "stored    the {} most likely of {} tokens and the sum of the rest, temperature {:g}\n"
      "size      {}, {:.3g} bytes per prediction, in {} file{}",
      with_thousands(facts.samples), with_thousands(*plan.run.sequence_length),
      with_thousands(facts.predictions), name_of(plan.task.objective), plan.run.seed, facts.top,
      with_thousands(facts.vocab_size), facts.temperature, text_of_bytes(plan.bytes()),
      static_cast<double>(facts.sample_bytes()) / static_cast<double>(facts.predictions),
      facts.files(), facts.files() == 1 ? "" : "s");
}

void run_teach(TeachOptions options, const Console& console) {
  set_compute_threads(options.threads);
  UptrainSettings& run = options.settings.run;
  check_directory_name(options.output);
  set_data(run, options.data);
  run.documents = options.documents.settings();
  run.device = parse_device(options.device);
  const Model teacher = open_predicting_model(run.model);
  console.notes("warning", teacher.spec.contradictions);
  for (const auto& path : run.data) {
    check_data_origin(teacher, path, console);
  }
  const DataLoader data = open_training_data(run, teacher.spec);
  const TeachPlan plan = plan_teaching(options.settings, teacher, data);
  check_task_options(run.task, plan.task.objective);
  warn_of_precision(run.precision, run.device, console);
  if (options.dry_run) {
    console.print(options.json ? text_of_json(json_of(plan, options.output)) : text_of(plan));
    console.note("dry run: nothing was written");
    return;
  }
  console.note(text_of(plan), 10);
  Progress progress(console, "teach", plan.facts.samples, "windows");
  teach(plan, teacher, data, options.output, progress.callback(), interrupt_requested());
  progress.finish();
  if (options.json) {
    console.print(text_of_json(json_of(plan, options.output)));
  }
  console.note(fmt::format("wrote {}", printable(options.output, 0)));
}

void add_window_options(Command command, TeachOptions& options) {
  UptrainSettings& run = options.settings.run;
  command
      .add_option("--data", options.data,
                  "token files, the same as for uptrain: PATH or PATH:WEIGHT")
      .required()
      .default_text("");
  add_document_options(command, options.documents);
  add_sequence_options(command, run);
  add_count(command, "--seed", run.seed, "seed of the data order, the same as for uptrain",
            kAnySeed);
  add_count(command, "--windows", options.settings.windows,
            "windows to compute, from the first of the run: its steps times --batch times "
            "--accumulate (default: one epoch)");
  add_task_options(command, run.task, "what the model was pretrained on");
}

}  // namespace

void add_teach_command(Command program, Console& console) {
  auto options = std::make_shared<TeachOptions>();
  Command command = add_whole_command(program, "teach");
  UptrainSettings& run = options->settings.run;
  command
      .add_option(
          "model", run.model,
          "the teacher: a model directory, a GGUF file, or org/name in the hub's local cache")
      .required();
  command.add_option("output,-o,--output", options->output, "directory to make; must not exist yet")
      .required();
  add_window_options(command, *options);
  add_count(command, "--top", options->settings.top,
            "most likely tokens to store for each prediction; the others are stored as one sum",
            {1, kMostTokenId});
  add_number(command, "--temperature", run.teacher.distillation.temperature,
             "softmax temperature, the same as for uptrain", {0.01, 100.0});
  add_word(command, "--dtype", run.precision, "dtype to compute in", kPrecisions, parse_precision);
  add_device_option(command, options->device);
  add_threads_option(command, options->threads);
  command.add_flag("--dry-run", options->dry_run, "show the plan and write nothing");
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Example: regroup teach Llama-2-7b-hf answers --data corpus.bin --windows 100000\n"
      "         regroup uptrain Llama-2-7b-gqa8 --data corpus.bin --teacher-logits answers ...\n"
      "Predictions depend on where a window begins, so the teacher reads the windows of the run:\n"
      "data, --seed, --context, --documents and the task must be the same; --batch and\n"
      "--accumulate may differ. After Ctrl-C, run the same command again to continue.");
  command.on_run([options, &console] { with_torch_errors([&] { run_teach(*options, console); }); });
}

}  // namespace regroup
