// regroup init CONFIG OUT --seed N
#include "cli/commands/commands.h"
#include "formats/base/file.h"
#include "formats/base/hub_cache.h"
#include "formats/families/loader_code.h"
#include "uptrain/model/device.h"
#include "uptrain/model/parameters.h"
#include "uptrain/train/metrics.h"

namespace regroup {
namespace {

struct InitOptions {
  std::string config;
  std::string output;
  std::uint64_t seed = 0;
  DType dtype = DType::kF32;
  bool json = false;
};

const std::map<std::string, DType> kDtypes{
    {"fp32", DType::kF32}, {"fp16", DType::kF16}, {"bf16", DType::kBF16}};

void run_init(const InitOptions& options, const Console& console) {
  check_directory_name(options.output);
  constexpr std::uint64_t kMaxConfigBytes = 16U << 20;
  std::filesystem::path config = resolve_model_path(options.config);
  if (is_directory_there(config)) {
    config /= "config.json";
  }
  {
    const Progress progress(console, "init", 0, "bytes");
    write_new_model({.text = read_text(config, kMaxConfigBytes), .name = printable_path(config)},
                    options.seed, options.dtype, options.output);
  }
  const Model made = open_model(options.output);
  console.notes("note", notes_on_code(code_in(made.config, made.path, made.companions, {})));
  const std::int64_t parameters = count_parameters(made.spec);
  if (options.json) {
    console.print(text_of_json({{"config", options.config},
                                {"output", options.output},
                                {"architecture", made.spec.architecture},
                                {"parameters", parameters},
                                {"seed", options.seed}}));
  }
  console.note(fmt::format("wrote {}: {}, {} parameters", printable(options.output, 0),
                           printable(made.spec.architecture), text_of_count(parameters)));
}

}  // namespace

void add_init_command(Command program, Console& console) {
  auto options = std::make_shared<InitOptions>();
  Command command = add_whole_command(program, "init");
  command
      .add_option("config", options->config,
                  "config.json of a family that regroup supports, or a model that has one")
      .required();
  command.add_option("output,-o,--output", options->output, "directory to make; must not exist yet")
      .required();
  add_count(command, "--seed", options->seed,
            "seed of the weights; the same seed gives the same bytes", kAnySeed);
  add_word(command, "--dtype", options->dtype, "store the weights in this dtype", kDtypes);
  command.add_flag("--json", options->json, "report as JSON");
  command.footer(
      "Example: regroup init config.json untrained --seed 1\n"
      "Initialises as GPT-2: weights are normal with the config's initializer_range (or 0.02) as\n"
      "standard deviation, smaller for outputs into the residual stream; norms 1, biases 0.\n"
      "regroup uptrain untrained OUTPUT --data FILE --steps N trains it.");
  command.on_run([options, &console] { with_torch_errors([&] { run_init(*options, console); }); });
}

}  // namespace regroup
