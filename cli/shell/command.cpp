#include "cli/shell/command.h"

#include <array>
#include <utility>

#include <CLI/CLI.hpp>

#include "formats/base/printable.h"

namespace regroup {

namespace {

// Names in transformers, Megatron, nanoGPT and llama.cpp, and ours.
constexpr auto kOtherNames = std::to_array<std::pair<std::string_view, std::string_view>>(
    {{"learning-rate", "lr"},
     {"batch-size", "batch"},
     {"micro-batch-size", "batch"},
     {"per-device-train-batch-size", "batch"},
     {"gradient-accumulation-steps", "accumulate"},
     {"max-steps", "steps"},
     {"train-iters", "steps"},
     {"max-iters", "steps"},
     {"seq-length", "context"},
     {"seq-len", "context"},
     {"max-seq-length", "context"},
     {"max-seq-len", "context"},
     {"block-size", "context"},
     {"ctx-size", "context"},
     {"num-key-value-heads", "kv-heads"},
     {"num-groups", "kv-heads"},
     {"method", "pool"},
     {"merge-method", "pool"},
     {"num-kv-heads", "kv-heads"},
     {"num-query-groups", "kv-heads"},
     {"n-kv-heads", "kv-heads"},
     {"n-head-kv", "kv-heads"},
     {"output-dir", "output"},
     {"outfile", "output"},
     {"outtype", "dtype"},
     {"torch-dtype", "dtype"},
     {"bf16", "dtype"},
     {"fp16", "dtype"},
     {"warmup-steps", "warmup"},
     {"lr-scheduler-type", "schedule"},
     {"lr-decay-style", "schedule"},
     {"max-grad-norm", "clip"},
     {"clip-grad", "clip"},
     {"adam-beta1", "beta1"},
     {"adam-beta2", "beta2"},
     {"adam-epsilon", "epsilon"},
     {"adam-eps", "epsilon"},
     {"gradient-checkpointing", "activation-checkpointing"},
     {"resume-from-checkpoint", "resume"},
     {"save-steps", "save-every"},
     {"save-interval", "save-every"},
     {"eval-steps", "eval-every"},
     {"eval-interval", "eval-every"},
     {"tensor-type", "dtype"},
     {"n-gpu-layers", "device"}});

// PyTorch's and llama.cpp's names of dtypes, and ours.
constexpr auto kOtherDtypes =
    std::to_array<std::pair<std::string_view, std::string_view>>({{"float32", "fp32"},
                                                                  {"float16", "fp16"},
                                                                  {"bfloat16", "bf16"},
                                                                  {"f32", "fp32"},
                                                                  {"f16", "fp16"}});

}  // namespace

std::string meant_option(std::string_view typed, const std::vector<std::string>& names) {
  std::string dashed(typed);
  std::replace(dashed.begin(), dashed.end(), '_', '-');
  for (const auto& [other, ours] : kOtherNames) {
    if (dashed == other && std::find(names.begin(), names.end(), ours) != names.end()) {
      return std::string(ours);
    }
  }
  return nearest_name(dashed, names);
}

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  const auto in_our_words = [values](std::string& typed) {
    for (const auto& [other, ours] : kOtherDtypes) {
      if (typed == other && std::find(values.begin(), values.end(), ours) != values.end()) {
        typed = ours;
      }
    }
    return std::string();  // no fault
  };
  option_->transform(CLI::Validator(in_our_words, ""));
  return *this;
}

Option Option::default_text(const std::string& text) {
  option_->default_str(text);
  return *this;
}

Option Option::value_name(const std::string& name) {
  option_->type_name(name);
  return *this;
}

Option Option::excludes(const std::string& other) {
  option_->excludes(other);
  return *this;
}

bool Option::given() const { return option_->count() > 0; }

Command Command::add_command(const std::string& name, const std::string& description) {
  return *app_->add_subcommand(name, description);
}

void Command::ignore_config_file() { app_->allow_config_extras(); }

Option Command::add_option(const std::string& names, std::string& value, const std::string& text) {
  return Option(app_->add_option(names, value, text));
}

Option Command::add_option(const std::string& names, std::filesystem::path& value,
                           const std::string& text) {
  return Option(app_->add_option(names, value, text));
}

Option Command::add_option(const std::string& names, bool& value, const std::string& text) {
  return Option(app_->add_option(names, value, text));
}

Option Command::add_option(const std::string& names, std::vector<std::string>& values,
                           const std::string& text) {
  return Option(app_->add_option(names, values, text));
}

Option Command::add_option(const std::string& names, std::vector<std::filesystem::path>& values,
                           const std::string& text) {
  return Option(app_->add_option(names, values, text));
}

Option Command::add_option(const std::string& names,
                           const std::function<void(const std::string&)>& take,
                           const std::string& text) {
  const CLI::callback_t callback = [take](const CLI::results_t& typed) {
    take(typed.at(0));
    return true;
  };
  return Option(app_->add_option(names, callback, text));
}

Option Command::add_flag(const std::string& names, bool& value, const std::string& text) {
  return Option(app_->add_flag(names, value, text));
}

Option Command::add_flag(const std::string& names, std::string& value, const std::string& text) {
  return Option(app_->add_flag(names, value, text));
}

Option Command::add_flag(const std::string& names, const std::function<void(bool)>& take,
                         const std::string& text) {
  return Option(
      app_->add_flag_function(names, [take](std::int64_t count) { take(count > 0); }, text));
}

void Command::begin_group(const std::string& heading) { app_->option_defaults()->group(heading); }

void Command::most_used(const std::vector<std::string>& options) {
  for (const std::string& option : options) {
    app_->get_option(option)->group(kMostUsed);
  }
}

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::needs_command() { app_->require_subcommand(1); }

void Command::on_run(const std::function<void()>& run) { app_->callback(run); }

std::string Command::name() const { return app_->get_name(); }

bool Command::given(const std::string& option) const { return app_->count(option) > 0; }

}  // namespace regroup
