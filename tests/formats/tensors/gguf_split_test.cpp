// Models in several GGUF files, and every way in which the files may not be one model.
#include <catch2/catch_test_macros.hpp>

#include "formats/model/model.h"
#include "formats/model/model_directory.h"
#include "formats/model/model_summary.h"
#include "formats/tensors/gguf.h"
#include "tests/checkpoint_builder.h"
#include "tests/refusal.h"
#include "tests/split_gguf.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

const fs::path kUnsplit = golden("gguf/llama.gguf");

// A part of the golden model with the wrong keys, in place of the right one.
void replace_part(const TemporaryDirectory& directory, std::size_t number, GgufMetadata keys,
                  const GgufPartKeys& part, std::size_t begin, std::size_t end) {
  put_gguf_part(directory / gguf_part_name(number, 3), open_checkpoint(kUnsplit), std::move(keys),
                part, begin, end);
}

struct SplitModel {
  SplitModel() { split_gguf(kUnsplit, directory.path(), 3); }
  fs::path part(std::size_t number) const { return directory / gguf_part_name(number, 3); }
  Error refusal() const {
    return refusal_of([&] { open_gguf_files(part(1)); });
  }

  TemporaryDirectory directory;
};

TEST_CASE("a model in three GGUF files is read like the one file", "[formats]") {
  const SplitModel split;
  const Model whole = open_model(kUnsplit);
  const Checkpoint shuffled = open_checkpoint(split.part(1));
  REQUIRE(shuffled.files().size() == 3);
  REQUIRE(shuffled.tensors().size() == whole.checkpoint.tensors().size());
  for (const TensorInfo& tensor : whole.checkpoint.tensors()) {
    CAPTURE(tensor.name);
    CHECK(bytes_of(shuffled, tensor.name) == bytes_of(whole.checkpoint, tensor.name));
  }
  for (const fs::path& given : {split.part(1), split.directory.path()}) {
    const Model model = open_model(given);
    CHECK(model.convention == Convention::kGguf);
    CHECK(model.path == split.part(1));
    CHECK(fingerprint_of(model) == fingerprint_of(whole));
    CHECK(model.gguf->entries().size() == whole.gguf->entries().size());  // no "split.*"
    CHECK(summarize_model(given, open_checkpoint(given)).files == 3);
  }
}

TEST_CASE("a GGUF model of one part, and one merged from parts, have no parts", "[formats]") {
  const TemporaryDirectory directory;
  split_gguf(kUnsplit, directory.path(), 1);
  CHECK(open_model(directory / "model-00001-of-00001.gguf").gguf->find("split.count") == nullptr);
  put_gguf_part(directory / "merged.gguf", open_checkpoint(kUnsplit), open_gguf(kUnsplit).metadata,
                {0, 0, 20}, 0, 20);  // gguf-split --merge leaves a count of 0
  CHECK(open_checkpoint(directory / "merged.gguf").tensors().size() == 20);
}

TEST_CASE("a missing part of a GGUF model is named", "[formats]") {
  const SplitModel split;
  fs::remove(split.part(3));
  CHECK_THAT(split.refusal(), is_bad_input("model-00003-of-00003.gguf: part 3 of 3 is missing"));
  fs::remove(split.part(1));
  CHECK_THAT(refusal_of([&] { open_model(split.directory.path()); }),
             is_bad_input("model-00001-of-00003.gguf: part 1 of 3 is missing"));
}

TEST_CASE("a part that is not the first is refused, and the first is named", "[formats]") {
  const SplitModel split;
  CHECK_THAT(refusal_of([&] { open_model(split.part(2)); }),
             is_bad_input("part 2 of 3", "give the first one, model-00001-of-00003.gguf"));
  CHECK_THAT(refusal_of([&] { gguf_metadata_of(split.part(3)); }), is_bad_input("part 3 of 3"));
}

TEST_CASE("a GGUF part under the name of another one is refused", "[formats]") {
  const SplitModel split;
  fs::copy_file(split.part(2), split.part(3), fs::copy_options::overwrite_existing);
  CHECK_THAT(split.refusal(),
             is_bad_input("00003-of-00003.gguf: is part 2 of 3", "NAME-00002-of-00003.gguf"));
}

TEST_CASE("GGUF parts with other names are refused", "[formats]") {
  const SplitModel split;
  fs::copy_file(split.part(1), split.directory / "model.gguf");
  CHECK_THAT(refusal_of([&] { open_model(split.directory / "model.gguf"); }),
             is_bad_input("model.gguf: is part 1 of 3", "NAME-00001-of-00003.gguf"));
  const fs::path other = split.directory / "model-00001-of-00004.gguf";
  fs::rename(split.directory / "model.gguf", other);
  CHECK_THAT(refusal_of([&] { open_model(other); }), is_bad_input("NAME-00001-of-00003.gguf"));
  const fs::path whole = split.directory / "whole-00001-of-00002.gguf";
  fs::copy_file(kUnsplit, whole);
  CHECK_THAT(refusal_of([&] { open_model(whole); }),
             is_bad_input("one of 2 parts", "split.count is missing", "rename"));
}

