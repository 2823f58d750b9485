// Tables for several widths.
#include "cli/shell/table.h"

#include <algorithm>
#include <sstream>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>
#include <catch2/matchers/catch_matchers_string.hpp>

#include "cli/shell/text.h"

namespace regroup {
namespace {

using Catch::Matchers::ContainsSubstring;

std::size_t widest_line(const std::string& text) {
  std::size_t widest = 0;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    widest = std::max(widest, width_of(line));
  }
  return widest;
}

Table tensors() {
  Table table;
  table.add_texts({"tensor"});
  table.add_numbers({"shape"});
  table.add_texts({"file"});
  table.add_row({"model.layers.0.self_attn.q_proj.weight", "[4096, 4096]", "model.safetensors"});
  table.add_row({"norm", "[4096]", "model.safetensors"});
  return table;
}

Table numbers(std::size_t keys, std::size_t columns) {
  Table table(keys);
  for (std::size_t c = 0; c < columns; ++c) {
    table.add_numbers({"number " + std::to_string(c)});
  }
  for (int row = 0; row < 2; ++row) {
    std::vector<std::string> cells;
    for (std::size_t c = 0; c < columns; ++c) {
      cells.push_back(std::to_string(100 * row + static_cast<int>(c)));
    }
    table.add_row(std::move(cells));
  }
  return table;
}

TEST_CASE("a table with enough room is as wide as its cells and aligns numbers right", "[cli]") {
  CHECK(tensors().text(100) ==
        "tensor                                         shape  file\n"
        "--------------------------------------  ------------  -----------------\n"
        "model.layers.0.self_attn.q_proj.weight  [4096, 4096]  model.safetensors\n"
        "norm                                          [4096]  model.safetensors");
}

TEST_CASE("on a narrow terminal names are shortened where they differ least, or broken", "[cli]") {
  CHECK_THAT(tensors().text(69), ContainsSubstring("\nmodel.layers.0.self_a~.q_proj.weight  "));
  CHECK(tensors().text(60) ==
        "tensor                              shape  file\n"
        "---------------------------  ------------  -----------------\n"
        "model.layers.0.self_attn.    [4096, 4096]  model.safetensors\n"
        "q_proj.weight\n"
        "norm                               [4096]  model.safetensors");
}

TEST_CASE("a table with too many number columns is split into parts with the same keys", "[cli]") {
  const std::string text = numbers(2, 7).text(40);
  CHECK(widest_line(text) <= 40);
  CHECK(text ==
        "number 0  number 1  number 2  number 3\n"
        "--------  --------  --------  --------\n"
        "       0         1         2         3\n"
        "     100       101       102       103\n\n"
        "number 0  number 1  number 4  number 5\n"
        "--------  --------  --------  --------\n"
        "       0         1         4         5\n"
        "     100       101       104       105\n\n"
        "number 0  number 1  number 6\n"
        "--------  --------  --------\n"
        "       0         1         6\n"
        "     100       101       106");
}

TEST_CASE("a table too narrow for one number column is still printed", "[cli]") {
  CHECK_THAT(numbers(1, 2).text(10),
             ContainsSubstring("number 0  number 1") && ContainsSubstring("101"));
}

}  // namespace
}  // namespace regroup
