#include "cli/report/held_out_report.h"

#include <cmath>

#include <fmt/format.h>

#include "cli/terminal/table.h"
#include "cli/terminal/text.h"

namespace regroup {

Json held_out_json(const HeldOutReport& report) {
  Json models = Json::array();
  for (const HeldOutRow& row : report.rows) {
    models.push_back({{"model", row.model},
                      {"loss", row.loss ? Json(*row.loss) : Json()},
                      {"cosine", row.cosine}});
  }
  return {{"tokens", report.tokens}, {"context", report.context}, {"models", models}};
}

std::string held_out_table(const HeldOutReport& report, const Console& console) {
  const bool predicts = report.rows.front().loss.has_value();
  Table table;
  table.add_column("model", Table::Align::kLeft);
  if (predicts) {
    table.add_column("loss", Table::Align::kRight);
    table.add_column("perplexity", Table::Align::kRight);
  }
  table.add_column("cosine to source", Table::Align::kRight);
  for (const HeldOutRow& row : report.rows) {
    std::vector<std::string> cells{row.model};
    if (row.loss) {
      cells.push_back(fmt::format("{:.3f}", *row.loss));
      cells.push_back(fmt::format("{:.4g}", std::exp(*row.loss)));
    }
    cells.push_back(fmt::format("{:.3f}", row.cosine));
    table.add_row(cells);
  }
  return fmt::format("on {} tokens of the text that the conversion did not use, {} at a time:\n{}",
                     with_thousands(static_cast<std::uint64_t>(report.tokens)), report.context,
                     table.text(console));
}

}  // namespace regroup
