// Which options have an effect only together with others: one table for all commands, so that no
// option is accepted and then ignored.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace regroup {

/// Options of a command that have an effect only if one of the conditions in `any_of` holds.
struct OptionNeed {
  std::string_view command;  ///< "convert", "bench train"
  std::string_view options;  ///< "--refit-steps --refit-tokens"
  /// "--refit": the option is given; "--schedule=cosine,wsd": the option has one of these values,
  /// typed or by default.
  std::string_view any_of;
};

std::span<const OptionNeed> option_needs();

/// `any_of` in words: "--refit, or --pool lowrank".
std::string text_of_need(const OptionNeed& need);

/// What an option of that command needs, for its description; empty if it needs nothing.
std::string text_of_needs(std::string_view command, std::string_view option);

/// Throws kUsage for the first option, of the program or of the named command, that has an empty
/// value or (by the table) no effect. Call it after the command line is parsed.
void check_options(const CLI::App& program);

/// Throws kUsage for an option that has no effect on the given model or files, which the table
/// cannot tell. `why` is the reason.
[[noreturn]] void refuse_without_effect(std::string_view option, std::string_view why);

}  // namespace regroup
