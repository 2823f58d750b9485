// Rules for every option of every command, checked on all of them.
#include "cli/commands/command_line.h"

#include <iterator>
#include <regex>
#include <set>
#include <sstream>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>
#include <fmt/format.h>

#include "cli/shell/option_needs.h"
#include "cli/shell/quantity.h"
#include "cli/shell/text.h"
#include "tests/cli/commands/whole_program.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

const std::set<std::string> kNumeric{kCount, kCounts, kNumber, kSize, kSizeOrShare, kRate};

// Calls `visit` with each command and each of its options that takes a value.
template <typename Visit>
void for_all_options(const Visit& visit) {
  const CommandFacts program = WholeProgram().facts();
  for (const CommandFacts& command : whole_commands(program)) {
    for (const OptionFacts& option : command.options) {
      if (!option.value.empty()) {
        visit(command, option);
      }
    }
  }
}

std::string refusal_of_value(const CommandFacts& command, const OptionFacts& option,
                             const std::string& value) {
  std::vector<std::string> words = words_of(command.name);
  words.push_back(option.names.front() + "=" + value);
  return refusal_of_words(words);
}

constexpr const char* kNoNumber[] = {"-1",
                                     "99999999999999999999",
                                     "-99999999999999999999",
                                     "18446744073709551616",
                                     "1e400",
                                     "1e99",
                                     "nan",
                                     "inf",
                                     "-inf",
                                     "infinity",
                                     "12abc",
                                     "abc",
                                     "0x10",
                                     " 5",
                                     "5 ",
                                     "+5",
                                     "5,",
                                     "1_000",
                                     "1,000,",
                                     "k",
                                     "99999999999999999999k",
                                     "\xd9\xa3",
                                     "--",
                                     "5%5",
                                     "-5%",
                                     "nan%",
                                     "1e30%",
                                     "9999999TiB"};

TEST_CASE("numeric options refuse junk and numbers out of range", "[cli]") {
  int tried = 0;
  for_all_options([&](const CommandFacts& command, const OptionFacts& option) {
    if (!kNumeric.contains(option.value)) {
      return;
    }
    ++tried;
    for (const char* value : kNoNumber) {
      CAPTURE(command.name, option.names.front(), value);
      const std::string refusal = refusal_of_value(command, option, value);
      CHECK_THAT(refusal, ContainsSubstring(option.names.front()));
      CHECK_THAT(refusal, ContainsSubstring("\"") && !ContainsSubstring("required"));
    }
  });
  CHECK(tried > 20);
}

TEST_CASE("a count out of range is refused with the range in grouped digits", "[cli]") {
  for_all_options([&](const CommandFacts& command, const OptionFacts& option) {
    if (option.value == kCount || option.value == kCounts) {
      CAPTURE(command.name, option.names.front());
      const std::string refusal = refusal_of_value(command, option, "99999999999999999999");
      CHECK_THAT(refusal,
                 ContainsSubstring("\"99999999999999999999\" is not a whole number from "));
      CHECK_THAT(refusal, ContainsSubstring(","));
    }
  });
  CHECK_THAT(refusal_of_words({"tokenize", "--threads=100000"}),
             ContainsSubstring("--threads: \"100000\" is not a whole number from 1 to 1,024"));
}

TEST_CASE("every count accepts k and every size needs a unit", "[cli]") {
  for_all_options([&](const CommandFacts& command, const OptionFacts& option) {
    CAPTURE(command.name, option.names.front());
    if (option.value == kCount || option.value == kCounts) {
      CHECK_THAT(refusal_of_value(command, option, "1k"), !ContainsSubstring("not a whole number"));
    } else if (option.value == kSize || option.value == kSizeOrShare) {
      CHECK_THAT(refusal_of_value(command, option, "24"),
                 ContainsSubstring(option.value == kSize ? "24GiB" : "24%"));
      CHECK_THAT(refusal_of_value(command, option, "24G"),
                 ContainsSubstring("24GiB") && ContainsSubstring("24GB"));
      CHECK_THAT(refusal_of_value(command, option, "24GiB"), !ContainsSubstring("24GiB"));
    } else if (option.value == kRate) {
      CHECK_THAT(refusal_of_value(command, option, "24GiB"), ContainsSubstring("TB/s"));
    }
  });
}

