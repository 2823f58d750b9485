// regroup inspect PATH
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/commands.h"
#include "cli/table.h"
#include "cli/text.h"
#include "converter/provenance.h"
#include "formats/error.h"
#include "formats/json.h"
#include "formats/model.h"
#include "formats/model_summary.h"
#include "formats/printable.h"

namespace regroup {
namespace {

struct InspectOptions {
  std::string path;
  std::string layout;
  bool tensors = false;
  bool json = false;
};

Json place_json(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  return {{"file", checkpoint.file_of(tensor).path().filename().string()},
          {"byte_range", {tensor.begin, tensor.end}}};
}

Json tensors_json(const Checkpoint& checkpoint) {
  Json list = Json::array();
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    Json entry = {{"name", tensor.name}, {"dtype", name_of(tensor.dtype)}, {"shape", tensor.shape}};
    if (tensor.pieces.empty()) {
      entry.update(place_json(checkpoint, tensor));
    } else {
      entry["joined_along"] = tensor.joint;
      for (const TensorInfo& piece : tensor.pieces) {
        entry["pieces"].push_back(place_json(checkpoint, piece));
      }
    }
    list.push_back(std::move(entry));
  }
  return list;
}

template <typename T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json(nullptr);
}

Json or_null(const std::string& value) { return value.empty() ? Json(nullptr) : Json(value); }

Json heads_json(const std::vector<std::int64_t>& heads) {
  return heads.empty() ? Json(nullptr) : Json::parse(per_layer_json(heads));
}

// One list where all layers agree, else one per layer; null where there are none.
Json slopes_json(const std::vector<std::vector<double>>& slopes) {
  const bool uniform =
      std::adjacent_find(slopes.begin(), slopes.end(), std::not_equal_to<>()) == slopes.end();
  return slopes.empty() ? Json(nullptr) : uniform ? Json(slopes.front()) : Json(slopes);
}

// One block per role of an encoder-decoder; null where there is but one attention.
Json roles_json(const ModelSummary& summary) {
  Json roles;
  for (const AttentionSummary& role : summary.roles) {
    roles[std::string(name_of(role.role))] = {
        {"layers", role.kv_heads.size()},
        {"query_heads", or_null(summary.query_heads)},
        {"kv_heads", heads_json(role.kv_heads)},
        {"config_kv_heads", heads_json(role.config_kv_heads)},
        {"head_dim", or_null(summary.head_dim)},
        {"attention", role.attention},
        {"kv_bytes_per_token", or_null(role.kv_bytes_per_token)}};
  }
  return roles;
}

Json summary_json(const ModelSummary& summary) {
  return {{"path", summary.path.string()},
          {"family", summary.family},
          {"architecture", or_null(summary.architecture)},
          {"layers", summary.layers},
          {"hidden_size", or_null(summary.hidden_size)},
          {"query_heads", or_null(summary.query_heads)},
          {"kv_heads", heads_json(summary.kv_heads)},
          {"config_kv_heads", heads_json(summary.config_kv_heads)},
          {"head_dim", or_null(summary.head_dim)},
          {"vocab_size", or_null(summary.vocab_size)},
          {"dtype", or_null(summary.dtype)},
          {"bytes_by_dtype", summary.bytes_by_dtype},
          {"parameters", summary.parameters},
          {"bytes", summary.bytes},
          {"files", summary.files},
          {"kv_bytes_per_token", or_null(summary.kv_bytes_per_token)},
          {"attention", or_null(summary.attention)},
          {"attention_by_role", roles_json(summary)},
          {"positions", or_null(summary.positions)},
          {"alibi_slopes", slopes_json(summary.alibi_slopes)},
          {"provenance", summary.provenance},
          {"disagreements", summary.disagreements}};
}

// "8", or per layer "8 8 4 4 ..." as runs: "2 x 8, 2 x 4".
std::string heads_text(const std::vector<std::int64_t>& heads) {
  std::vector<std::string> runs;
  for (std::size_t i = 0; i < heads.size();) {
    std::size_t end = i;
    while (end < heads.size() && heads[end] == heads[i]) {
      ++end;
    }
    runs.push_back(fmt::format("{} x {}", end - i, heads[i]));
    i = end;
  }
  return runs.size() == 1 ? std::to_string(heads.front())
                          : fmt::format("{} (layers x heads)", fmt::join(runs, ", "));
}

std::string attention_text(const ModelSummary& summary, const std::string& attention,
                           const std::vector<std::int64_t>& kv_heads) {
  if (kv_heads.empty() || !summary.query_heads) {
    return "unknown (no config.json beside the file, no regroup metadata in it)";
  }
  const std::string dimension =
      summary.head_dim ? fmt::format(", head dimension {}", *summary.head_dim) : "";
  return fmt::format("{}: {} query heads, {} kv heads{}", attention, *summary.query_heads,
                     heads_text(kv_heads), dimension);
}

std::string layers_text(const ModelSummary& summary) {
  const std::size_t encoder = summary.spec ? summary.spec->encoder_layers.size() : 0;
  return fmt::format(
      "{}{}{}{}", summary.layers,
      encoder > 0 ? fmt::format(" beside an encoder of {}", encoder) : "",
      summary.hidden_size ? fmt::format(", hidden size {}", *summary.hidden_size) : "",
      summary.vocab_size ? fmt::format(", vocabulary {}", *summary.vocab_size) : "");
}

