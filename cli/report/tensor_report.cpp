#include "cli/report/tensor_report.h"

#include <algorithm>
#include <fnmatch.h>
#include <optional>

#include <fmt/format.h>

#include "cli/terminal/text.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/optional_json.h"

namespace regroup {
namespace {

Json place_json(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  return {{"file", checkpoint.file_of(tensor).path().filename().string()},
          {"byte_range", {tensor.begin, tensor.end}}};
}

std::string place_text(const Checkpoint& checkpoint, const TensorInfo& tensor) {
  const std::string file = printable(checkpoint.file_of(tensor).path().filename().string());
  return tensor.pieces.empty() ? file : fmt::format("{} + {}", file, tensor.pieces.size() - 1);
}

void sort_tensors(std::vector<const TensorInfo*>& tensors, const std::string& order) {
  if (order == "name") {
    std::sort(tensors.begin(), tensors.end(),
              [](const TensorInfo* a, const TensorInfo* b) { return a->name < b->name; });
  } else if (order == "bytes") {
    std::stable_sort(tensors.begin(), tensors.end(), [](const TensorInfo* a, const TensorInfo* b) {
      return a->bytes() > b->bytes();
    });
  }
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

}  // namespace

std::vector<const TensorInfo*> chosen_tensors(const Checkpoint& checkpoint,
                                              const TensorChoice& choice) {
  std::vector<const TensorInfo*> tensors;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (::fnmatch(choice.filter.c_str(), tensor.name.c_str(), FNM_NOESCAPE) == 0) {
      tensors.push_back(&tensor);
    }
  }
  if (tensors.empty() && !checkpoint.tensors().empty()) {
    throw_usage("--filter: no tensor is named \"{}\"; the first is {}", printable(choice.filter),
                printable(checkpoint.tensors().front().name));
  }
  sort_tensors(tensors, choice.sort);
  return tensors;
}

Table tensors_table(const Checkpoint& checkpoint, const std::vector<const TensorInfo*>& tensors) {
  Table table;
  table.add_column("tensor", Table::Align::kLeft);
  table.add_column("dtype", Table::Align::kLeft);
  table.add_column("shape", Table::Align::kRight);
  table.add_column("bytes", Table::Align::kRight);
  table.add_column("file", Table::Align::kLeft);
  for (const TensorInfo* tensor : tensors) {
    table.add_row({printable(tensor->name), std::string(name_of(tensor->dtype)),
                   text_of(tensor->shape), with_thousands(tensor->bytes()),
                   place_text(checkpoint, *tensor)});
  }
  return table;
}

Table layers_table(const std::vector<LayerSummary>& layers, std::int64_t head_dim) {
  const bool roles = !layers.empty() && layers.back().role != layers.front().role;
  Table table(/*keys=*/roles ? 2 : 1);
  if (roles) {
    table.add_column("attention", Table::Align::kLeft);
  }
  for (const char* heading : {"layer", "heads", "kv heads", "head dim", "window", "parameters",
                              "bytes", "KV per token"}) {
    table.add_column(heading, Table::Align::kRight);
  }
  for (const LayerSummary& layer : layers) {
    const bool agrees = layer.kv_heads == layer.config_kv_heads;
    std::vector<std::string> row{
        std::to_string(layer.layer),
        layer.query_heads == 0 ? "-" : std::to_string(layer.query_heads),
        layer.query_heads == 0 ? "-"
        : agrees               ? std::to_string(layer.kv_heads)
                 : fmt::format("{} (config {})", layer.kv_heads, layer.config_kv_heads),
        layer.query_heads == 0 ? "-" : std::to_string(head_dim),
        layer.window ? std::to_string(*layer.window) : "-",
        text_of_count(static_cast<double>(layer.parameters)),
        text_of_bytes(layer.bytes),
        layer.kv_bytes_per_token ? text_of_bytes(*layer.kv_bytes_per_token) : "-"};
    if (roles) {
      row.insert(row.begin(), std::string(name_of(layer.role)));
    }
    table.add_row(std::move(row), agrees ? Tint::kNone : Tint::kNotice);
  }
  return table;
}

Table statistics_table(const std::vector<MeasuredTensor>& tensors) {
  Table table;
  table.add_column("tensor", Table::Align::kLeft);
  table.add_column("dtype", Table::Align::kLeft);
  for (const char* heading : {"norm", "least", "most", "NaN", "Inf"}) {
    table.add_column(heading, Table::Align::kRight);
  }
  for (const MeasuredTensor& measured : tensors) {
    const TensorStatistics& found = measured.statistics;
    std::vector<std::string> row{printable(measured.tensor->name),
                                 std::string(name_of(measured.tensor->dtype))};
    if (found.readable && found.elements > 0) {
      row.insert(row.end(), {number(found.norm), number(found.minimum), number(found.maximum),
                             with_thousands(found.nan), with_thousands(found.infinite)});
    } else {
      row.insert(row.end(), 5, "-");
    }
    table.add_row(std::move(row), found.finite() ? Tint::kNone : Tint::kBad);
  }
  return table;
}

Json tensors_json(const Checkpoint& checkpoint, const std::vector<const TensorInfo*>& tensors) {
  Json list = Json::array();
  for (const TensorInfo* tensor : tensors) {
    Json entry = {{"name", tensor->name},
                  {"dtype", name_of(tensor->dtype)},
                  {"shape", tensor->shape},
                  {"bytes", tensor->bytes()}};
    if (tensor->pieces.empty()) {
      entry.update(place_json(checkpoint, *tensor));
    } else {
      entry["joined_along"] = tensor->joint;
      for (const TensorInfo& piece : tensor->pieces) {
        entry["pieces"].push_back(place_json(checkpoint, piece));
      }
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json layers_json(const std::vector<LayerSummary>& layers, std::int64_t head_dim) {
  Json list = Json::array();
  for (const LayerSummary& layer : layers) {
    list.push_back({{"attention", name_of(layer.role)},
                    {"layer", layer.layer},
                    {"query_heads", layer.query_heads},
                    {"kv_heads", layer.kv_heads},
                    {"config_kv_heads", layer.config_kv_heads},
                    {"head_dim", head_dim},
                    {"window", or_null(layer.window)},
                    {"parameters", layer.parameters},
                    {"bytes", layer.bytes},
                    {"kv_bytes_per_token", or_null(layer.kv_bytes_per_token)}});
  }
  return list;
}

Json statistics_json(const std::vector<MeasuredTensor>& tensors) {
  Json list = Json::array();
  for (const auto& [tensor, found] : tensors) {
    Json entry = {{"name", tensor->name},
                  {"dtype", name_of(tensor->dtype)},
                  {"shape", tensor->shape},
                  {"elements", found.elements}};
    if (found.readable) {
      entry.update(Json{{"nan", found.nan},
                        {"infinite", found.infinite},
                        {"minimum", found.minimum},
                        {"maximum", found.maximum},
                        {"largest", found.largest},
                        {"norm", found.norm}});
    }
    list.push_back(std::move(entry));
  }
  return list;
}

}  // namespace regroup