TEST_CASE("help shows every option once, in its columns, and says which are required", "[cli]") {
  const CommandFacts program = WholeProgram().facts();
  const std::size_t columns = GENERATE(80, 60);
  for (const CommandFacts& command : whole_commands(program)) {
    const std::string help = help_text(command, "regroup " + command.name, columns);
    CAPTURE(help);
    std::istringstream lines(help);
    for (std::string line; std::getline(lines, line);) {
      CHECK(width_of(line) <= columns);
    }
    for (const OptionFacts& option : command.options) {
      const std::string name = option.names.front();
      CAPTURE(name);
      if (!option.positional) {
        const std::regex entry("\n  " + name + "[ ,\n]");
        CHECK(std::distance(std::sregex_iterator(help.begin(), help.end(), entry), {}) == 1);
        const bool in_usage = usage_of(command, command.name).find(" " + name + " ") != name.npos;
        CHECK(in_usage == option.required);
      }
      CHECK_THAT(help, !ContainsSubstring("REQUIRED") && !ContainsSubstring("Excludes"));
    }
  }
}

TEST_CASE("convert's help begins with what most people need", "[cli]") {
  for (const CommandFacts& command : whole_commands(WholeProgram().facts())) {
    if (command.name == "convert") {
      const std::string help = help_text(command, "regroup convert");
      CHECK_THAT(help, ContainsSubstring("Usage: regroup convert SOURCE OUTPUT [OPTIONS]"));
      CHECK(help.find("--kv-heads") < help.find("How heads are pooled:"));
      CHECK_THAT(help, ContainsSubstring("--to gguf|safetensors|torch"));
      CHECK_THAT(help, ContainsSubstring("(not with --kv-heads)"));
    }
  }
}

TEST_CASE("names that other tools give an option are understood", "[cli]") {
  const std::vector<std::string> ours{"lr", "batch", "accumulate", "kv-heads", "steps", "seed"};
  CHECK(meant_option("learning_rate", ours) == "lr");
  CHECK(meant_option("per_device_train_batch_size", ours) == "batch");
  CHECK(meant_option("gradient-accumulation-steps", ours) == "accumulate");
  CHECK(meant_option("num_key_value_heads", ours) == "kv-heads");
  CHECK(meant_option("sed", ours) == "seed");
  CHECK(meant_option("warmup_steps", ours) != "warmup");  // not an option here
  CHECK(meant_option("frobnicate", ours).empty());
}

TEST_CASE("no option uses the number types of CLI11", "[cli]") {
  for_all_options([&](const CommandFacts& command, const OptionFacts& option) {
    CAPTURE(command.name, option.names.front(), option.value);
    for (const char* type : {"INT", "UINT", "FLOAT", "ENUM"}) {
      CHECK_FALSE(option.value.starts_with(type));
    }
  });
}

TEST_CASE("no option accepts an empty value", "[cli]") {
  const CommandFacts program = WholeProgram().facts();
  for (const CommandFacts& command : whole_commands(program)) {
    for (const OptionFacts& option : command.options) {
      if (option.value.empty() || option.positional) {
        continue;
      }
      CAPTURE(command.name, option.names.front());
      std::vector<std::string> words = with_required(command);
      words.push_back(option.names.front());
      words.emplace_back();
      CHECK_THAT(refusal_of_words(words), ContainsSubstring(option.names.front()));
    }
  }
}

TEST_CASE("no option takes the next option for its value", "[cli]") {
  const CommandFacts program = WholeProgram().facts();
  for (const CommandFacts& command : whole_commands(program)) {
    for (const OptionFacts& option : command.options) {
      for (const std::string& name : option.names) {
        if (option.positional) {
          continue;
        }
        CAPTURE(command.name, name);
        const auto refusal = [&](std::vector<std::string> more) {
          std::vector<std::string> words = with_required(command);
          words.insert(words.end(), more.begin(), more.end());
          return refusal_of_words(words);
        };
        CHECK(refusal({name + "=", "--quiet"}) == name + ": an empty value");
        if (option.value.empty()) {
          continue;
        }
        for (const char* next : {"--quiet", "-q", "--not-an-option", "--"}) {
          CHECK_THAT(refusal({name, next}),
                     ContainsSubstring(fmt::format("{} needs a value, not {}", name, next)));
        }
        CHECK_THAT(refusal({name + "=--quiet"}), !ContainsSubstring("needs a value"));
        if (!name.starts_with("--")) {
          CHECK_THAT(refusal({name + "=x"}), ContainsSubstring("write " + name + " x"));
        }
      }
    }
  }
}

// A value that the option accepts.
std::string some_value(const OptionFacts& option) {
  return !option.choices.empty()                                 ? option.choices.front()
         : option.value == kSize || option.value == kSizeOrShare ? "1GiB"
         : option.value == kRate                                 ? "1GB/s"
         : option.value == kNumber                               ? "0.5"
         : option.value == kCount || option.value == kCounts     ? "2"
         : option.value.find('|') != option.value.npos  // "cpu|cuda"
             ? option.value.substr(0, option.value.find('|'))
             : "1";
}

