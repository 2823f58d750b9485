#include "cli/shell/command.h"

#include <CLI/CLI.hpp>

namespace regroup {

Option Option::required() {
  option_->required();
  return *this;
}

Option Option::one_of(const std::vector<std::string>& values) {
  option_->check(CLI::IsMember(values));
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

void Command::footer(const std::string& text) { app_->footer(text); }

void Command::needs_command() { app_->require_subcommand(1); }

void Command::on_run(const std::function<void()>& run) { app_->callback(run); }

std::string Command::name() const { return app_->get_name(); }

bool Command::given(const std::string& option) const { return app_->count(option) > 0; }

}  // namespace regroup
