// The index of a sharded checkpoint and its limits.
#include "formats/model/weight_index.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "formats/base/json.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A directory with shards one.safetensors {a} and two.safetensors {b}, and any index.
class Shards {
 public:
  Shards() {
    put_checkpoint(path("one.safetensors"), std::vector{varied_tensor("a", DType::kF32, {2})});
    put_checkpoint(path("two.safetensors"), std::vector{varied_tensor("b", DType::kF32, {3})});
  }

  fs::path path(std::string_view name) const { return directory_ / name; }

  std::vector<Checkpoint::Part> open(std::string_view index) const {
    put_file(path(kIndexFile), index);
    return open_indexed_shards(path(kIndexFile));
  }

  std::vector<Checkpoint::Part> open_map(std::string_view weight_map) const {
    return open(
        fmt::format(R"({{"metadata":{{"total_size":20}},"weight_map":{{{}}}}})", weight_map));
  }

  Error refusal(std::string_view index) const {
    return refusal_of([&] { open(index); });
  }
  Error refusal_of_map(std::string_view weight_map) const {
    return refusal_of([&] { open_map(weight_map); });
  }

 private:
  TemporaryDirectory directory_;
};

constexpr std::string_view kGoodMap = R"("a":"one.safetensors","b":"two.safetensors")";

TEST_CASE("index opens the shards it names", "[formats]") {
  const Shards shards;
  const Checkpoint checkpoint(shards.open_map(kGoodMap));
  CHECK(checkpoint.tensors().size() == 2);
  CHECK(checkpoint.file_of(checkpoint.at("b")).path().filename() == "two.safetensors");
}

TEST_CASE("index rejects files outside its directory", "[formats]") {
  const Shards shards;
  fs::create_directory(shards.path("inner"));
  fs::copy_file(shards.path("one.safetensors"), shards.path("inner/one.safetensors"));
  for (const std::string& shard :
       {std::string("../one.safetensors"), std::string("inner/one.safetensors"),
        std::string("./one.safetensors"), std::string("inner/../one.safetensors"),
        shards.path("one.safetensors").string(), std::string(".."), std::string("."),
        std::string(""), std::string("/"), std::string("one.safetensors/")}) {
    CAPTURE(shard);
    CHECK_THAT(shards.refusal_of_map(fmt::format(R"("a":"{}")", shard)),
               is_bad_input(kIndexFile, fmt::format("\"{}\"", shard), "plain file name"));
  }
  CHECK_THAT(shards.refusal_of_map(R"("a":"one.safetensors\u0000.txt")"),
             is_bad_input(kIndexFile, "plain file name"));
}

TEST_CASE("index rejects more shards or tensors than the limits", "[formats]") {
  const Shards shards;
  std::string many;
  for (int i = 0; i <= 10'000; ++i) {
    many += fmt::format(R"({}"{}":"s{}")", i == 0 ? "" : ",", i, i);
  }
  CHECK_THAT(shards.refusal_of_map(many), is_bad_input(kIndexFile, "more than 10000 shards"));
  many.clear();
  for (int i = 0; i <= 500'000; ++i) {
    many += fmt::format(R"({}"{}":"s")", i == 0 ? "" : ",", i);
  }
  CHECK_THAT(shards.refusal_of_map(many), is_bad_input(kIndexFile, "more than 500000 tensors"));
}

TEST_CASE("the first of several missing shards is named", "[formats]") {
  const Shards shards;
  std::string many;
  for (int i = 100; i < 400; ++i) {
    many += fmt::format(R"({}"{}":"s{}")", i == 100 ? "" : ",", i, i);
  }
  for (int run = 0; run < 20; ++run) {
    CHECK_THAT(shards.refusal_of_map(many), is_bad_input(kIndexFile, "shard s100 is missing"));
  }
}

TEST_CASE("shards may be links into a cache next to the directory", "[formats]") {
  const Shards shards;
  fs::create_directory(shards.path("blobs"));
  fs::rename(shards.path("one.safetensors"), shards.path("blobs/0123abcd"));
  fs::create_symlink("blobs/0123abcd", shards.path("one.safetensors"));
  CHECK(shards.open_map(kGoodMap).size() == 2);
}

