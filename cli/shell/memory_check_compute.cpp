#include "cli/shell/memory_check.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/shell/command.h"
#include "cli/shell/text.h"
#include "formats/base/error.h"

namespace regroup {
namespace {

// "--train kv (12.1 GiB), --dtype bf16 (9.8 GiB)".
std::string list_of(const std::vector<LeanerRun>& runs) {
  std::vector<std::string> texts;
  for (const LeanerRun& run : runs) {
    texts.push_back(fmt::format("{} ({})", run.options, text_of_bytes(run.bytes)));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

std::string advice(double available, const std::vector<LeanerRun>& leaner) {
  if (leaner.empty()) {
    return "no option reduces it";
  }
  return leaner.front().bytes <= available ? fmt::format("these options fit: {}", list_of(leaner))
                                           : fmt::format("even {} do not fit", list_of(leaner));
}

}  // namespace

void MemoryCheck::add_to(Command command) {
  command
      .add_option("--memory-check", mode_,
                  "on: refuse to start if the estimate exceeds the free memory; off: start anyway")
      .one_of({"on", "off"});
}

void MemoryCheck::apply(const std::optional<MemoryShortage>& shortage, bool dry_run,
                        const Console& console) const {
  if (!shortage) {
    return;
  }
  const std::string text =
      fmt::format("training needs about {} of memory, {} are free on {}; {}",
                  text_of_bytes(shortage->needed), text_of_bytes(shortage->available),
                  shortage->where.str(), advice(shortage->available, shortage->leaner));
  if (!dry_run && mode_ == "on") {
    throw_environment("{}; --memory-check off starts anyway", text);
  }
  console.note("warning: " + text);
}

}  // namespace regroup
