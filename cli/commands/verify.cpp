// regroup verify SRC DST
#include "cli/commands/commands.h"
#include "cli/measure/compute_functions.h"
#include "cli/report/pages.h"
#include "cli/shell/compute_program.h"
#include "cli/shell/option_needs.h"
#include "converter/convert/verify_conversion.h"

namespace regroup {
namespace {

struct VerifyOptions {
  std::string source;
  std::string result;
  std::string calibration;
  std::string layout;
  LogitsOptions logits;
  bool json = false;
  std::string html;
};

void print_json(const VerifyOptions& options, const std::optional<Verification>& found,
                const std::optional<LogitsResult>& logits, const Console& console) {
  Json report{{"source", options.source}, {"result", options.result}, {"passed", nullptr}};
  if (found) {
    report.update({{"passed", found->passed()},
                   {"copied_tensors", found->copied},
                   {"computed_tensors", found->computed},
                   {"trained_tensors", found->trained},
                   {"remarks", found->remarks},
                   {"bytes", found->bytes},
                   {"tensors", differences_json(found->tensors)},
                   {"settings", settings_json(found->settings)}});
  }
  if (options.logits.enabled) {
    report["logits"] = logits ? logits_json(*logits) : Json(nullptr);
  }
  console.print(text_of_json(report));
}

void print_text(const Verification& found, const Console& console) {
  print_differences(found.tensors, found.settings, console);
  if (found.passed()) {
    const std::size_t written = found.trained.size();
    console.print_facts(
        fmt::format(
            "verified: {} tensors equal the source's{}{} ({}); the settings agree",
            with_thousands(found.copied),
            found.computed > 0 || written == 0
                ? fmt::format(", {} equal those computed again", with_thousands(found.computed))
                : "",
            written > 0
                ? fmt::format(", {} match the checksums in the result's record, because they "
                              "cannot be computed again (trained, or solved on a GPU or from "
                              "statistics that were not kept)",
                              with_thousands(written))
                : "",
            text_of_bytes(found.bytes)),
        2);
  }
  console.notes("note", found.remarks);
}

// The page shows the checks, and the result as inspect does.
void put_page(const VerifyOptions& options, const Verification* found,
              const std::optional<LogitsResult>& logits, const Model& result,
              const Console& console) {
  const ModelSummary summary = summarize_model(options.result, result.checkpoint, options.layout);
  ModelPage model{.summary = summary};
  if (summary.spec) {
    model.layers = summarize_layers(*summary.spec, result.checkpoint);
  }
  model.conversion = measurements_in(result.config, options.result);
  write_page(options.html, verify_page({options.source, options.result, found, logits, model}),
             console);
}

// A result that lacks tensors cannot be run. verify() has already found that, so the comparison of
// logits is skipped with a note.
std::optional<LogitsResult> compare_logits(const VerifyOptions& options, const Model& source,
                                           const Model& result, bool passed,
                                           const Console& console) {
  if (!options.logits.enabled) {
    return std::nullopt;
  }
  try {
    return compute_for("--logits").measure_logits(options.logits, source, result, console);
  } catch (const Error& fault) {
    if (passed || fault.kind() != ErrorKind::kBadInput) {
      throw;
    }
    console.note(fmt::format("note: logits were not compared: {}", fault.what()));
    return std::nullopt;
  }
}

// The conversion computed again and compared. None if the result was trained since and only its
// predictions are wanted.
std::optional<Verification> verify(const VerifyOptions& options, const Model& source,
                                   const Model& result, const Console& console) {
  if (options.logits.enabled && record_of(result).trained()) {
    if (!options.calibration.empty()) {
      refuse_without_effect("--calibration", "the result was trained after its conversion");
    }
    console.note(
        "note: the result was trained after its conversion: only its predictions are compared");
    return std::nullopt;
  }
  const ConversionRequest request =
      recorded_request(source, result, open_calibration(options.calibration, source));
  if (!options.calibration.empty() && !request.calibration) {
    refuse_without_effect("--calibration", "the conversion was made without one");
  }
  if (needs_solver(request.pooling.method)) {
    exec_compute();
  }
  const ConversionPlan plan = plan_conversion(source, request);
  Progress progress(console, "verify", plan.output_bytes, "bytes");
  Verification found =
      verify_conversion(plan, source, result, [&](std::uint64_t bytes, std::string_view tensor) {
        throw_if_stopped(interrupt_requested(), "interrupted");
        progress.update(bytes, printable(tensor, 60));
      });
  progress.finish();
  return found;
}

void run_verify(const VerifyOptions& options, const Console& console) {
  check_page_path(options.html);
  if (options.logits.enabled) {
    exec_compute();
  }
  const Model source = open_model(options.source, {.layout = options.layout});
  const Model result = open_model(options.result, {.layout = options.layout});
  if (options.logits.enabled) {
    compute_for("--logits").check_logits_options(options.logits, source, result);
  }
  const std::optional<Verification> found = verify(options, source, result, console);
  const bool passed = !found || found->passed();
  const auto logits = compare_logits(options, source, result, passed, console);
  if (options.json) {
    print_json(options, found, logits, console);
  } else if (found) {
    print_text(*found, console);
  }
  if (!options.json && logits) {
    console.print(text_of_facts(logits_facts(*logits), 19));
  }
  if (!options.html.empty()) {
    put_page(options, found ? &*found : nullptr, logits, result, console);
  }
  if (!passed) {
    throw Error(ErrorKind::kDifference,
                fmt::format("{} is not what its recorded conversion makes of {}: {}",
                            printable(options.result, 0), printable(options.source, 0),
                            text_of_counts(found->tensors, found->settings)));
  }
}

}  // namespace

void add_verify_command(Command program, Console& console) {
  auto options = std::make_shared<VerifyOptions>();
  Command command = program.add_command(
      "verify", "Check a result: compute its recorded conversion again and compare");
  command.add_option("source", options->source, "the model that was converted").required();
  command.add_option("result", options->result, "what it was converted into").required();
  command.add_option("--calibration", options->calibration,
                     "statistics that the conversion used, if any");
  command.add_option("--layout", options->layout,
                     "layout file, which describes an architecture that regroup does not support");
  add_logits_options(command, options->logits);
  command.add_flag("--json", options->json, "report as JSON");
  command.add_option("--html", options->html, "write the report as a page to this file");
  command.footer(
      "Examples: regroup verify Llama-2-7b-hf Llama-2-7b-gqa8\n"
      "          regroup verify Llama-2-7b-hf Llama-2-7b-gqa8 --logits --data held-out.bin --html "
      "v.html\n"
      "Untouched tensors are compared with the source's; pooled and reordered ones, config,\n"
      "slopes and metadata with a conversion computed again. Exits with 5 if anything differs.\n"
      "Tensors that were trained, or solved on a GPU or from statistics that were not kept,\n"
      "cannot be computed again and are compared with the checksums recorded when they were\n"
      "written. --logits only reports: fewer kv heads do change what a model predicts. Of a\n"
      "result that was trained since, nothing else is compared.");
  command.on_run([options, &console] { run_verify(*options, console); });
}

}  // namespace regroup
