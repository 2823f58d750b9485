#include "uptrain/train/run_directory.h"

#include <cmath>
#include <span>
#include <string>
#include <vector>

#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/base/checksum.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

const Json kRecipe = {{"batch", 8}, {"seed", 1}};

std::vector<StateTensor> tensors_of(double value) {
  return {{"weight.a", at::full({3, 4}, value, at::kFloat)},
          {"first_moment.a", at::full({3, 4}, -value, at::kFloat)},
          {"optimizer.count", at::full({}, value, at::kFloat)}};
}

double value_in(const std::vector<StateTensor>& tensors) {
  return tensors.front().value.flatten()[0].item<double>();
}

void no_warnings(const std::string& text) { FAIL(text); }

// Flips one bit of the byte at `offset`.
void damage(const fs::path& file, std::size_t offset) {
  std::string bytes = bytes_of_file(file);
  bytes[offset] = static_cast<char>(bytes[offset] ^ 1);
  put_file(file, bytes);
}

}  // namespace

TEST_CASE("a saved state reads back", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  run.save({.step = 12, .samples = 96, .skipped = 2, .skipped_in_a_row = 1, .evaluated = 10},
           tensors_of(0.1));
  const auto tensors = tensors_of(0);
  const auto progress = run.load_newest(tensors, no_warnings);
  REQUIRE(progress);
  CHECK(progress->step == 12);
  CHECK(progress->samples == 96);
  CHECK(progress->skipped == 2);
  CHECK(progress->skipped_in_a_row == 1);
  CHECK(progress->evaluated == 10);
  const auto saved = tensors_of(0.1);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    CHECK(tensors[i].value.equal(saved[i].value));
  }
}

TEST_CASE("a state in parts reads back whole or in other parts", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  const auto saved = tensors_of(0.5);
  run.save({.step = 7, .samples = 56}, std::span(saved).first(1), {0, 2});
  CHECK_FALSE(run.is_saved(7));
  run.save({.step = 7, .samples = 56}, std::span(saved).subspan(1), {1, 2});
  CHECK(run.is_saved(7));
  for (const std::size_t begin : {0, 1, 2}) {
    const auto tensors = tensors_of(0);
    const auto wanted = std::span(tensors).subspan(begin);
    REQUIRE(run.load_newest(wanted, no_warnings));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      CHECK(tensors[i].value.equal(saved[i].value) == (i >= begin));
    }
  }
}

TEST_CASE("parts of different steps or of another place are not one state", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  const auto saved = tensors_of(0.5);
  run.save({.step = 7, .samples = 56}, std::span(saved).first(1), {0, 2});
  run.save({.step = 7, .samples = 56}, std::span(saved).subspan(1), {1, 2});
  run.save({.step = 8, .samples = 64}, std::span(saved).first(1), {0, 2});
  run.save({.step = 8, .samples = 64}, std::span(saved).subspan(1), {1, 2});
  const auto part_of = [&](const char* step, const char* part) {
    return run.path() / (std::string("state-0000000") + step) / part;
  };
  fs::remove_all(part_of("8", "part-2-of-2"));
  fs::copy(part_of("7", "part-2-of-2"), part_of("8", "part-2-of-2"), fs::copy_options::recursive);
  fs::remove_all(part_of("7", "part-2-of-2"));
  fs::copy(part_of("7", "part-1-of-2"), part_of("7", "part-2-of-2"), fs::copy_options::recursive);
  std::vector<std::string> warnings;
  CHECK_THAT(refusal_of([&] {
               run.load_newest(tensors_of(0),
                               [&](const std::string& text) { warnings.push_back(text); });
             }),
             is_bad_input("no state is usable"));
  REQUIRE(warnings.size() == 2);
  CHECK(warnings[0].find("of different steps") != std::string::npos);
  CHECK(warnings[1].find("another part of the state") != std::string::npos);
}

TEST_CASE("a run without states starts at step 0", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  CHECK_FALSE(run.load_newest(tensors_of(0), no_warnings));
}

TEST_CASE("the last two states are kept and all are removed at the end", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  for (std::int64_t step = 1; step <= 4; ++step) {
    run.save({.step = step, .samples = step}, tensors_of(static_cast<double>(step)));
  }
  CHECK_FALSE(fs::exists(run.path() / "state-00000002"));
  CHECK(fs::exists(run.path() / "state-00000003"));
  CHECK(fs::exists(run.path() / "state-00000004"));
  run.remove_states();
  CHECK(tree_of(run.path()).size() == 1);  // run.json
}