std::string cache_text(const ModelSummary& summary) {
  if (!summary.kv_bytes_per_token) {
    return "";
  }
  const auto bytes = static_cast<double>(*summary.kv_bytes_per_token);
  std::string text = fmt::format("{} per token, {} at 4096 tokens", text_of_memory(bytes),
                                 text_of_memory(bytes * 4096));
  for (const AttentionSummary& role : summary.roles) {
    if (role.role == AttentionRole::kCross) {
      text += fmt::format("; cross {} per token of the source",
                          text_of_memory(static_cast<double>(role.kv_bytes_per_token.value_or(0))));
    }
  }
  return text;
}

std::string dtypes_text(const ModelSummary& summary) {
  if (summary.bytes_by_dtype.size() == 1) {
    return summary.dtype;
  }
  std::vector<std::string> shares;
  for (const auto& [dtype, bytes] : summary.bytes_by_dtype) {
    shares.push_back(fmt::format("{} {}", dtype, text_of_bytes(static_cast<double>(bytes))));
  }
  return fmt::format("{}", fmt::join(shares, ", "));
}

std::string slopes_text(const std::vector<double>& slopes) {
  constexpr std::size_t kShown = 6;
  const auto shown = std::span(slopes).first(std::min(slopes.size(), kShown));
  return fmt::format(
      "{}{}", fmt::join(shown, " "),
      slopes.size() > kShown ? fmt::format(" ... ({} heads; all with --json)", slopes.size()) : "");
}

std::string summary_text(const ModelSummary& summary) {
  std::string text;
  const auto line = [&](std::string_view label, const std::string& value) {
    if (!value.empty()) {
      text += fmt::format("{}{:<12}{}", text.empty() ? "" : "\n", label, value);
    }
  };
  line("model",
       fmt::format("{} ({})", printable(summary.path.string(), 0),
                   summary.architecture.empty() ? "no config" : printable(summary.architecture)));
  line("layers", layers_text(summary));
  if (summary.roles.empty()) {
    line("attention", attention_text(summary, summary.attention, summary.kv_heads));
  }
  for (const AttentionSummary& role : summary.roles) {
    line(name_of(role.role), attention_text(summary, role.attention, role.kv_heads));
  }
  line("positions", summary.positions);
  if (!summary.alibi_slopes.empty()) {
    line("slopes", slopes_text(summary.alibi_slopes.front()));
  }
  line("KV cache", cache_text(summary));
  line("parameters", fmt::format("{} ({})", text_of_count(static_cast<double>(summary.parameters)),
                                 with_thousands(summary.parameters)));
  line("weights",
       fmt::format("{} in {} file{}, {} tensors, {}",
                   text_of_bytes(static_cast<double>(summary.bytes)), summary.files,
                   summary.files == 1 ? "" : "s", summary.tensors, dtypes_text(summary)));
  if (summary.provenance.contains("pool")) {
    const auto fact = [&](const std::string& key) {
      const auto found = summary.provenance.find(key);
      return found == summary.provenance.end() ? std::string("?") : printable(found->second);
    };
    line("converted",
         fmt::format("from {} kv heads to {} ({}, {}) by regroup {}", fact("source_kv_heads"),
                     fact("kv_heads"), fact("pool"), fact("grouping"), fact("version")));
  }
  return text;
}

std::string place_text(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  const std::string file = printable(checkpoint.file_of(tensor).path().filename().string());
  return tensor.pieces.empty() ? file : fmt::format("{} + {}", file, tensor.pieces.size() - 1);
}

std::string tensors_text(const Checkpoint& checkpoint) {
  Table table;
  table.add_column("tensor", Table::Align::kLeft);
  table.add_column("dtype", Table::Align::kLeft);
  table.add_column("shape", Table::Align::kRight);
  table.add_column("bytes", Table::Align::kRight);
  table.add_column("file", Table::Align::kLeft);
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    table.add_row({printable(tensor.name), std::string(name_of(tensor.dtype)),
                   text_of(tensor.shape), with_thousands(tensor.bytes()),
                   place_text(checkpoint, tensor)});
  }
  return table.text();
}

void run_inspect(const InspectOptions& options, const Console& console) {
  const Checkpoint checkpoint = open_checkpoint(options.path);
  const ModelSummary summary = summarize_model(options.path, checkpoint, options.layout);
  if (options.json) {
    Json report = summary_json(summary);
    if (options.tensors) {
      report["tensors"] = tensors_json(checkpoint);
    }
    console.print(text_of_json(report));
    return;
  }
  console.print(summary_text(summary));
  if (options.tensors) {
    console.print("\n" + tensors_text(checkpoint));
  }
  for (const std::string& disagreement : summary.disagreements) {
    console.note("warning: " + disagreement);
  }
}

}  // namespace

void add_inspect_command(CLI::App& program, Console& console) {
  auto options = std::make_shared<InspectOptions>();
  CLI::App* command = program.add_subcommand(
      "inspect", "Show what a checkpoint is: heads per layer, cache cost, dtypes, provenance");
  command->add_option("path", options->path, "model directory, index, or one weight file")
      ->required();
  command->add_option("--layout", options->layout,
                      "a file that describes an architecture regroup does not know");
  command->add_flag("--tensors", options->tensors, "list every tensor");
  command->add_flag("--json", options->json, "report as JSON");
  command->footer("Example: regroup inspect Llama-2-7b-gqa8 --tensors\nOnly headers are read.");
  command->callback([options, &console] { run_inspect(*options, console); });
}

}  // namespace regroup
