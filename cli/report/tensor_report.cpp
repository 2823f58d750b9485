#include <algorithm>
#include <fnmatch.h>
#include <functional>
#include <iterator>
#include <optional>

#include "cli/report/model_report.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

// The kind of difference. Added and removed tensors and other shapes have no values to compare.
std::string_view kind_of(const TensorDifference& difference) {
  return difference.before == nullptr  ? "added"
         : difference.after == nullptr ? "removed"
         : difference.changed_shape()  ? "shape"
         : difference.changed_dtype()  ? "dtype"
         : difference.values           ? "values"
                                       : "checksum";
}

std::string change_text(const TensorDifference& difference) {
  const auto both = [](const std::string& a, const std::string& b) {
    return a == b ? a : fmt::format("{} -> {}", a, b);
  };
  const TensorInfo* before = difference.before;
  const TensorInfo* after = difference.after;
  if (before == nullptr || after == nullptr) {
    const TensorInfo& only = before == nullptr ? *after : *before;
    return fmt::format("{} {}", name_of(only.dtype), text_of(only.shape));
  }
  return fmt::format("{} {}",
                     both(std::string(name_of(before->dtype)), std::string(name_of(after->dtype))),
                     both(text_of(before->shape), text_of(after->shape)));
}

Tint tint_of(const TensorDifference& difference) {
  return difference.before == nullptr  ? Tint::kGood
         : difference.after == nullptr ? Tint::kBad
                                       : Tint::kNotice;
}

std::string json_text(const std::optional<Json>& value, std::size_t max_bytes) {
  return value ? printable_json(*value, max_bytes) : "-";
}

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
    std::ranges::sort(tensors, {}, &TensorInfo::name);
  } else if (order == "bytes") {
    std::ranges::stable_sort(tensors, std::greater(), &TensorInfo::bytes);
  }
}

std::string number(double value) { return fmt::format("{:.4g}", value); }

// "0-3,5" of numbers in any order.
std::string text_of_runs(std::vector<std::int64_t> numbers) {
  std::ranges::sort(numbers);
  std::vector<std::string> runs;
  for (std::size_t first = 0, i = 0; i < numbers.size(); ++i) {
    if (i + 1 == numbers.size() || numbers[i + 1] != numbers[i] + 1) {
      runs.push_back(first == i ? std::to_string(numbers[i])
                                : fmt::format("{}-{}", numbers[first], numbers[i]));
      first = i + 1;
    }
  }
  return fmt::format("{}", fmt::join(runs, ","));
}

Table without_values(const std::vector<TensorDifference>& differences) {
  LayerRows rows;
  std::map<std::string, Tint> tints;  // by kind
  for (const TensorDifference& difference : differences) {
    const std::string kind(kind_of(difference));
    tints[kind] = tint_of(difference);
    rows.add(difference.name, {kind, change_text(difference)});
  }
  Table table(2);
  table.add_texts({"difference", "tensor"});
  table.add_numbers({"before -> after"});
  for (const auto& [name, cells] : rows.rows()) {
    table.add_row({cells[0], name, cells[1]}, tints[cells[0]]);
  }
  return table;
}

Table with_values(const std::vector<TensorDifference>& differences) {
  Table table(2);
  table.add_texts({"difference", "tensor"});
  const bool types = std::ranges::any_of(differences, &TensorDifference::changed_dtype);
  if (types) {
    table.add_numbers({"before -> after"});
  }
  table.add_numbers({"largest", "mean", "cosine"});
  for (const TensorDifference& difference : differences) {
    std::vector<std::string> row{std::string(kind_of(difference)), printable(difference.name)};
    if (types) {
      row.push_back(change_text(difference));
    }
    const auto& values = difference.values;
    if (values->readable) {
      row.insert(row.end(),
                 {fmt::format("{:.3g}", values->largest), fmt::format("{:.3g}", values->mean),
                  fmt::format("{:.6f}", values->cosine)});
    } else {
      row.insert(row.end(), 3, "bytes");
    }
    table.add_row(std::move(row), tint_of(difference));
  }
  return table;
}

}  // namespace