TEST_CASE("index rejects dangling and circular links", "[formats]") {
  const Shards shards;
  fs::remove(shards.path("one.safetensors"));
  fs::create_symlink("gone", shards.path("one.safetensors"));
  CHECK_THAT(shards.refusal_of_map(kGoodMap),
             is_bad_input(kIndexFile, "one.safetensors", "missing"));
  fs::remove(shards.path("one.safetensors"));
  fs::create_symlink("one.safetensors", shards.path("one.safetensors"));
  CHECK_THAT(shards.refusal_of_map(kGoodMap), is_bad_input("one.safetensors"));
}

TEST_CASE("index rejects shards that are not regular files", "[formats]") {
  const Shards shards;
  fs::remove(shards.path("one.safetensors"));
  SECTION("a FIFO without waiting for a writer") {
    REQUIRE(::mkfifo(shards.path("one.safetensors").c_str(), 0600) == 0);
    CHECK_THAT(shards.refusal_of_map(kGoodMap),
               is_bad_input("one.safetensors", "not a regular file"));
  }
  SECTION("a device") {
    fs::create_symlink("/dev/zero", shards.path("one.safetensors"));
    CHECK_THAT(shards.refusal_of_map(kGoodMap),
               is_bad_input("one.safetensors", "not a regular file"));
  }
  SECTION("a directory") {
    fs::create_directory(shards.path("one.safetensors"));
    CHECK_THAT(shards.refusal_of_map(kGoodMap), is_bad_input("one.safetensors", "a directory"));
  }
}

TEST_CASE("index names a missing shard", "[formats]") {
  const Shards shards;
  fs::remove(shards.path("two.safetensors"));
  CHECK_THAT(shards.refusal_of_map(kGoodMap),
             is_bad_input(kIndexFile, "shard two.safetensors is missing", "1 tensors"));
}

TEST_CASE("shards are opened in the order of their names and the first broken one is reported",
          "[formats]") {
  const Shards shards;
  std::string map;
  for (int i = 0; i < 40; ++i) {
    const std::string tensor = fmt::format("t{}", i), file = fmt::format("s{:02}.safetensors", i);
    put_checkpoint(shards.path(file), std::vector{varied_tensor(tensor, DType::kF32, {2})});
    map += fmt::format("{}\"{}\":\"{}\"", i == 0 ? "" : ",", tensor, file);
  }
  const auto parts = shards.open_map(map);
  REQUIRE(parts.size() == 40);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    CHECK(parts[i].tensors.front().name == fmt::format("t{}", i));
  }
  put_file(shards.path("s07.safetensors"), "broken");
  put_file(shards.path("s31.safetensors"), "broken");
  for (int again = 0; again < 5; ++again) {
    CHECK_THAT(shards.refusal_of_map(map), is_bad_input("s07.safetensors"));
  }
}

TEST_CASE("index rejects a shard name longer than the system's limit", "[formats]") {
  const Shards shards;
  CHECK_THAT(shards.refusal_of_map(fmt::format(R"("a":"{}")", std::string(300, 'x'))),
             is_bad_input("xxx"));
}

TEST_CASE("an index must list every tensor of its shards", "[formats]") {
  const Shards shards;
  CHECK_THAT(shards.refusal_of_map(R"("a":"one.safetensors","c":"two.safetensors")"),
             is_bad_input(kIndexFile, "tensor b", "two.safetensors"));
}

TEST_CASE("index accepts tensors in any order and escaped names", "[formats]") {
  const Shards shards;
  put_checkpoint(shards.path("two.safetensors"), std::vector{varied_tensor("b", DType::kF32, {3}),
                                                             varied_tensor("c", DType::kF32, {2})});
  CHECK(shards.open_map(R"("c":"two.safetensors","a":"one.safetensors","b":"two.safetensors")")
            .size() == 2);
  CHECK(shards
            .open_map(
                R"("\u0061":"one.safetensors","\u0062":"two.safetensors","c":"two.safetensors")")
            .size() == 2);
  CHECK_THAT(shards.refusal_of_map(R"("a":"one.safetensors","\u0061":"two.safetensors")"),
             is_bad_input(kIndexFile, "duplicate key \"a\""));
  CHECK_THAT(shards.refusal_of_map(
                 R"("a":"one.safetensors","c":"two.safetensors","\u0064":"two.safetensors")"),
             is_bad_input(kIndexFile, "tensor b", "two.safetensors"));
}

