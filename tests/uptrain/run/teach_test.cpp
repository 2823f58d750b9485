// Stored teacher logits, and runs that learn from them.
#include "uptrain/run/teach.h"

#include <cmath>
#include <cstring>
#include <functional>
#include <span>

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/softmax.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <catch2/matchers/catch_matchers_floating_point.hpp>

#include "formats/base/json.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/taught_run.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/model/parameters.h"
#include "uptrain/run/uptrain_plan.h"
#include "uptrain/train/teacher_logits_file.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

double loss_of(const UptrainSettings& run, const fs::path& output) {
  UptrainSettings settings = run;
  settings.output = output;
  return run_to_end(settings).last_loss;
}

// The teacher's probabilities for one window, computed without a batch: [N, V].
at::Tensor probabilities_of(const Transformer& teacher, const at::Tensor& window,
                            std::int64_t sample, const Task& task, double temperature) {
  const at::NoGradGuard no_gradients;
  const at::Tensor ids = window.narrow(1, 0, window_width(task.objective, window.size(1) - 1));
  const at::Tensor logits = teacher.logits(predict(teacher, ids, sample, task).hidden);
  return (logits.flatten(0, 1) / temperature).softmax(1);
}

}  // namespace

TEST_CASE("teacher logits are the most likely tokens for the windows that a run draws",
          "[uptrain]") {
  const auto* name = GENERATE("llama", "t5", "bert");
  CAPTURE(name);
  const TemporaryDirectory directory;
  UptrainSettings run = short_run(directory.path(), name, 4);
  put_file(run.data.front(), bytes_of_numbers(learnable_text(2000, 36)));
  run.task.mask_token = 37;
  run.task.sentinels = Sentinels{39, 3};
  run.teacher.distillation.temperature = 1.5;
  const TeachSettings settings = settings_for(run, run.model, 12, 3);
  make_answers(settings, directory / "answers");

  const Model teacher = open_computable_model(run.model);
  const DataLoader data = open_training_data(run, teacher.spec);
  const TeachPlan plan = plan_teaching(settings, teacher, data);
  const Transformer model = load_transformer(teacher, at::kFloat, at::kCPU);
  TeacherLogitsCache answers = TeacherLogitsCache::open(directory / "answers");
  CHECK(answers.facts().files() == 3);
  for (std::int64_t sample = 0; sample < 12; ++sample) {
    CAPTURE(sample);
    const at::Tensor window = data.batch(sample, 1);
    const at::Tensor exact = probabilities_of(model, window, sample, plan.task, 1.5);
    const TopKLogits read = answers.read(window, sample);
    const at::Tensor stored = read.log_probabilities.exp();
    REQUIRE(read.ids.size(0) == exact.size(0));
    CHECK(largest_difference(stored.narrow(1, 0, 3), exact.gather(1, read.ids)) < 1e-3);
    CHECK(largest_difference(stored.narrow(1, 0, 3),
                             std::get<0>(exact.sort(1, true)).narrow(1, 0, 3)) < 1e-3);
    CHECK(largest_difference(stored.sum(1), at::ones_like(stored.sum(1))) < 2e-3);
  }
}