void LayerRows::add(const std::string& name, Cells cells) {
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::size_t kMostDigits = 9;
  const std::size_t first = std::min(name.find_first_of(kDigits), name.size());
  const std::size_t end = std::min(name.find_first_not_of(kDigits, first), name.size());
  const bool numbered =
      first < end && end - first <= kMostDigits && (name[first] != '0' || end - first == 1);
  Row row{name.substr(0, numbered ? first : name.size()),
          numbered ? name.substr(end) : "",
          std::move(cells),
          {}};
  Cells key{row.before, row.after, numbered ? "numbered" : "alone"};
  append(key, row.cells);
  const auto [place, is_new] = places_.emplace(std::move(key), rows_.size());
  if (is_new) {
    rows_.push_back(std::move(row));
  }
  if (numbered) {
    rows_[place->second].numbers.push_back(std::stoll(name.substr(first, end - first)));
  }
}

std::vector<std::pair<std::string, LayerRows::Cells>> LayerRows::rows() const {
  return mapped(rows_, [](const Row& row) {
    return std::pair(printable(row.before + text_of_runs(row.numbers) + row.after), row.cells);
  });
}

std::vector<Table> differences_tables(const std::vector<TensorDifference>& tensors) {
  std::vector<TensorDifference> values, others;
  std::ranges::partition_copy(
      tensors, std::back_inserter(values), std::back_inserter(others),
      [](const TensorDifference& difference) { return difference.values.has_value(); });
  std::vector<Table> tables;
  if (!others.empty()) {
    tables.push_back(without_values(others));
  }
  if (!values.empty()) {
    tables.push_back(with_values(values));
  }
  return tables;
}

void print_differences(const std::vector<TensorDifference>& tensors,
                       const std::vector<JsonDifference>& settings, const Console& console) {
  auto tables =
      mapped(differences_tables(tensors), [&](const Table& table) { return table.text(console); });
  if (!settings.empty()) {
    tables.push_back(settings_table(settings).text(console));
  }
  if (!tables.empty()) {
    console.print(fmt::format("{}", fmt::join(tables, "\n\n")));
  }
}

Table settings_table(const std::vector<JsonDifference>& differences, std::size_t max_bytes) {
  Table table;
  table.add_texts({"setting", "before", "after"});
  for (const JsonDifference& difference : differences) {
    table.add_row({printable(difference.path), json_text(difference.before, max_bytes),
                   json_text(difference.after, max_bytes)},
                  !difference.before  ? Tint::kGood
                  : !difference.after ? Tint::kBad
                                      : Tint::kNotice);
  }
  return table;
}

Json differences_json(const std::vector<TensorDifference>& differences) {
  return json_list(differences, [](const TensorDifference& difference) {
    Json entry = {{"name", difference.name}, {"differs", kind_of(difference)}};
    for (const auto& [key, tensor] :
         {std::pair{"before", difference.before}, std::pair{"after", difference.after}}) {
      entry[key] = tensor == nullptr
                       ? Json(nullptr)
                       : Json({{"dtype", name_of(tensor->dtype)}, {"shape", tensor->shape}});
    }
    if (difference.values && difference.values->readable) {
      entry["elements"] = difference.values->elements;
      entry["different_elements"] = difference.values->different;
      entry["largest_difference"] = difference.values->largest;
      entry["mean_difference"] = difference.values->mean;
      entry["cosine"] = difference.values->cosine;
    }
    return entry;
  });
}

Json settings_json(const std::vector<JsonDifference>& differences) {
  return json_list(differences, [](const JsonDifference& difference) {
    Json entry = {{"path", difference.path}};
    if (difference.before) {
      entry["before"] = *difference.before;
    }
    if (difference.after) {
      entry["after"] = *difference.after;
    }
    return entry;
  });
}