TEST_CASE("a tensor that its shard lacks is passed over", "[formats]") {
  const Shards shards;
  std::string map(kGoodMap);
  for (const char* file : {"three.safetensors", "four.safetensors"}) {
    std::vector<BuiltTensor> tensors;
    for (int i = 0; i < 20; ++i) {
      tensors.push_back(varied_tensor(fmt::format("{}.{}", file, i), DType::kF32, {1}));
      map += fmt::format(R"(,"{}":"{}")", tensors.back().name, file);
    }
    put_checkpoint(shards.path(file), tensors);
  }
  CHECK(Checkpoint(shards.open_map(map)).tensors().size() == 42);
  CHECK(Checkpoint(shards.open_map(R"("c":"three.safetensors",)" + map)).tensors().size() == 42);
}

TEST_CASE("a tensor in two shards is refused", "[formats]") {
  const Shards shards;
  put_checkpoint(shards.path("two.safetensors"), std::vector{varied_tensor("a", DType::kF32, {2}),
                                                             varied_tensor("b", DType::kF32, {3})});
  CHECK_THAT(shards.refusal_of_map(kGoodMap),
             is_bad_input(kIndexFile, "tensor a", "two.safetensors", "another shard"));

  std::vector<Checkpoint::Part> parts = shards.open_map(R"("a":"one.safetensors")");
  parts.push_back(std::move(shards.open_map(R"("a":"one.safetensors")").front()));
  CHECK_THAT(refusal_of([&] { Checkpoint(std::move(parts)); }),
             is_bad_input("tensor a", "one.safetensors", "both"));
}

TEST_CASE("index rejects a missing or empty weight_map and one of the wrong type", "[formats]") {
  const Shards shards;
  CHECK_THAT(shards.refusal(R"({"metadata":{}})"),
             is_bad_input(kIndexFile, "weight_map is missing"));
  for (const std::string_view value : {"[]", "3", "null", "\"one.safetensors\""}) {
    CAPTURE(value);
    CHECK_THAT(shards.refusal(fmt::format(R"({{"weight_map":{}}})", value)),
               is_bad_input(kIndexFile, "weight_map", "object"));
  }
  CHECK_THAT(shards.refusal(R"({"weight_map":{}})"),
             is_bad_input(kIndexFile, "weight_map is empty"));
  CHECK_THAT(shards.refusal_of_map(R"("a":7)"), is_bad_input(kIndexFile, "weight_map entry a"));
}

TEST_CASE("index rejects text that is not one JSON object and rejects duplicate keys",
          "[formats]") {
  const Shards shards;
  CHECK_THAT(shards.refusal(""), is_bad_input(kIndexFile, "not valid JSON"));
  CHECK_THAT(shards.refusal("version https://git-lfs.github.com/spec/v1\n"),
             is_bad_input(kIndexFile, "git lfs pull"));
  CHECK_THAT(shards.refusal_of_map(R"("a":"one.safetensors","a":"two.safetensors")"),
             is_bad_input(kIndexFile, "duplicate key \"a\""));
  CHECK_THAT(shards.refusal(R"({"weight_map":{"a":"one.safetensors"},"weight_map":{}})"),
             is_bad_input(kIndexFile, "duplicate key \"weight_map\""));
  CHECK_THAT(shards.refusal("[1]"), is_bad_input(kIndexFile, "a JSON array"));
  CHECK_THAT(shards.refusal("7"), is_bad_input(kIndexFile, "a JSON number"));
  CHECK_THAT(shards.refusal(R"({"weight_map":{"a":{}}})"), is_bad_input(kIndexFile, "entry a"));
  CHECK_THAT(shards.refusal(fmt::format(R"({{"more":{}1)", std::string(100, '['))),
             is_bad_input(kIndexFile, "nested deeper than 64"));
}

TEST_CASE("total_size is read from metadata only", "[formats]") {
  const auto total = [](std::string_view metadata, std::string_view map = R"("a":"x")") {
    const std::string text = fmt::format(R"({{"weight_map":{{{}}},"metadata":{}}})", map, metadata);
    return parse_weight_index(text, kIndexFile).total_size;
  };
  CHECK(total(R"({"total_size":20})") == 20);
  CHECK(total(R"({"x":[1],"total_size":20})", R"("total_size":"7")") == 20);
  CHECK(total(R"({"more":{"total_size":1}},"total_size":2)") == std::nullopt);
  CHECK(total(R"({"total_size":-20})") == std::nullopt);
}

}  // namespace
}  // namespace regroup
