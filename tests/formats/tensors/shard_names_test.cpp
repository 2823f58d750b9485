// The names of shards and the text of their index.
#include <string>
#include <vector>

#include <catch2/catch_test_macros.hpp>

#include "formats/base/json.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {
namespace {

TEST_CASE("index text names shards as transformers does", "[formats]") {
  CHECK(shard_name(0, 1) == "model.safetensors");
  CHECK(shard_name(0, 3) == "model-00001-of-00003.safetensors");
  CHECK(shard_name(122, 123) == "model-00123-of-00123.safetensors");
  const std::vector<std::pair<std::string, std::size_t>> placed{{"z", 0}, {"b", 1}, {"c", 1}};
  CHECK(encode_index(placed, 2, 77) == R"({
  "metadata": {
    "total_size": 77
  },
  "weight_map": {
    "b": "model-00002-of-00002.safetensors",
    "c": "model-00002-of-00002.safetensors",
    "z": "model-00001-of-00002.safetensors"
  }
}
)");
}

TEST_CASE("torch shards have torch's names", "[formats]") {
  CHECK(shard_name(0, 1, kTorchWeightNames) == kTorchSingleFile);
  CHECK(shard_name(1, 2, kTorchWeightNames) == "pytorch_model-00002-of-00002.bin");
  const std::vector<std::pair<std::string, std::size_t>> placed{{"a", 1}};
  const Json index = Json::parse(encode_index(placed, 2, 4, kTorchWeightNames));
  CHECK(index["weight_map"]["a"] == "pytorch_model-00002-of-00002.bin");
}

TEST_CASE("tensor names are escaped in an index", "[formats]") {
  const std::string name = "a\"b\\c\n";
  const std::vector<std::pair<std::string, std::size_t>> placed{{name, 0}};
  const Json index = Json::parse(encode_index(placed, 1, 4));
  REQUIRE(index["weight_map"].size() == 1);
  CHECK(index["weight_map"].items().begin().key() == name);
}

}  // namespace
}  // namespace regroup