TEST_CASE("a damaged state is set aside and the previous one used", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  run.save({.step = 1, .samples = 1}, tensors_of(1));
  run.save({.step = 2, .samples = 2}, tensors_of(2));
  const fs::path newest = run.path() / "state-00000002" / "part-1-of-1";
  const auto* fault = GENERATE("first tensor", "last tensor", "header", "state.json", "truncated",
                               "no weights", "no state.json", "empty state.json");
  CAPTURE(fault);
  const std::string weights = bytes_of_file(newest / "model.safetensors");
  const std::string what = fault;
  if (what == "first tensor") {
    damage(newest / "model.safetensors", weights.size() - 1);
  } else if (what == "last tensor") {
    damage(newest / "model.safetensors", weights.size() - 60);
  } else if (what == "header") {
    damage(newest / "model.safetensors", weights.find("weight.a"));
  } else if (what == "state.json") {
    damage(newest / "state.json", bytes_of_file(newest / "state.json").find("\"step\": 2") + 8);
  } else if (what == "truncated") {
    fs::resize_file(newest / "model.safetensors", weights.size() - 1);
  } else if (what == "no weights") {
    fs::remove(newest / "model.safetensors");
  } else if (what == "no state.json") {
    fs::remove(newest / "state.json");
  } else {
    fs::resize_file(newest / "state.json", 0);
  }
  std::vector<std::string> warnings;
  const auto tensors = tensors_of(0);
  const auto progress =
      run.load_newest(tensors, [&](const std::string& text) { warnings.push_back(text); });
  REQUIRE(progress);
  CHECK(progress->step == 1);
  CHECK(value_in(tensors) == 1.0);
  REQUIRE(warnings.size() == 1);
  CHECK(warnings.front().find("state-00000002") != std::string::npos);
  CHECK(fs::exists(run.path() / "damaged-state-00000002"));
}

TEST_CASE("a run with only damaged states does not start over by itself", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  run.save({.step = 1, .samples = 1}, tensors_of(1));
  fs::resize_file(run.path() / "state-00000001" / "part-1-of-1" / "state.json", 10);
  for (int tries = 0; tries < 2; ++tries) {
    CHECK_THAT(refusal_of([&] { run.load_newest(tensors_of(0), [](const std::string&) {}); }),
               is_bad_input("out.run", "no state is usable", "state.json"));
    CHECK(fs::exists(run.path() / "state-00000001"));
  }
  fs::rename(run.path() / "state-00000001", run.path() / "damaged-state-00000001");
  CHECK_THAT(refusal_of([&] { run.load_newest(tensors_of(0), no_warnings); }),
             is_bad_input("no state is usable", "damaged-state-00000001"));
}

TEST_CASE("a partially written state is ignored", "[uptrain]") {
  const TemporaryDirectory directory;
  {
    const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
    run.save({.step = 1, .samples = 1}, tensors_of(1));
    put_file(run.path() / "state-00000002" / "part-1-of-1.partial-77" / "model.safetensors",
             "half");
    run.save({.step = 3, .samples = 3}, tensors_of(3),
             {1, 2});  // the first of two parts is missing
  }
  const RunDirectory run = RunDirectory::resume(directory / "out", kRecipe, "model");
  CHECK(run.load_newest(tensors_of(0), no_warnings)->step == 1);
  CHECK_FALSE(fs::exists(run.path() / "state-00000002"));
  CHECK_FALSE(fs::exists(run.path() / "state-00000003"));
}

TEST_CASE("resuming with other settings or another model is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  RunDirectory::create(directory / "out", kRecipe, "model");
  const auto resume = [&](const Json& recipe, const std::string& model) {
    return refusal_of([&] { RunDirectory::resume(directory / "out", recipe, model); });
  };
  CHECK_THAT(resume({{"batch", 16}, {"seed", 2}}, "model"),
             is_wrong_usage("out.run", "batch was 8, now 16", "seed was 1, now 2"));
  CHECK_THAT(resume({{"batch", 8}}, "model"), is_wrong_usage("seed was 1, now none (--seed)"));
  CHECK_THAT(resume({{"batch", 8}, {"seed", 1}, {"attention_weight", 0.1}}, "model"),
             is_wrong_usage("attention_weight was none, now 0.1 (--distill-attention)"));
  CHECK_THAT(resume(kRecipe, "other"), is_bad_input("out.run", "another model"));
  put_file(directory / "out.run" / "run.json", "{}");
  CHECK_THAT(resume(kRecipe, "model"), is_bad_input("run.json", "recipe"));
}

TEST_CASE("a state of another run is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  const RunDirectory other = RunDirectory::create(directory / "other", kRecipe, "other model");
  other.save({.step = 1, .samples = 1}, tensors_of(1));
  fs::rename(other.path() / "state-00000001", run.path() / "state-00000001");
  CHECK_THAT(refusal_of([&] { run.load_newest(tensors_of(0), [](const std::string&) {}); }),
             is_wrong_usage("another run", "move it away"));
  CHECK(fs::exists(run.path() / "state-00000001"));
}

