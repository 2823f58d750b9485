#include "cli/pages/diff_page.h"

#include <fmt/format.h>

#include "cli/page/page.h"
#include "cli/report/difference_report.h"

namespace regroup {

std::string diff_page(const DiffPage& facts) {
  Page page(fmt::format("{} and {}", facts.before, facts.after), "regroup diff");
  const bool same = facts.tensors.empty() && facts.settings.empty();
  page.begin_section("summary", "Summary");
  page.add_verdict(
      same, same ? "No difference."
                 : fmt::format("They differ: {}.", text_of_counts(facts.tensors, facts.settings)));
  page.add_facts({{"before", facts.before}, {"after", facts.after}});
  if (!facts.tensors.empty()) {
    page.begin_section("tensors", "Tensors");
    page.add_table(differences_table(facts.tensors),
                   "Tensors that differ; largest and mean are of the absolute difference");
  }
  if (!facts.settings.empty()) {
    page.begin_section("settings", "Settings");
    page.add_table(settings_table(facts.settings, 0), "Settings that differ");
  }
  return page.text();
}

}  // namespace regroup
