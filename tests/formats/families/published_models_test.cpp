// The table of docs/models.md: each row is what the model's config says, and what regroup does.
#include <map>
#include <sstream>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "formats/model/model.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

const fs::path kTests = REGROUP_TESTS_DIR;

struct Row {
  std::string model_type, converted;
  std::int64_t layers = 0, query_heads = 0, kv_heads = 0;
};

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream stream(line);
  for (std::string cell; std::getline(stream, cell, '|');) {
    const std::size_t begin = cell.find_first_not_of(" `");
    cells.push_back(begin == std::string::npos
                        ? ""
                        : cell.substr(begin, cell.find_last_not_of(" `") - begin + 1));
  }
  return cells;
}

std::map<std::string, Row> rows_of_document() {
  std::map<std::string, Row> rows;
  std::istringstream document(bytes_of_file(kTests.parent_path() / "docs/models.md"));
  for (std::string line; std::getline(document, line);) {
    const std::vector<std::string> cells = cells_of(line);
    if (cells.size() == 8 && cells[1].find('/') != std::string::npos) {
      rows[cells[1]] = {cells[2], cells[6], std::stoll(cells[3]), std::stoll(cells[4]),
                        std::stoll(cells[5])};
    }
  }
  return rows;
}

Json published_configs() {
  const fs::path file = kTests / "formats/families/published_models.json";
  return parse_json_object(bytes_of_file(file), "published_models.json");
}

TEST_CASE("the table of published models says what regroup finds in their configs", "[formats]") {
  const std::map<std::string, Row> rows = rows_of_document();
  const Json configs = published_configs();
  CHECK(rows.size() == 50);
  CHECK(configs.size() == 50);
  std::size_t converted = 0;
  for (const auto& [name, config] : configs.items()) {
    CAPTURE(name);
    const TemporaryDirectory directory;
    put_file(directory / "config.json", config.dump());
    REQUIRE(rows.contains(name));
    const Row& row = rows.at(name);
    CHECK(config.at("model_type") == row.model_type);
    if (row.converted.starts_with("no:")) {
      const std::string reason = row.converted.substr(4);
      CHECK_THAT(refusal_of([&] { open_model_outline(directory.path()); }), is_bad_input(reason));
      continue;
    }
    const ModelSpec spec = open_model_outline(directory.path()).spec;
    CHECK(spec.layer_count() == row.layers);
    CHECK(spec.query_heads == row.query_heads);
    CHECK(spec.kv_heads == std::vector<std::int64_t>(spec.layers.size(), row.kv_heads));
    CHECK((row.converted == "yes") == (row.kv_heads > 1));
    converted += row.converted == "yes" ? 1 : 0;
  }
  const std::string document = bytes_of_file(kTests.parent_path() / "docs/models.md");
  CHECK(document.find("it converts " + std::to_string(converted) + " of them") !=
        std::string::npos);
}

}  // namespace
}  // namespace regroup
