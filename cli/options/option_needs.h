// Which options have an effect only beside others: one table for all commands, so that none is
// accepted and then ignored.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace regroup {

/// Options of a command and what at least one of must be there for them to have an effect.
struct OptionNeed {
  std::string_view command;  ///< "convert", "bench train"
  std::string_view options;  ///< "--refit-steps --refit-tokens"
  /// "--refit", given; "--pool=aligned,lowrank", with one of these values, typed or usual.
  std::string_view any_of;
};

std::span<const OptionNeed> option_needs();

/// "--refit, or --pool aligned or lowrank": `any_of` as a sentence has it.
std::string text_of_need(const OptionNeed& need);

/// What an option of that command needs, for its description; empty: nothing.
std::string text_of_needs(std::string_view command, std::string_view option);

/// Throws kUsage for the first option of the command that was named, or of the program, that has an
/// empty value or, by the table, no effect. To be called when the command line has been read.
void check_options(const CLI::App& program);

/// Throws kUsage: `option` was given, and `why` tells by what of the model or the files it is
/// without effect. For what no table knows.
[[noreturn]] void refuse_without_effect(std::string_view option, std::string_view why);

}  // namespace regroup
