#include "formats/families/loader_files.h"

#include <string>
#include <utility>
#include <vector>

#include "formats/families/loader_table.h"

namespace regroup {
namespace {

// Names and texts.
std::vector<std::pair<std::string, std::string>> made_loader_files() {
  std::vector<std::pair<std::string, std::string>> files;
  for (const LoaderRow& row : loader_rows()) {
    if (!row.title.empty()) {
      files.emplace_back(module_of(row) + ".py", loader_text(row));
    }
  }
  return files;
}

}  // namespace

std::span<const LoaderFile> loader_files() {
  static const auto kMade = made_loader_files();
  static const auto kAll = [] {
    const auto embedded = embedded_loader_files();
    std::vector<LoaderFile> all(embedded.begin(), embedded.end());
    for (const auto& [name, text] : kMade) {
      all.push_back({name, text});
    }
    return all;
  }();
  return kAll;
}

}  // namespace regroup
