#include "cli/shell/command.h"

#include <array>

#include <CLI/CLI.hpp>

#include "cli/shell/text.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

// Options in transformers, Megatron, nanoGPT and llama.cpp.
constexpr auto kOtherOptions = std::to_array<OtherWords>(
    {{"lr", "learning-rate"},
     {"distill-lr", "learning-rate lr"},
     {"batch", "batch-size micro-batch-size per-device-train-batch-size"},
     {"accumulate", "gradient-accumulation-steps"},
     {"steps", "max-steps train-iters max-iters"},
     {"context", "seq-length seq-len max-seq-length max-seq-len block-size ctx-size"},
     {"kv-heads",
      "num-key-value-heads num-groups num-kv-heads num-query-groups n-kv-heads n-head-kv gqa "
      "groups num-kv-groups"},
     {"pool", "method merge-method"},
     {"output", "output-dir out-dir out outfile save-path"},
     {"tokens", "max-tokens max-new-tokens n-predict"},
     {"text", "dataset train-file dataset-path"},
     {"dtype", "outtype torch-dtype tensor-type bf16 fp16 precision"},
     {"warmup", "warmup-steps"},
     {"schedule", "lr-scheduler-type lr-decay-style"},
     {"clip", "max-grad-norm clip-grad"},
     {"beta1", "adam-beta1"},
     {"beta2", "adam-beta2"},
     {"epsilon", "adam-epsilon adam-eps"},
     {"activation-checkpointing", "gradient-checkpointing"},
     {"resume", "resume-from-checkpoint"},
     {"save-every", "save-steps save-interval"},
     {"eval-every", "eval-steps eval-interval"},
     {"device", "n-gpu-layers"}});

// Dtypes in PyTorch and llama.cpp, and other names of containers.
constexpr auto kOtherValues = std::to_array<OtherWords>({{"fp32", "float32 f32"},
                                                         {"fp16", "float16 f16"},
                                                         {"bf16", "bfloat16"},
                                                         {"safetensors", "hf huggingface"},
                                                         {"torch", "pytorch bin"}});

}  // namespace

std::string our_word(std::span<const OtherWords> table, std::string_view word,
                     const std::vector<std::string>& ours) {
  const auto known = std::ranges::find_if(table, [&](const OtherWords& row) {
    return contains(split(row.theirs, ' '), word) && contains(ours, row.ours);
  });
  return known == table.end() ? "" : std::string(known->ours);
}

std::string meant_option(std::string_view typed, const std::vector<std::string>& names) {
  std::string dashed(typed);
  std::ranges::replace(dashed, '_', '-');
  const std::string known = our_word(kOtherOptions, dashed, names);
  return known.empty() ? nearest_name(dashed, names) : known;
}

std::vector<std::string> commands_in(const CLI::App& app) {
  return mapped(app.get_subcommands([](const CLI::App*) { return true; }), &CLI::App::get_name);
}

CLI::App* command_named(const CLI::App& app, const std::string& name) {
  return contains(commands_in(app), name) ? app.get_subcommand(name) : nullptr;
}

std::string path_of(const CLI::App& command) {
  const CLI::App* group = command.get_parent();
  const std::string words = group == nullptr ? "" : path_of(*group);
  return group == nullptr ? "" : words + (words.empty() ? "" : " ") + command.get_name();
}

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
  const auto in_our_words = [values](std::string& typed) {
    const std::string known = our_word(kOtherValues, typed, values);
    typed = known.empty() ? typed : known;
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

Command Command::add_command(const std::string& name, const std::string& description) {
  return *app_->add_subcommand(name, description);
}

void Command::ignore_config_file() { app_->allow_config_extras(); }

template <typename Value>
Option Command::add_option(const std::string& names, Value& value, const std::string& text) {
  return Option(app_->add_option(names, value, text));
}

template Option Command::add_option(const std::string&, std::string&, const std::string&);
template Option Command::add_option(const std::string&, std::filesystem::path&, const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::string>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, std::vector<std::filesystem::path>&,
                                    const std::string&);
template Option Command::add_option(const std::string&, bool&, const std::string&);

Option Command::add_value(const std::string& names,
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

Option Command::add_flag(const std::string& names, std::optional<bool>& value,
                         const std::string& text) {
  const auto take = [&value](std::int64_t count) { value = count > 0; };
  return Option(app_->add_flag_function(names, take, text));
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