TEST_CASE("only what the run has written is removed", "[uptrain]") {
  const TemporaryDirectory directory;
  std::vector<fs::path> own;
  {
    const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
    for (const char* name : {"state-notes", "state-7", "state-00000002.bak", "state-00000005",
                             "state-00000001/part-1-of-1", "damaged-state-of-mine"}) {
      own.push_back(run.path() / name / "mine.txt");
      put_file(own.back(), "kept");
    }
    own.push_back(run.path() / "state-00000009");  // a file
    put_file(own.back(), "kept");
    for (const std::int64_t step : {2, 3, 4}) {
      run.save({.step = step, .samples = step}, tensors_of(1));
    }
  }
  const RunDirectory run = RunDirectory::resume(directory / "out", kRecipe, "model");
  CHECK(run.load_newest(tensors_of(0), [](const std::string&) {})->step == 4);
  CHECK_FALSE(fs::exists(run.path() / "state-00000002"));
  run.remove_states();
  CHECK_FALSE(fs::exists(run.path() / "state-00000004"));
  for (const fs::path& file : own) {
    CAPTURE(file);
    CHECK(bytes_of_file(file) == "kept");
  }
}

TEST_CASE("a state that is damaged again keeps the one that was set aside before", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  run.save({.step = 1, .samples = 1}, tensors_of(1));
  for (int times = 0; times < 2; ++times) {
    run.save({.step = 2, .samples = 2}, tensors_of(2));
    fs::resize_file(run.path() / "state-00000002" / "part-1-of-1" / "state.json", 10);
    CHECK(run.load_newest(tensors_of(0), [](const std::string&) {})->step == 1);
  }
  CHECK(fs::exists(run.path() / "damaged-state-00000002"));
  CHECK(fs::exists(run.path() / "damaged-state-00000002-2"));
}

TEST_CASE("numbers that no run reaches are refused even with a valid checksum", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  run.save({.step = 12, .samples = 96, .skipped = 2, .skipped_in_a_row = 1, .evaluated = 10},
           tensors_of(1));
  const fs::path file = run.path() / "state-00000012" / "part-1-of-1" / "state.json";
  const Json good = Json::parse(bytes_of_file(file));
  const auto refusal_with = [&](const char* key, const Json& value) {
    Json state = good;
    state.erase("checksum");
    state[key] = value;
    state["checksum"] = checksum_of(state.dump());
    put_file(file, state.dump());
    return refusal_of([&] { run.load_newest(tensors_of(0), [](const std::string&) {}); });
  };
  CHECK_THAT(refusal_with("samples", -1), is_bad_input("state.json", "samples is -1"));
  CHECK_THAT(refusal_with("step", -1), is_bad_input("step is -1"));
  CHECK_THAT(refusal_with("step", 4e18), is_bad_input("step is 4e+18"));
  CHECK_THAT(refusal_with("step", 18446744073709551615U), is_bad_input("step is 1844"));
  CHECK_THAT(refusal_with("step", 13), is_bad_input("holds the state after step 13"));
  CHECK_THAT(refusal_with("skipped", 13), is_bad_input("skipped is 13"));
  CHECK_THAT(refusal_with("skipped_in_a_row", 3), is_bad_input("skipped_in_a_row is 3"));
  CHECK_THAT(refusal_with("evaluated", 13), is_bad_input("evaluated is 13"));
  CHECK_THAT(refusal_with("evaluated", "10"), is_bad_input("evaluated is"));
}

TEST_CASE("values that training never leaves are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  auto tensors = tensors_of(1);
  SECTION("NaN") { tensors[0].value[1][2] = std::nan(""); }
  SECTION("a negative second moment") {
    tensors[1] = {"second_moment.a", at::full({3, 4}, -1e-3, at::kFloat)};
  }
  SECTION("a negative number of updates") { tensors[2].value.fill_(-1.0); }
  run.save({.step = 1, .samples = 8}, tensors);
  CHECK_THAT(refusal_of([&] { run.load_newest(tensors, [](const std::string&) {}); }),
             is_bad_input("no state is usable", "holds"));
}

TEST_CASE("an existing output or run is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  CHECK_THAT(refusal_of([&] { RunDirectory::resume(directory / "out", kRecipe, "model"); }),
             is_wrong_usage("out.run", "no run to resume"));
  {
    const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  }
  CHECK_THAT(refusal_of([&] { RunDirectory::create(directory / "out", kRecipe, "model"); }),
             is_wrong_usage("out.run", "holds a run already"));
  fs::create_directory(directory / "out");
  CHECK_THAT(refusal_of([&] { RunDirectory::resume(directory / "out", kRecipe, "model"); }),
             is_wrong_usage("out", "exists already"));
}

TEST_CASE("only one process can use a run", "[uptrain]") {
  const TemporaryDirectory directory;
  const RunDirectory run = RunDirectory::create(directory / "out", kRecipe, "model");
  CHECK_THAT(refusal_of([&] { RunDirectory::resume(directory / "out", kRecipe, "model"); }),
             is_wrong_usage("out.run", "another process"));
}

}  // namespace regroup