std::string text_of_counts(const std::vector<TensorDifference>& tensors,
                           const std::vector<JsonDifference>& settings) {
  std::vector<std::string> counts;
  for (const auto& [kind, words] :
       {std::pair{"added", "added"}, std::pair{"removed", "removed"},
        std::pair{"shape", "of another shape"}, std::pair{"dtype", "of another dtype"},
        std::pair{"values", "of other values"}, std::pair{"checksum", "with another checksum"}}) {
    const auto count = std::ranges::count(tensors, std::string_view(kind), kind_of);
    if (count > 0) {
      counts.push_back(fmt::format(
          "{} {}{}", count, counts.empty() ? (count == 1 ? "tensor " : "tensors ") : "", words));
    }
  }
  if (!settings.empty()) {
    counts.push_back(fmt::format("{} setting{}", settings.size(), settings.size() == 1 ? "" : "s"));
  }
  return counts.empty() ? "nothing" : fmt::format("{}", fmt::join(counts, ", "));
}

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
  const auto is_elsewhere = [&](const TensorInfo* tensor) {
    return place_text(checkpoint, *tensor) != place_text(checkpoint, *tensors.front());
  };
  const bool in_files = std::ranges::any_of(tensors, is_elsewhere);
  Table table;
  table.add_texts({"tensor", "dtype"});
  table.add_numbers({"shape", "bytes"});
  if (in_files) {
    table.add_texts({"file"});
  }
  for (const TensorInfo* tensor : tensors) {
    std::vector<std::string> row{printable(tensor->name), std::string(name_of(tensor->dtype)),
                                 text_of(tensor->shape), with_thousands(tensor->bytes())};
    if (in_files) {
      row.push_back(place_text(checkpoint, *tensor));
    }
    table.add_row(std::move(row));
  }
  return table;
}

Table layers_table(const std::vector<LayerSummary>& layers, std::int64_t head_dim) {
  const bool roles = !layers.empty() && layers.back().role != layers.front().role;
  const bool windows = std::ranges::any_of(
      layers, [](const LayerSummary& layer) { return layer.window.has_value(); });
  Table table(/*keys=*/roles ? 2 : 1);
  if (roles) {
    table.add_texts({"attention"});
  }
  table.add_numbers({"layer", "heads", "kv heads", "head dim"});
  if (windows) {
    table.add_numbers({"window"});
  }
  table.add_numbers({"parameters", "bytes", "KV per token"});
  for (const LayerSummary& layer : layers) {
    const bool agrees = layer.kv_heads == layer.config_kv_heads;
    std::vector<std::string> row{
        std::to_string(layer.layer),
        layer.query_heads == 0 ? "-" : std::to_string(layer.query_heads),
        layer.query_heads == 0 ? "-"
        : agrees               ? std::to_string(layer.kv_heads)
                 : fmt::format("{} (config {})", layer.kv_heads, layer.config_kv_heads),
        layer.query_heads == 0 ? "-" : std::to_string(head_dim),
        text_of_count(layer.parameters),
        text_of_bytes(layer.bytes),
        layer.kv_bytes_per_token ? text_of_bytes(*layer.kv_bytes_per_token) : "-"};
    if (windows) {
      row.insert(row.begin() + 4, layer.window ? std::to_string(*layer.window) : "-");
    }
    if (roles) {
      row.insert(row.begin(), std::string(name_of(layer.role)));
    }
    table.add_row(std::move(row), agrees ? Tint::kNone : Tint::kNotice);
  }
  return table;
}

Table statistics_table(const std::vector<MeasuredTensor>& tensors) {
  Table table;
  table.add_texts({"tensor", "dtype"});
  table.add_numbers({"norm", "min", "max", "NaN", "Inf"});
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
  return json_list(tensors, [&](const TensorInfo* tensor) {
    Json entry = {{"name", tensor->name},
                  {"dtype", name_of(tensor->dtype)},
                  {"shape", tensor->shape},
                  {"bytes", tensor->bytes()}};
    if (tensor->pieces.empty()) {
      entry.update(place_json(checkpoint, *tensor));
    } else {
      entry["joined_along"] = tensor->joint;
      entry["pieces"] = json_list(
          tensor->pieces, [&](const TensorInfo& piece) { return place_json(checkpoint, piece); });
    }
    return entry;
  });
}

Json layers_json(const std::vector<LayerSummary>& layers, std::int64_t head_dim) {
  return json_list(layers, [&](const LayerSummary& layer) -> Json {
    return {{"attention", name_of(layer.role)},
            {"layer", layer.layer},
            {"query_heads", layer.query_heads},
            {"kv_heads", layer.kv_heads},
            {"config_kv_heads", layer.config_kv_heads},
            {"head_dim", head_dim},
            {"window", or_null(layer.window)},
            {"parameters", layer.parameters},
            {"bytes", layer.bytes},
            {"kv_bytes_per_token", or_null(layer.kv_bytes_per_token)}};
  });
}

Json statistics_json(const std::vector<MeasuredTensor>& tensors) {
  return json_list(tensors, [](const MeasuredTensor& measured) {
    const auto& [tensor, found] = measured;
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
    return entry;
  });
}

}  // namespace regroup
