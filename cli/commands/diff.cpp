// regroup diff A B
#include <fnmatch.h>
#include <set>

#include "cli/commands/commands.h"
#include "cli/report/pages.h"
#include "formats/base/ranges.h"
#include "formats/model/conversion_record.h"
#include "formats/model/model_directory.h"
#include "formats/tensors/gguf.h"

namespace regroup {
namespace {

struct DiffOptions {
  std::string before;
  std::string after;
  std::string filter = "*";
  bool json = false;
  std::string html;
};

std::vector<TensorDifference> compare(const Checkpoint& before, const Checkpoint& after,
                                      const DiffOptions& options, const Console& console) {
  const auto chosen = [&](const std::string& name) {
    return ::fnmatch(options.filter.c_str(), name.c_str(), FNM_NOESCAPE) == 0;
  };
  std::uint64_t total = 0;
  for (const TensorInfo& tensor : before.tensors()) {
    total += chosen(tensor.name) ? tensor.bytes() : 0;
  }
  const bool any_after = std::ranges::any_of(after.tensors(), chosen, &TensorInfo::name);
  if (!any_after) {
    chosen_tensors(before, {.filter = options.filter});  // throws if it has none either
  }
  Progress progress(console, "compare", total, "bytes");
  auto found =
      differences_between(before, after, chosen, [&](std::uint64_t bytes, std::string_view tensor) {
        throw_if_stopped(interrupt_requested(), "interrupted");
        progress.update(bytes, printable(tensor, 60));
      });
  progress.finish();
  return found;
}

// Compares configs and metadata if both checkpoints have them. Metadata of GGUF files is part of
// their settings already.
std::vector<JsonDifference> compare_settings(const Checkpoint& before, const Checkpoint& after,
                                             const DiffOptions& options) {
  const Json a = settings_of(options.before), b = settings_of(options.after);
  std::vector<JsonDifference> found;
  if (!a.empty() && !b.empty()) {
    found = differences_between(a, b);
  }
  const bool no_gguf = !is_gguf_file(resolve_weights_path(options.before)) &&
                       !is_gguf_file(resolve_weights_path(options.after));
  if (no_gguf && !before.metadata().empty() && !after.metadata().empty()) {
    append(found,
           differences_between(Json(before.metadata()), Json(after.metadata()), "__metadata__"));
  }
  return found;
}

// The fact of a conversion's record that `path` belongs to ("held_out" of
// "__metadata__.regroup.held_out"); empty for other settings.
std::string fact_of(std::string_view path) {
  constexpr std::string_view kMetadata = "__metadata__.";
  path.remove_prefix(path.starts_with(kMetadata) ? kMetadata.size() : 0);
  if (!path.starts_with(kRecordPrefix)) {
    return "";
  }
  const std::string_view key = path.substr(0, path.find_first_of(".[", kRecordPrefix.size()));
  return is_conversion_fact(key) ? std::string(key.substr(kRecordPrefix.size())) : "";
}

// Counts the facts of the conversion's record, which `inspect` shows in words, in one row, except
// the slopes, which are part of the model.
std::vector<JsonDifference> with_record_counted(const std::vector<JsonDifference>& settings) {
  std::vector<JsonDifference> found;
  std::set<std::string> before, after;  // config and metadata repeat each other
  const auto add = [&](const JsonDifference& difference) {
    const std::string fact = fact_of(difference.path);
    if (fact.empty() || fact.starts_with("alibi")) {
      found.push_back(difference);
      return;
    }
    if (difference.before) {
      before.insert(fact);
    }
    if (difference.after) {
      after.insert(fact);
    }
  };
  for (const JsonDifference& difference : settings) {
    if (difference.path != kRecordKey) {
      add(difference);
      continue;
    }
    const Json none = Json::object();  // one of the models has no record
    for (const JsonDifference& each : differences_between(
             difference.before.value_or(none), difference.after.value_or(none), kRecordKey)) {
      add(each);
    }
  }
  const auto counted = [](const std::set<std::string>& facts) {
    return facts.empty() ? std::nullopt : std::optional<Json>(facts.size());
  };
  if (!before.empty() || !after.empty()) {
    found.push_back(
        {"regroup's record: number of facts that differ", counted(before), counted(after)});
  }
  return found;
}

void run_diff(const DiffOptions& options, const Console& console) {
  check_page_path(options.html);
  const Checkpoint before = open_checkpoint(options.before);
  const Checkpoint after = open_checkpoint(options.after);
  auto settings = compare_settings(before, after, options);
  if (!options.json) {
    settings = with_record_counted(settings);
  }
  const auto tensors = compare(before, after, options, console);
  const bool same = tensors.empty() && settings.empty();
  if (options.json) {
    console.print(text_of_json({{"before", options.before},
                                {"after", options.after},
                                {"same", same},
                                {"tensors", differences_json(tensors)},
                                {"settings", settings_json(settings)}}));
  } else {
    print_differences(tensors, settings, console);
    if (same) {
      console.print("no difference");
    }
  }
  const auto removed = std::ranges::count_if(
      tensors, [](const TensorDifference& each) { return each.after == nullptr; });
  if (removed > 0 && removed == std::ssize(before.tensors())) {
    console.note(
        "note: no tensor has the same name in both; regroup convert --to writes one of them in the "
        "form of the other");
  }
  if (!options.html.empty()) {
    write_page(options.html, diff_page(options.before, options.after, tensors, settings), console);
  }
  if (!same) {
    throw Error(ErrorKind::kDifference,
                fmt::format("{} and {} differ: {}", printable(options.before, 0),
                            printable(options.after, 0), text_of_counts(tensors, settings)));
  }
}

}  // namespace

void add_diff_command(Command program, Console& console) {
  auto options = std::make_shared<DiffOptions>();
  Command command = program.add_command(
      "diff", "Compare two checkpoints: tensors by their names, and their configs");
  command.add_option("before", options->before, kCheckpointHelp).required();
  command.add_option("after", options->after, "what to compare it with").required();
  command.add_option("--filter", options->filter,
                     "compare only tensors whose names match this pattern, such as '*.k_proj.*'");
  command.add_flag("--json", options->json, "report as JSON");
  command.add_option("--html", options->html, "write the report as a page to this file");
  command.footer(
      "Example: regroup diff Llama-2-7b-gqa8 Llama-2-7b-gqa8-up --filter '*.mlp.*'\n"
      "Exits with 0 if nothing differs and with 5 otherwise. Configs (of GGUF files: keys) are\n"
      "compared if both models have one. Tensors whose bytes differ are decoded, to report the\n"
      "largest and mean absolute difference and the cosine similarity.");
  command.on_run([options, &console] { run_diff(*options, console); });
}

}  // namespace regroup
