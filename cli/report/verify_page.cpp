#include "cli/report/verify_page.h"

#include <fmt/format.h>

#include "cli/report/model_page.h"
#include "cli/report/page.h"
#include "cli/report/tensor_report.h"
#include "cli/shell/text.h"
#include "formats/base/printable.h"

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

namespace {

std::string verdict(std::uint64_t differing) {
  return differing == 0 ? "passed" : with_thousands(differing) + " differ";
}

// One row for each kind of check: what was compared, with what, and the outcome.
Table checks_table(const Verification& found) {
  Table table;
  table.add_column("what", Table::Align::kLeft);
  table.add_column("how many", Table::Align::kRight);
  table.add_column("compared with", Table::Align::kLeft);
  table.add_column("verdict", Table::Align::kLeft);
  table.add_row({"copied tensors", with_thousands(found.copied), "the source's, byte for byte",
                 verdict(found.copied_differing)});
  table.add_row({"pooled or moved tensors", with_thousands(found.computed),
                 "those computed again, byte for byte", verdict(found.computed_differing)});
  if (!found.refitted.empty()) {
    table.add_row({"refitted, or solved on a GPU", with_thousands(found.refitted.size()),
                   "the checksums in the result's record, not the source",
                   verdict(found.refitted_differing)});
  }
  const std::uint64_t unexpected = found.tensors.size() - found.copied_differing -
                                   found.computed_differing - found.refitted_differing;
  if (unexpected > 0) {
    table.add_row({"tensors that do not belong there", with_thousands(unexpected), "-", "differ"});
  }
  table.add_row({"config, metadata, slopes", "-", "what the conversion writes",
                 verdict(found.settings.size())});
  return table;
}

void add_verdict(Page& page, const VerifyPage& facts) {
  const Verification& found = facts.found;
  page.begin_section("verdict", "Verdict");
  page.add_verdict(found.passed(),
                   found.passed()
                       ? found.refitted.empty()
                             ? "Passed: the result is what its recorded conversion makes of the "
                               "source."
                             : fmt::format("Passed: the result is as it was written; {} tensors "
                                           "were not computed again from the source.",
                                           with_thousands(found.refitted.size()))
                       : fmt::format("Not what its recorded conversion makes of the source: {}.",
                                     text_of_counts(found.tensors, found.settings)));
  page.add_facts({{"source", facts.source},
                  {"result", facts.result},
                  {"compared", text_of_bytes(found.bytes)}});
  page.add_table(checks_table(found), "What was checked");
  for (const std::string& remark : found.remarks) {
    page.add_paragraph(remark);
  }
}

void add_differences(Page& page, const Verification& found) {
  if (found.passed()) {
    return;
  }
  page.begin_section("differences", "Differences");
  if (!found.tensors.empty()) {
    page.add_table(differences_table(found.tensors),
                   "Tensors: before, as they should be; largest and mean are of the absolute "
                   "difference");
  }
  if (!found.settings.empty()) {
    page.add_table(settings_table(found.settings, 0),
                   "Settings: before, as they should be; after, as they are");
  }
}

void add_logits(Page& page, const LogitsResult& logits) {
  page.begin_section("logits", "Predictions");
  page.add_paragraph(
      "Both models were run on the same tokens. Fewer kv heads change what a model predicts: these "
      "numbers say by how much and are not part of the verdict.");
  page.add_facts(logits_facts(logits));
}

}  // namespace

std::string verify_page(const VerifyPage& facts) {
  Page page(facts.result, "regroup verify");
  add_verdict(page, facts);
  add_differences(page, facts.found);
  if (facts.logits) {
    add_logits(page, *facts.logits);
  }
  add_heads(page, facts.model.summary, facts.model.layers);
  add_provenance(page, facts.model.summary, facts.model.conversion);
  if (facts.model.conversion) {
    add_conversion(page, *facts.model.conversion);
  }
  return page.text();
}

}  // namespace regroup
