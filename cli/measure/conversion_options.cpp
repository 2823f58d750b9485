#include "cli/measure/conversion_options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <map>
#include <string_view>
#include <utility>

#include "cli/shell/option_needs.h"
#include "cli/shell/quantity.h"
#include "cli/shell/text.h"
#include "converter/convert/execute_plan.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "formats/model/model_directory.h"
#include "formats/model/serving_cost.h"
#include "formats/tensors/gguf.h"

namespace regroup {
namespace {

const std::map<std::string, DType> kDtypes{
    {"fp32", DType::kF32}, {"fp16", DType::kF16}, {"bf16", DType::kBF16}, {"q8_0", DType::kQ8_0}};
const std::map<std::string, Container> kContainers{{"safetensors", Container::kSafetensors},
                                                   {"torch", Container::kTorch},
                                                   {"gguf", Container::kGguf}};

const std::map<std::string, LoaderChoice> kLoaders{{"auto", LoaderChoice::kAuto},
                                                   {"transformers", LoaderChoice::kTransformers},
                                                   {"none", LoaderChoice::kNone}};

std::vector<AttentionRole> parse_roles(const std::string& text) {
  std::vector<AttentionRole> roles;
  for (const std::string_view item : split(text, ',')) {
    if (item != "self" && item != "cross" && item != "encoder") {
      throw_usage("--attention: \"{}\" is not one of self, cross, encoder", printable(item));
    }
    roles.push_back(item == "self"    ? AttentionRole::kSelf
                    : item == "cross" ? AttentionRole::kCross
                                      : AttentionRole::kEncoder);
  }
  return roles;
}

// Without --to: GGUF for an output named "x.gguf" unless the source is GGUF.
void choose_container(ConvertOptions& options) {
  if (!options.request.container && names_gguf_file(options.destination) &&
      !is_gguf_file(resolve_weights_path(options.source))) {
    options.request.container = Container::kGguf;
  }
}

void check_name(const std::filesystem::path& destination, Container container) {
  if (!is_single_file(container)) {
    check_directory_name(destination);
  } else {
    check_output_name(destination, "a GGUF file", {".gguf"});
  }
}

void check_roles(const ConvertOptions& options, const Model& source) {
  const auto roles = source.spec.roles();
  const auto& named = options.request.roles;
  if (std::ranges::none_of(named, [&](AttentionRole role) { return contains(roles, role); })) {
    refuse_without_effect(
        "--attention " + options.attention,
        fmt::format("{} has only self-attention", printable(source.spec.architecture)));
  }
}

// Options of both commands.
void add_common_options(Command command, ConvertOptions& options) {
  command.begin_group("Output");
  options.command = command;
  command
      .add_option("output,-o,--output", options.destination,
                  "directory (or file) to make; must not exist yet")
      .required();
  add_size(command, "--max-shard-size", options.request.max_shard_bytes,
           "split the weights into files of at most this size, such as 2GB")
      .default_text("5GB");
  command.add_flag("--dry-run", options.dry_run, "show the plan and write nothing");
  command.add_flag("--json", options.json, "report as JSON");
}

void add_form_options(Command command, ConvertOptions& options) {
  ConversionRequest& request = options.request;
  command.begin_group("Form of the result");
  command
      .add_option(
          "--target", request.target,
          "architecture to write: same; auto (one that computes the same and whose loaders, "
          "such as vLLM, support grouped heads); expanded (every kv head stored once per "
          "query head, for loaders without grouped heads); or its name")
      .value_name("same|auto|expanded|NAME");
  add_word(command, "--positions", request.positions,
           "keep, or alibi: replace the model's positions by ALiBi slopes (needs uptraining "
           "afterwards)",
           {"keep", "alibi"}, [](const std::string& word) {
             return word == "alibi" ? PositionChange::kAlibi : PositionChange::kKeep;
           });
  add_word(command, "--to", request.container,
           "container to write: safetensors or torch (a directory) or gguf (one file) (default: "
           "the source's, or gguf for an output named .gguf)",
           kContainers);
  add_word(command, "--dtype", request.dtype,
           "store floating-point tensors in this dtype (q8_0: only matrices, only in GGUF)",
           kDtypes);
  add_word(
      command, "--loader", request.loader,
      "Python code written next to the weights, for families whose class in transformers does "
      "not support the result's heads: transformers (for trust_remote_code, also in place of "
      "the model's own code), none, or auto (transformers, if the model has no code of its own)",
      kLoaders);
  command.add_flag("--skip-logits-check", options.skip_logits_check,
                   "do not check by computing that a result in another form gives the same logits");
  command.add_option("--layout", options.layout,
                     "layout file, which describes an architecture that regroup does not support");
}

void add_pooling_options(Command command, ConvertOptions& options) {
  command.begin_group("How heads are pooled");
  command.add_option(
      "--attention", options.attention,
      "encoder-decoders: which attention layers to group, a list of self, cross and encoder");
  add_word(command, "--pool", options.request.pooling.method,
           "how a group of heads becomes one: mean; first or random (one of them); lowrank "
           "(new heads, computed to lose least) (default: mean; with --text, lowrank)",
           {"mean", "first", "random", "lowrank"}, parse_pool_method);
  add_count(command, "--pool-seed", options.request.pooling.seed, "seed of --pool random",
            kAnySeed);
  command
      .add_option(
          "--grouping", options.grouping,
          "which heads share one: contiguous (neighbours), or similar (chosen for the least "
          "loss, and moved next to each other with their query heads)")
      .one_of({"contiguous", "similar"});
  command.add_option(
      "--calibration", options.calibration,
      "statistics of the source made by regroup calibrate: lowrank then minimises the "
      "error on that text");
  command.add_flag("--measure", options.measure,
                   "report the energy that each layer keeps, for any method and in dry runs; needs "
                   "--calibration");
  command.add_flag("--allow-nonfinite", options.request.allow_nonfinite,
                   "pool heads that hold NaN or infinities");
}

void add_budget_options(Command command, ConvertOptions::Budget& options) {
  command.begin_group("Kv heads by layer");
  const auto take_budget = [&options](const std::string& name, const std::string& typed) {
    double number = 0.0;
    const char* last = typed.data() + typed.size();
    const auto [end, fault] = std::from_chars(typed.data(), last, number);
    if (fault == std::errc() && end == last && number > 0.0 && number < 100.0) {
      throw_usage("{}: {} has no unit; a share of the source's cache is {:g}%", name, typed,
                  number < 1.0 ? 100.0 * number : number);
    }
    parse_bytes_or_share(name, typed, kMostTokens);  // the whole is not known yet
    options.budget = typed;
  };
  add_parsed(command, "--kv-budget",
             "instead of --kv-heads: KV cache per token, as a size such as 64KiB or a share of "
             "the source's such as 25%; layers that affect the predictions least keep the "
             "fewest heads",
             kSizeOrShare, take_budget)
      .excludes("--kv-heads");
  command.add_option("--kv-budget-data", options.data,
                     "token file: text to measure the effect of each layer on");
  add_count(command, "--kv-budget-tokens", options.max_tokens, "measure on about this many tokens");
}

void add_text_options(Command command, ConvertOptions::Text& options) {
  command.begin_group("Recovering quality with a text");
  add_text_input(command, options.input,
                 "text files or JSON lines: fit the shared heads to them (lowrank), train the "
                 "attention layers to imitate the source, and "
                 "compare source, mean and result on a part that is held out");
  command
      .add_flag("--sample", options.samples,
                "instead of --text: let the model write the text itself, token by token")
      .excludes("--text");
  command
      .add_option(
          "--effort", options.effort,
          "how much --text and --sample train: quick (on 32k tokens, a sixth of the time), normal "
          "(on 256k), thorough (on 512k, each attention layer by itself first), each on four times "
          "as many for a small encoder, or a number of tokens, such as 4M")
      .value_name("quick|normal|thorough|COUNT");
  add_number(
      command, "--own-text", options.own_share,
      "share of the text that the source writes itself, as chats if its chat template is of a "
      "known form: it keeps abilities that the given text does not show; in the report, 'on own "
      "text' is the KL divergence from the source on such text (default: 0.5; 0 for sources that "
      "do not write text)",
      {0.0, 0.9});
  command.add_flag("--resume", options.resume,
                   "continue a distillation that was stopped; all other options must be the same");
  add_count(
      command, "--distill-steps", options.distill_steps,
      "steps that train all pooled attention layers together to predict what the source predicts "
      "(default: by --effort; 0: none)",
      {0, kMostCount});
  add_number(command, "--distill-lr", options.distill_rate,
             "learning rate of these steps, relative to the size of the weights (default: found by "
             "short trials; for fewer than 128 steps, 0.006)",
             {0.0, 10.0, /*least_allowed=*/false});
  add_number(command, "--distill-attention", options.distill_attention,
             "weight of the relative squared error of each attention layer's output in these steps "
             "(default: 0; for models that cannot predict, 1)",
             {0.0, 1e6});
}

// Options of the steps after pooling.
void add_refit_options(Command command, ConvertOptions::Refit& options) {
  command.begin_group("Refitting each attention layer by itself");
  command
      .add_option(
          "--refit", options.data,
          "token file: after pooling, train each attention layer by itself to reproduce the "
          "output of the source's on this text")
      .excludes("--text");
  add_count(command, "--refit-steps", options.steps,
            "steps for each attention layer (default: 200; with --text, by --effort; 0: none)",
            {0, kMostCount});
  add_count(command, "--refit-batch", options.batch,
            "windows in a step (default: 2; for encoders, 1024 tokens together, at most 16)",
            {1, kMostBatch});
  add_count(command, "--refit-tokens", options.max_tokens,
            "read about this many tokens of the text (default: 131072; with --text, by --effort)");
  add_count(command, "--refit-context", options.context,
            "tokens in a window of text (default: 512, for encoders 128, or the model's positions "
            "if fewer)",
            {2, kMostContext});
  add_number(command, "--refit-lr", options.learning_rate,
             "learning rate of these steps, relative to the size of the weights (default: found "
             "for each attention layer by short trials)",
             {0.0, 10.0, /*least_allowed=*/false});
}

void add_machine_options(Command command, ConvertOptions& options) {
  command.begin_group("Machine");
  add_device_option(command, options.device,
                    "what solving for heads, measuring and training run on: cpu, cuda or cuda:N; "
                    "use cuda with --text if there is a GPU");
  add_threads_option(command, options.threads);
}

}  // namespace

void add_convert_options(Command command, ConvertOptions& options) {
  command.add_option("source", options.source, kModelHelp).required();
  add_counts(command, "--kv-heads", options.request.kv_heads,
             "kv heads to keep: a divisor of the source's kv heads (1 = multi-query), or a "
             "comma-separated list with one per layer",
             {1, kMostHeads});
  add_text_options(command, options.text);
  command.add_flag(kAnyTextOption, options.any_text, kAnyTextHelp);
  add_common_options(command, options);
  add_form_options(command, options);
  add_pooling_options(command, options);
  add_budget_options(command, options.budget);
  add_refit_options(command, options.refit);
  add_machine_options(command, options);
  command.most_used({"--kv-heads", "--text", "--effort", "--device", "--to", "--dry-run"});
}

void add_expand_options(Command command, ConvertOptions& options) {
  command.add_option("source", options.source, kModelHelp).required();
  add_common_options(command, options);
  add_counts(
      command, "--kv-heads", options.request.kv_heads,
      "kv heads to store: a multiple of the model's (the number of query heads gives a plain "
      "MHA model)",
      {1, kMostHeads})
      .required();
  command.most_used({"--kv-heads"});
}

void set_convert_request(ConvertOptions& options) {
  ConversionRequest& request = options.request;
  choose_container(options);
  if (request.kv_heads.empty() && !options.budget.given() && request.target == "same" &&
      request.positions == PositionChange::kKeep && !request.dtype && !request.container &&
      request.loader == LoaderChoice::kAuto) {
    throw_usage(
        "nothing to do: --kv-heads, --kv-budget, --to, --target, --positions, --dtype or --loader "
        "is needed");
  }
  request.roles = parse_roles(options.attention);
}

void set_expand_request(ConvertOptions& options) {
  ConversionRequest& request = options.request;
  if (request.kv_heads.size() != 1) {
    throw_usage("--kv-heads: must be one number for all layers");
  }
  choose_container(options);
  request.target = "expanded";
  request.stored_kv_heads = std::exchange(request.kv_heads, {}).front();
}

// Encoders embed sentences and paragraphs more often than pages.
void choose_windows(const Model& source, ConvertOptions::Refit& options) {
  constexpr std::int64_t kTokensOfEncoders = 1024, kMostOfEncoders = 16;
  const bool encoder = !source.spec.causal;
  if (options.context == 0) {
    options.context = usual_context(source, encoder ? 128 : 512);
  }
  if (options.batch == 0) {
    options.batch =
        encoder ? std::clamp<std::int64_t>(kTokensOfEncoders / options.context, 1, kMostOfEncoders)
                : 2;
  }
}

void check_effects(const ConvertOptions& options, const Model& source, const ConversionPlan& plan) {
  check_name(options.destination, plan.container);
  if (options.given("--max-shard-size") && is_single_file(plan.container)) {
    refuse_without_effect("--max-shard-size", "the result is a single file");
  }
  if (options.command->name() != "convert") {
    return;
  }
  if (options.given("--attention")) {
    check_roles(options, source);
  }
  if (options.request.loader == LoaderChoice::kNone &&
      !has_loader_choice(plan.config_text, plan.target, plan.container)) {
    refuse_without_effect("--loader none", "no code would be written");
  }
  if (options.skip_logits_check && (plan.in_place || plan.request.refiner)) {
    refuse_without_effect("--skip-logits-check",
                          plan.in_place ? "the result keeps the source's form and is not compared"
                                        : "a refitted result is not compared");
  }
  constexpr std::array kOfPooling{"--attention",   "--pool",  "--grouping",
                                  "--calibration", "--refit", "--measure",
                                  "--device",      "--text",  "--sample"};
  for (const char* option : kOfPooling) {
    const bool measures = option == std::string_view("--device") && options.given("--kv-budget");
    if (options.given(option) && !measures && pooled_layers(plan).empty()) {
      refuse_without_effect(option, "no layer gets fewer kv heads");
    }
  }
}

}  // namespace regroup
