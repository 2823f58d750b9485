#include "formats/base/suggestion.h"

#include <algorithm>

namespace regroup {

// The optimal string alignment distance (Damerau-Levenshtein without repeated edits of a part).
// Only three rows of the table of distances between prefixes are kept.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) {
    row[j] = j;
  }
  for (std::size_t i = 1; i <= a.size(); ++i) {
    before.swap(last);
    last.swap(row);
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
  }
  return row[b.size()];
}

std::string nearest_name(std::string_view typed, const std::vector<std::string>& names) {
  constexpr std::size_t kLongest = 64;  // longer words are not misspelt names
  std::string nearest;
  std::size_t least = std::max<std::size_t>(1, typed.size() / 3) + 1;
  for (const std::string& name : names) {
    const std::size_t distance = typed.size() > kLongest ? least : edit_distance(typed, name);
    if (distance < least) {
      least = distance;
      nearest = name;
    }
  }
  const auto begun = std::find_if(names.begin(), names.end(), [&](const std::string& name) {
    return typed.size() > 2 && name.starts_with(typed);
  });
  return nearest.empty() && begun != names.end() ? *begun : nearest;
}

}  // namespace regroup
