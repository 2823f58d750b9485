#include "cli/report/difference_report.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/terminal/text.h"
#include "formats/base/printable.h"

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
  return value ? printable(value->dump(-1, ' ', true, Json::error_handler_t::replace), max_bytes)
               : "-";
}

Json number_or_text(double value) {
  return std::isfinite(value) ? Json(value) : Json(fmt::format("{}", value));
}

// `with_values` adds the columns for differences between values.
Table table_of(const std::vector<TensorDifference>& differences, bool with_values) {
  Table table;
  table.add_column("differs", Table::Align::kLeft);
  table.add_column("tensor", Table::Align::kLeft);
  table.add_column("is", Table::Align::kRight);
  if (with_values) {
    for (const char* heading : {"largest", "mean", "cosine"}) {
      table.add_column(heading, Table::Align::kRight);
    }
  }
  for (const TensorDifference& difference : differences) {
    std::vector<std::string> row{std::string(kind_of(difference)), printable(difference.name),
                                 change_text(difference)};
    const auto& values = difference.values;
    if (with_values && values && values->readable) {
      row.insert(row.end(),
                 {fmt::format("{:.3g}", values->largest), fmt::format("{:.3g}", values->mean),
                  fmt::format("{:.6f}", values->cosine)});
    } else if (with_values) {
      row.insert(row.end(), 3, values ? "bytes" : "-");
    }
    table.add_row(std::move(row), tint_of(difference));
  }
  return table;
}

}  // namespace

Table differences_table(const std::vector<TensorDifference>& differences) {
  return table_of(differences, true);
}

std::string differences_text(const std::vector<TensorDifference>& differences,
                             const Console& console) {
  std::vector<TensorDifference> values, others;
  std::partition_copy(differences.begin(), differences.end(), std::back_inserter(values),
                      std::back_inserter(others), [](const TensorDifference& difference) {
                        return difference.values.has_value();
                      });
  std::string text = others.empty() ? "" : table_of(others, false).text(console);
  if (!values.empty()) {
    text += (text.empty() ? "" : "\n\n") + table_of(values, true).text(console);
  }
  return text;
}

Table settings_table(const std::vector<JsonDifference>& differences, std::size_t max_bytes) {
  Table table;
  for (const char* heading : {"setting", "before", "after"}) {
    table.add_column(heading, Table::Align::kLeft);
  }
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
  Json list = Json::array();
  for (const TensorDifference& difference : differences) {
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
      entry["largest_difference"] = number_or_text(difference.values->largest);
      entry["mean_difference"] = number_or_text(difference.values->mean);
      entry["cosine"] = difference.values->cosine;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

Json settings_json(const std::vector<JsonDifference>& differences) {
  Json list = Json::array();
  for (const JsonDifference& difference : differences) {
    Json entry = {{"path", difference.path}};
    if (difference.before) {
      entry["before"] = *difference.before;
    }
    if (difference.after) {
      entry["after"] = *difference.after;
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::string text_of_counts(const std::vector<TensorDifference>& tensors,
                           const std::vector<JsonDifference>& settings) {
  std::vector<std::string> counts;
  for (const auto& [kind, words] :
       {std::pair{"added", "added"}, std::pair{"removed", "removed"},
        std::pair{"shape", "of another shape"}, std::pair{"dtype", "of another dtype"},
        std::pair{"values", "of other values"}, std::pair{"checksum", "with another checksum"}}) {
    const std::string_view wanted = kind;
    const auto count = std::count_if(tensors.begin(), tensors.end(), [&](const auto& difference) {
      return kind_of(difference) == wanted;
    });
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

}  // namespace regroup
