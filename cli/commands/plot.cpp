// regroup plot RUN... -o FILE
#include "cli/commands/commands.h"
#include "cli/report/page.h"
#include "cli/report/training_charts.h"
#include "cli/shell/option_needs.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

struct PlotOptions {
  std::vector<std::string> runs;
  std::string output;
  std::string chart;
};

// The name of a run in charts: OUTPUT for OUTPUT.run.
std::string name_of_run(const fs::path& path) {
  const fs::path whole = path.has_filename() ? path : path.parent_path();
  const fs::path name = whole.filename() == "metrics.jsonl" ? whole.parent_path() : whole;
  return name.extension() == ".run" ? name.stem().string() : name.filename().string();
}

void run_plot(const PlotOptions& options, const Console& console) {
  const std::string extension = fs::path(options.output).extension().string();
  if (extension == ".html" && !options.chart.empty()) {
    refuse_without_effect("--chart", "a page has all charts");
  }
  if (extension != ".svg" && extension != ".html") {
    throw_usage("--output: {}: the name must end in .svg (one chart) or .html (all charts)",
                printable(options.output, 0));
  }
  // A run's directory, its metrics, or its output.
  const auto runs = mapped(options.runs, [](const fs::path& run) -> NamedCurve {
    return {name_of_run(run), read_training_curve(run_directory_of(run).value_or(run))};
  });
  const std::vector<Chart> charts = training_charts(runs);
  if (extension == ".html") {
    Page page(runs.size() == 1 ? runs.front().name : "Training runs", "regroup plot");
    page.begin_section("training", "Training");
    page.add_charts(charts);
    write_page(options.output, page.text(), console);
    return;
  }
  const std::string wanted = options.chart.empty() ? "loss" : options.chart;
  const auto chart = std::ranges::find(charts, wanted, &Chart::id);
  if (chart == charts.end()) {
    throw_bad_input("--chart {}: no run has recorded it", wanted);
  }
  write_page(options.output, svg_document(*chart), console);
}

}  // namespace

void add_plot_command(Command program, Console& console) {
  auto options = std::make_shared<PlotOptions>();
  Command command =
      program.add_command("plot", "Draw the curves of several training runs in one chart");
  command
      .add_option("runs", options->runs,
                  "outputs of uptrain, their OUTPUT.run directories, or metrics.jsonl files")
      .required();
  command
      .add_option("-o,--output", options->output,
                  "file to make: .svg for one chart, .html for a page of all")
      .required();
  command.add_option("--chart", options->chart, "for .svg: which chart (default: loss)")
      .one_of({"loss", "learning-rate", "gradient-norm", "speed"});
  command.footer("Example: regroup plot Llama-2-7b-gqa8-up Llama-2-7b-gqa4-up -o curves.svg");
  command.on_run([options, &console] { run_plot(*options, console); });
}

}  // namespace regroup