const CommandFacts* command_named(const std::vector<CommandFacts>& commands,
                                  std::string_view name) {
  const auto found = std::find_if(commands.begin(), commands.end(),
                                  [&](const CommandFacts& each) { return each.name == name; });
  return found == commands.end() ? nullptr : &*found;
}

const OptionFacts* option_named(const CommandFacts& command, std::string_view name) {
  for (const OptionFacts& option : command.options) {
    if (std::find(option.names.begin(), option.names.end(), name) != option.names.end()) {
      return &option;
    }
  }
  return nullptr;
}

void add_option(std::vector<std::string>& words, const OptionFacts& option,
                const std::string& value) {
  if (std::find(words.begin(), words.end(), option.names.front()) != words.end()) {
    return;  // it was added as a required option
  }
  words.push_back(option.names.front());
  if (!option.value.empty()) {
    words.push_back(value.empty() ? some_value(option) : value);
  }
}

// The first alternative of a row: its option and value.
std::pair<std::string, std::string> first_condition(const OptionNeed& need) {
  const std::string first = words_of(std::string(need.any_of)).front();
  const std::size_t equals = first.find('=');
  return equals == first.npos ? std::pair{first, std::string()}
                              : std::pair{first.substr(0, equals),
                                          first.substr(equals + 1, first.find(',') - equals - 1)};
}

// A value that satisfies no row of the table.
std::string other_value(const OptionFacts& option, const OptionNeed& need) {
  for (const std::string& choice : option.choices) {
    if (std::string(need.any_of).find(choice) == std::string::npos) {
      return choice;
    }
  }
  return "";
}

TEST_CASE("options without effect are refused and accepted with the options that they need",
          "[cli]") {
  const auto commands = whole_commands(WholeProgram().facts());
  for (const OptionNeed& need : option_needs()) {
    const CommandFacts* command = command_named(commands, need.command);
    if (command == nullptr) {
      CHECK(needs_whole_program(words_of(std::string(need.command)).front()));
      continue;  // built without LibTorch
    }
    for (const std::string& name : words_of(std::string(need.options))) {
      CAPTURE(need.command, name, need.any_of);
      const OptionFacts* option = option_named(*command, name);
      REQUIRE(option != nullptr);
      const auto [wanted, value] = first_condition(need);
      const OptionFacts* condition = option_named(*command, wanted);
      REQUIRE(condition != nullptr);
      CHECK_FALSE(option->needs.empty());

      auto without = with_required(*command);
      if (command->name == "convert" && need.any_of.find("--kv-heads") == need.any_of.npos) {
        // Otherwise the need of --kv-heads would be reported.
        without.insert(without.end(), {"--kv-heads", "1"});
      }
      add_option(without, *option, "");
      if (!value.empty()) {  // otherwise the usual value might be the needed one
        add_option(without, *condition, other_value(*condition, need));
      }
      CHECK_THAT(refusal_of_words(without),
                 ContainsSubstring(name + " has no effect without " + text_of_need(need)));

      auto beside = with_required(*command);
      add_option(beside, *option, "");
      add_option(beside, *condition, value);
      CHECK_THAT(refusal_of_words(beside), !ContainsSubstring(name + " has no effect"));
    }
  }
}

TEST_CASE("an option described as belonging to another has a row in the table of needs", "[cli]") {
  for_all_options([&](const CommandFacts& command, const OptionFacts& option) {
    CAPTURE(command.name, option.names.front(), option.description);
    if (option.description.starts_with("with --")) {
      CHECK_FALSE(option.needs.empty());
    }
  });
}

TEST_CASE("options with the same meaning have the same name in every command", "[cli]") {
  const CommandFacts program = WholeProgram().facts();
  for (const CommandFacts& command : whole_commands(program)) {
    std::set<std::string> names;
    for (const OptionFacts& option : command.options) {
      names.insert(option.names.begin(), option.names.end());
    }
    CAPTURE(command.name);
    CHECK(names.contains("-o") == names.contains("--output"));
    CHECK((!names.contains("output") || names.contains("--output")));
    CHECK_FALSE(names.contains("destination"));
    CHECK((!names.contains("--sequence") || names.contains("--context")));
  }
  // --layout is always the layout of a model, and --logits always a flag.
  for_all_options([&](const CommandFacts& command, const OptionFacts& option) {
    CAPTURE(command.name);
    if (option.names.front() == "--layout") {
      CHECK_THAT(option.description, ContainsSubstring("architecture"));
    }
    CHECK(option.names.front() != "--logits");  // a flag
  });
}

}  // namespace
}  // namespace regroup