TEST_CASE("GGUF parts of different models are refused", "[formats]") {
  const SplitModel split;
  SECTION("another number of parts") {
    replace_part(split.directory, 2, {}, {1, 4, 20}, 6, 13);
    CHECK_THAT(split.refusal(), is_bad_input("00002-of-00003.gguf", "split.count is 4", "there 3"));
  }
  SECTION("another number of tensors") {
    replace_part(split.directory, 2, {}, {1, 3, 19}, 6, 13);
    CHECK_THAT(split.refusal(), is_bad_input("split.tensors.count is 19", "there 20"));
  }
  SECTION("other keys") {
    GgufMetadata keys;
    keys.set_string("general.architecture", "gpt2");
    replace_part(split.directory, 2, keys, {1, 3, 20}, 6, 13);
    CHECK_THAT(split.refusal(), is_bad_input("general.architecture has another value"));
  }
  SECTION("no keys of parts") {
    fs::copy_file(kUnsplit, split.part(2), fs::copy_options::overwrite_existing);
    CHECK_THAT(split.refusal(), is_bad_input("split.count is missing"));
  }
  SECTION("the same tensors twice") {
    replace_part(split.directory, 2, {}, {1, 3, 20}, 5, 12);
    CHECK_THAT(refusal_of([&] { open_model(split.part(1)); }), is_bad_input("is in both"));
  }
}

TEST_CASE("GGUF parts with more or fewer tensors than the first says are refused", "[formats]") {
  const SplitModel split;
  replace_part(split.directory, 3, {}, {2, 3, 20}, 13, 19);
  CHECK_THAT(split.refusal(), is_bad_input("3 parts have 19 tensors", "split.tensors.count is 20"));
  replace_part(split.directory, 2, {}, {1, 3, 20}, 0, 20);
  CHECK_THAT(split.refusal(), is_bad_input("2 parts have 26 tensors"));  // before the third
}

TEST_CASE("numbers of GGUF parts beyond the limits are refused without opening any", "[formats]") {
  const TemporaryDirectory directory;
  const auto refusal_with = [&](GgufPartKeys keys) {
    const fs::path path = directory / gguf_part_name(1, keys.count);
    put_gguf_part(path, open_checkpoint(kUnsplit), {}, keys, 0, 1);
    return refusal_of([&] { open_gguf_files(path); });
  };
  CHECK_THAT(refusal_with({0, 65535, 20}), is_bad_input("split.count is 65535", "at most 512"));
  CHECK_THAT(refusal_with({0, 3, 30'001}),
             is_bad_input("split.tensors.count is 30001", "at most 30000"));
  CHECK_THAT(refusal_with({0, 3, ~0U}), is_bad_input("split.tensors.count", "-1"));
}

TEST_CASE("the directory of a GGUF model can be given in its place, unless it has other weights",
          "[formats]") {
  const TemporaryDirectory directory;
  CHECK_FALSE(gguf_model_in(directory.path()));
  fs::copy_file(kUnsplit, directory / "b.gguf");
  put_file(directory / "config.json", "{}");
  CHECK(open_model(directory.path()).path == directory / "b.gguf");
  fs::copy_file(kUnsplit, directory / "a.gguf");
  CHECK_THAT(refusal_of([&] { open_model(directory.path()); }),
             is_bad_input("holds 2 models in GGUF files", "such as a.gguf"));
  fs::copy_file(golden("llama/model.safetensors"), directory / "model.safetensors");
  CHECK(resolve_weights_path(directory.path()) == directory.path());
}

TEST_CASE("names of GGUF parts are read as gguf-split writes them", "[formats]") {
  const auto found = parse_gguf_part_name("a-b-00002-of-00010.gguf");
  REQUIRE(found);
  CHECK(found->prefix == "a-b");
  CHECK(found->number == 2);
  CHECK(found->count == 10);
  CHECK(found->text() == "a-b-00002-of-00010.gguf");
  for (const char* other : {"m.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
                            "m-0001-of-0002.gguf", "m-00001_of_00002.gguf", "m-00001-of-00002.bin",
                            "m-+0001-of-00002.gguf", "00001-of-00002.gguf", ""}) {
    CAPTURE(other);
    CHECK_FALSE(parse_gguf_part_name(other));
  }
}

}  // namespace
}  // namespace regroup