TEST_CASE("teacher logits hold tokens of vocabularies beyond 16 bits", "[uptrain]") {
  const std::int64_t vocab_size = GENERATE(65'536, 65'537);
  CAPTURE(vocab_size);
  const TemporaryDirectory directory;
  TinyModel config = golden_model("llama");
  config.set("vocab_size", std::to_string(vocab_size));
  write_new_model({config.config, "config.json"}, 3, DType::kF32, directory / "teacher");
  const UptrainSettings run = short_run(directory.path(), "llama", 4);
  const TeachSettings settings = settings_for(run, directory / "teacher", 2, vocab_size);
  make_answers(settings, directory / "answers");
  TeacherLogitsCache answers = TeacherLogitsCache::open(directory / "answers");
  const Model teacher = open_computable_model(directory / "teacher");
  const DataLoader data = open_training_data(run, teacher.spec);
  const at::Tensor ids = answers.read(data.batch(1, 1), 1).ids;
  const auto [sorted, order] = ids.sort(1);
  CHECK(sorted.select(0, 11).equal(at::arange(vocab_size, at::kLong)));  // each token once
  CHECK(answers.facts().id_bytes() ==
        static_cast<std::uint64_t>(12 * vocab_size * (vocab_size == 65'536 ? 2 : 4)));
}

TEST_CASE("logits of all tokens equal the teacher and those of a few tokens approximate it",
          "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings all = taught_run(directory / "all", 64);
  UptrainSettings asked = all;
  asked.teacher.logits.clear();
  asked.teacher.model = golden("llama_bf16");
  const double online = loss_of(asked, directory / "online");
  CHECK_THAT(loss_of(all, directory / "read"), Catch::Matchers::WithinAbs(online, 1e-4));
  CHECK(loss_of(taught_run(directory / "few", 2), directory / "less") < online - 1e-3);
}

TEST_CASE("a run with stored teacher logits resumes exactly", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings run = taught_run(directory.path(), 8);
  run_to_end(run);
  for (std::int64_t stop_after = 0; stop_after <= 3; ++stop_after) {
    CAPTURE(stop_after);
    run.output = directory / ("stopped-" + std::to_string(stop_after));
    run_until(run, stop_after);
    run_to_end(run, /*resume=*/true);
    CHECK(tree_of(run.output) == tree_of(directory / "out"));
  }
  run.output = directory / "other";
  run_until(run, 2);
  make_answers(settings_for(run, golden("llama_bf16"), 24, 9), directory / "others");
  run.teacher.logits = directory / "others";
  CHECK_THAT(refusal_of([&] { run_to_end(run, true); }),
             is_wrong_usage("teacher_top was 8, now 9"));
}

TEST_CASE("teacher logits do not depend on batch and micro-batches", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings run = taught_run(directory.path(), 8);
  const double loss = loss_of(run, directory / "three");
  run.batch = 1;
  run.accumulation = 6;
  CHECK_THAT(loss_of(run, directory / "one"), Catch::Matchers::WithinRel(loss, 1e-5));
  run.steps = 3;
  CHECK(loss_of(run, directory / "fewer") > 0);  // a shorter run needs fewer windows
}

TEST_CASE("separate documents have teacher logits for their own lengths", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings run = short_run(directory.path(), "llama", 4);
  run.documents = {.separate = true, .mark = DocumentMark{.token = 3}};
  run.teacher.distillation = {1.0, 1.0};
  make_answers(settings_for(run, run.model, 24, 64), directory / "answers");
  run.teacher.logits = directory / "answers";
  run.steps = 1;
  CHECK(std::abs(loss_of(run, directory / "same")) < 1e-5);  // model and teacher are equal
}

TEST_CASE("teacher logits for other settings are refused before files are written", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings run = taught_run(directory.path(), 4);
  const auto refusal = [&] { return refusal_of([&] { run_to_end(run); }); };
  SECTION("seed") {
    run.seed = 8;
    CHECK_THAT(refusal(), is_wrong_usage("answers", "seed is 7 there, 8 here"));
  }
  SECTION("sequence") {
    run.sequence_length = 11;
    CHECK_THAT(refusal(), is_wrong_usage("answers", "sequence_length is 12 there, 11 here"));
  }
  SECTION("temperature") {
    run.teacher.distillation.temperature = 1.0;
    CHECK_THAT(refusal(), is_wrong_usage("answers", "temperature is 2.0 there, 1.0 here"));
  }
  SECTION("documents") {
    run.documents = {.separate = true, .mark = DocumentMark{.token = 3}};
    CHECK_THAT(refusal(), is_wrong_usage("documents is null there, \"separate\" here"));
  }
  SECTION("more windows than stored") {
    run.steps = 5;
    CHECK_THAT(refusal(), is_wrong_usage("24 windows, this run reads 30", "--windows 30"));
  }
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

TEST_CASE("teacher logits of other texts or models are refused before files are written",
          "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings run = taught_run(directory.path(), 4);
  const auto refusal = [&] { return refusal_of([&] { run_to_end(run); }); };
  SECTION("other text of the same length") {
    std::string bytes = bytes_of_file(run.data.front());
    for (std::size_t i = 0; i < bytes.size(); i += 2) {
      bytes[i] = static_cast<char>(bytes[i] ^ 1);
    }
    put_file(run.data.front(), bytes);
    CHECK_THAT(refusal(), is_bad_input("answers-00000", "window 0", "token files differ"));
  }
  SECTION("another vocabulary") {
    run.model = golden("t5");
    put_file(run.data.front(), bytes_of_numbers(learnable_text(2000, 36)));
    run.task.sentinels = Sentinels{39, 3};
    CHECK_THAT(refusal(), is_bad_input("vocabulary has 64 tokens", "40"));
  }
  SECTION("a teacher model in addition") {
    run.teacher.model = golden("llama");
    CHECK_THAT(refusal(), is_wrong_usage("exclude each other"));
  }
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

TEST_CASE("teacher logits of a model other than the student's source are refused unless allowed",
          "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings run = taught_run(directory.path(), 4);  // of llama_bf16
  run.model = directory / "student";
  fs::copy(golden("llama"), run.model);
  const std::string config = bytes_of_file(run.model / "config.json");
  const auto record_source = [&](const std::string& fingerprint) {
    put_file(run.model / "config.json",
             with_member(config, {"regroup", "source_fingerprint"}, Json(fingerprint).dump()));
  };
  const auto notes = [&] {
    const Model student = open_computable_model(run.model);
    return plan_uptraining(run, student, open_training_data(run, student.spec)).notes;
  };
  record_source(fingerprint_of(open_computable_model(golden("llama_bf16"))));
  CHECK(notes().empty());
  record_source(fingerprint_of(open_computable_model(golden("llama"))));
  CHECK_THAT(refusal_of(notes), is_wrong_usage("answers: teacher logits of another model",
                                               "student", "--other-teacher"));
  run.teacher.any_source = true;
  CHECK(notes().empty());
  run.teacher.any_source = false;
  put_file(run.model / "config.json", config);
  REQUIRE(notes().size() == 1);
  CHECK(notes().front().find("student does not record its source") != std::string::npos);
  run.model = golden("llama_bf16");
  CHECK(notes().empty());
}

TEST_CASE("a conversion's result that has no teacher is told of its source", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings run = short_run(directory.path(), "llama", 4);
  run.model = directory / "student";
  fs::copy(golden("llama"), run.model);
  const std::string config = bytes_of_file(run.model / "config.json");
  const auto notes = [&](const char* kv_heads) {
    put_file(run.model / "config.json",
             with_member(config, {"regroup"},
                         fmt::format(R"({{"source_kv_heads": 4, "kv_heads": {}}})", kv_heads)));
    const Model student = open_computable_model(run.model);
    return plan_uptraining(run, student, open_training_data(run, student.spec)).notes;
  };
  CHECK(notes("4").empty());
  REQUIRE(notes("2").size() == 1);
  CHECK(notes("2").front().find("--teacher") != std::string::npos);
  run.teacher.model = golden("llama");
  CHECK(notes("2").empty());
}

TEST_CASE("interrupted teaching resumes to the same bytes", "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings run = short_run(directory.path(), "llama", 4);
  TeachSettings settings = settings_for(run, golden("llama_bf16"), 24, 4);
  make_answers(settings, directory / "whole");
  std::atomic<bool> stop{false};
  const Error stopped = refusal_of([&] {
    make_answers(
        settings, directory / "stopped",
        [&](std::int64_t done, std::int64_t) { stop = done >= 12; }, stop);
  });
  CHECK(stopped.kind() == ErrorKind::kInterruptedSaved);
  CHECK(std::string(stopped.what()).find("10 of 24") != std::string::npos);
  CHECK_FALSE(fs::exists(directory / "stopped"));
  CHECK(tree_of(directory / "stopped.parts").size() == 2);
  SECTION("with the same settings it computes only what is missing") {
    std::int64_t first = 0;
    make_answers(settings, directory / "stopped",
                 [&](std::int64_t done, std::int64_t) { first = first == 0 ? done : first; });
    CHECK(first == 14);
    CHECK(tree_of(directory / "stopped") == tree_of(directory / "whole"));
    CHECK_FALSE(fs::exists(directory / "stopped.parts"));
  }
  SECTION("with other settings it is refused") {
    settings.top = 5;
    CHECK_THAT(refusal_of([&] { make_answers(settings, directory / "stopped"); }),
               is_wrong_usage("other teacher logits", "remove", "stopped.parts"));
  }
}

TEST_CASE("invalid settings of teach are refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings run = short_run(directory.path(), "llama", 4);
  TeachSettings settings = settings_for(run, run.model, 24, 4);
  const auto refusal = [&] {
    return refusal_of([&] { make_answers(settings, directory / "answers"); });
  };
  SECTION("no tokens") {
    settings.top = 0;
    CHECK_THAT(refusal(), is_wrong_usage("top is 0", "1 to 64"));
  }
  SECTION("more tokens than the vocabulary") {
    settings.top = 65;
    CHECK_THAT(refusal(), is_wrong_usage("top is 65", "1 to 64"));
  }
  SECTION("temperature 0") {
    settings.run.teacher.distillation.temperature = 0;
    CHECK_THAT(refusal(), is_wrong_usage("temperature is 0"));
  }
  SECTION("an existing output") {
    fs::create_directory(directory / "answers");
    CHECK_THAT(refusal(), is_wrong_usage("answers", "exists already"));
  }
}

}  // namespace regroup
