#include "cli/report/eval_report.h"

#include <string_view>

#include <fmt/format.h>

#include "cli/shell/table.h"
#include "cli/shell/text.h"
#include "formats/base/json.h"

namespace regroup {
namespace {

// The tokens that the loss is averaged over.
std::string_view text_of(Objective objective) {
  switch (objective) {
    case Objective::kMaskedTokens: return " masked";
    case Objective::kContinuation: return " of second halves";
    case Objective::kSpanCorruption: return " of masked spans";
    case Objective::kTextInfilling: return " of infilled texts";
    case Objective::kNextToken: break;
  }
  return "";
}

Json json_of(const ContextResult& result) {
  if (!result.evaluation) {
    return {{"context", result.context}, {"not_possible", result.obstacle}};
  }
  const auto tokens = static_cast<double>(result.evaluation->tokens);
  return {{"loss", result.evaluation->loss},     {"perplexity", result.evaluation->perplexity},
          {"tokens", result.evaluation->tokens}, {"context", result.context},
          {"seconds", result.seconds},           {"tokens_per_second", tokens / result.seconds}};
}

// For one context, its results are members of the report; for several, they are a list.
Json report_json(const EvalReport& done) {
  Json report = {{"model", done.model},
                 {"data", done.data},
                 {"objective", name_of(done.objective)},
                 {"warnings", done.warnings}};
  if (done.results.size() == 1) {
    report.update(json_of(done.results.front()));
    return report;
  }
  report["contexts"] = Json::array();
  for (const ContextResult& result : done.results) {
    report["contexts"].push_back(json_of(result));
  }
  return report;
}

std::string table_of(const std::vector<ContextResult>& results, const Console& console) {
  Table table;
  for (const char* column : {"context", "loss", "perplexity", "tokens"}) {
    table.add_column(column, Table::Align::kRight);
  }
  std::string obstacles;
  for (const ContextResult& result : results) {
    const std::string context = with_thousands(static_cast<std::uint64_t>(result.context));
    if (!result.evaluation) {
      table.add_row({context, "-", "-", "-"});
      obstacles += fmt::format("\n{}: {}", context, result.obstacle);
      continue;
    }
    table.add_row({context, fmt::format("{:.4f}", result.evaluation->loss),
                   fmt::format("{:#.6g}", result.evaluation->perplexity),
                   with_thousands(static_cast<std::uint64_t>(result.evaluation->tokens))});
  }
  return table.text(console) + obstacles;
}

}  // namespace

void print_eval_report(const EvalReport& done, bool json, const Console& console) {
  if (json) {
    console.print(text_of_json(report_json(done)));
  } else if (done.results.size() > 1) {
    console.print(table_of(done.results, console));
  } else {
    const Evaluation& evaluation = *done.results.front().evaluation;
    console.print(fmt::format(
        "loss        {:.4f} nats per token\nperplexity  {:#.6g}\n"
        "tokens      {}{} in windows of {}",
        evaluation.loss, evaluation.perplexity,
        with_thousands(static_cast<std::uint64_t>(evaluation.tokens)), text_of(done.objective),
        with_thousands(static_cast<std::uint64_t>(done.results.front().context))));
  }
}

}  // namespace regroup
