// Whole runs on tiny models.
#include "uptrain/run/uptrain.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <fmt/format.h>

#include "formats/base/checksum.h"
#include "tests/checkpoint_builder.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/golden_case.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

std::string weights_in(const fs::path& model) { return bytes_of_file(model / "model.safetensors"); }

// The metrics without fields that depend on the time.
std::vector<Json> timeless_metrics(const fs::path& run) {
  std::vector<Json> lines;
  std::ifstream file(run / "metrics.jsonl");
  for (std::string line; std::getline(file, line);) {
    Json parsed = Json::parse(line);
    parsed.erase("seconds");
    parsed.erase("tokens_per_second");
    lines.push_back(std::move(parsed));
  }
  return lines;
}

// A short run on a fixture with a vocabulary of 40 or more, which may have an encoder.
UptrainSettings encoder_run(const fs::path& directory, const std::string& name,
                            std::int64_t steps) {
  UptrainSettings settings = short_run(directory, name, steps);
  put_file(settings.data.front(), bytes_of_numbers(learnable_text(2000, 36)));
  settings.task.mask_token = 37;
  settings.task.sentinels = Sentinels{39, 3};
  return settings;
}

}  // namespace

TEST_CASE("uptraining lowers the loss and writes a model and metrics", "[uptrain]") {
  const auto* name = GENERATE("llama", "gpt2", "bloom");
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  CAPTURE(name, name_of(precision));
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), name, 25);
  settings.learning_rate = 1e-2;
  settings.precision = precision;
  settings.eval_data = settings.data.front();
  settings.eval_every = 10;
  const UptrainResult result = run_to_end(settings);
  CHECK(result.after.value().loss < result.before.value().loss - 0.5);
  CHECK(result.progress.step == 25);
  CHECK(result.progress.samples == 25 * 6);

  const Model saved = open_computable_model(settings.output);
  CHECK(saved.config["regroup"]["uptrain"]["steps"] == 25);
  CHECK(saved.config["regroup"]["uptrain"]["tokens"] == 25 * 72);
  CHECK(saved.config["regroup"]["uptrain"]["eval_loss_before"] == result.before->loss);
  CHECK(saved.config["regroup"]["uptrain"]["eval_loss"] == result.after->loss);
  CHECK(bytes_of_file(settings.output / "README.md")
            .find(fmt::format("| after | {:.4f} |", result.after->loss)) != std::string::npos);
  const auto lines = timeless_metrics(directory / "out.run");
  CHECK(lines.size() == 25 + 4);                      // evaluated at steps 0, 10, 20 and 25
  CHECK(tree_of(directory / "out.run").size() == 2);  // run.json and metrics.jsonl, no states
  const Evaluation again = evaluate(load_transformer(saved, scalar_type_of(precision), at::kCPU),
                                    TokenFile::open(settings.eval_data), {12, 3, {}}, {}, false);
  CHECK(std::abs(again.loss - result.after->loss) < 1e-6);
}

TEST_CASE("the same run gives the same bytes and another seed other ones", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  run_to_end(settings);
  settings.output = directory / "again";
  run_to_end(settings);
  CHECK(weights_in(directory / "again") == weights_in(directory / "out"));
  settings.output = directory / "other";
  settings.seed = 8;
  run_to_end(settings);
  CHECK(weights_in(directory / "other") != weights_in(directory / "out"));
}

TEST_CASE("a run stopped after any step resumes to the same bytes", "[uptrain]") {
  const auto* name = GENERATE("llama", "gpt2", "bloom");
  const auto precision = GENERATE(Precision::kFp32, Precision::kBf16);
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), name, 5);
  settings.precision = precision;
  settings.eval_data = settings.data.front();
  settings.eval_every = 2;
  settings.eval_max_tokens = 36;
  run_to_end(settings);
  for (std::int64_t stop_after = 0; stop_after <= 4; ++stop_after) {
    CAPTURE(name, name_of(precision), stop_after);
    settings.output = directory / ("stopped-" + std::to_string(stop_after));
    const Error error = run_until(settings, stop_after);
    CHECK(error.kind() == ErrorKind::kInterruptedSaved);
    CHECK_FALSE(fs::exists(settings.output));
    run_to_end(settings, /*resume=*/true);
    CHECK(tree_of(settings.output) == tree_of(directory / "out"));
    CHECK(timeless_metrics(settings.output.string() + ".run") ==
          timeless_metrics(directory / "out.run"));
  }
}

TEST_CASE("models with an encoder learn with and without grouping", "[uptrain]") {
  const auto* name = GENERATE("t5", "t5_v1_1", "mt5", "umt5", "bert", "roberta", "bart", "mbart",
                              "modernbert", "nomic_bert", "mpnet", "jina_bert", "electra_small");
  CAPTURE(name);
  const TemporaryDirectory directory;
  UptrainSettings settings = encoder_run(directory.path(), name, 40);
  settings.learning_rate = 1e-2;
  settings.eval_data = settings.data.front();
  const UptrainResult result = run_to_end(settings);
  CHECK(result.after.value().loss < result.before.value().loss - 0.3);
  const Model saved = open_computable_model(settings.output);
  const Json& record = saved.config["regroup"]["uptrain"];
  CHECK(record["objective"] == name_of(training_objective_of(saved.spec)));
}

TEST_CASE("T5's own recipe recovers a T5 with pooled heads", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = encoder_run(directory.path(), "t5", 60);
  TinyModel grouped = golden_model("t5");
  replace_tensors(grouped, golden("t5") / "grouped_g3.safetensors");
  grouped.set("num_key_value_heads", "3")
      .set("cross_num_key_value_heads", "3")
      .set("encoder_num_key_value_heads", "3");
  settings.model = put_model(directory / "grouped", grouped);
  settings.optimizer.kind = OptimizerKind::kAdafactor;
  settings.schedule = LrScheduleKind::kInverseSqrt;
  settings.learning_rate = 5.0;  // a model of this size needs larger steps: 5 / √10⁴
  settings.eval_data = settings.data.front();
  const UptrainResult result = run_to_end(settings);
  CHECK(result.after.value().loss < result.before.value().loss - 0.3);
}

TEST_CASE("every recipe resumes exactly", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto* name = GENERATE("llama", "t5", "bert");
  UptrainSettings settings = encoder_run(directory.path(), name, 4);
  SECTION("Adafactor with relative steps and decay") {
    settings.optimizer.kind = OptimizerKind::kAdafactor;
    settings.optimizer.weight_decay = 0.1;
    settings.schedule = LrScheduleKind::kInverseSqrt;
    settings.start_step = 100'000;
    settings.precision = GENERATE(Precision::kFp32, Precision::kBf16);
  }
  SECTION("keys and values only with the warmup-stable-decay schedule") {
    settings.trained = TrainedWeights::kKeysAndValues;
    settings.schedule = LrScheduleKind::kWarmupStableDecay;
    settings.decay_steps = 2;
  }
  SECTION("with little memory") {
    settings.precision = Precision::kBf16;
    settings.optimizer.moments = Precision::kBf16;
    settings.recomputing = true;
    settings.accumulation = 2;
  }
  SECTION("with a teacher") {
    settings.teacher.model = golden(name);
    settings.teacher.distillation = {0.7, 2.0};
    settings.teacher.precision = GENERATE(Precision::kFp32, Precision::kBf16);
  }
  run_to_end(settings);
  for (std::int64_t stop_after = 0; stop_after <= 3; ++stop_after) {
    CAPTURE(name, stop_after);
    settings.output = directory / ("stopped-" + std::to_string(stop_after));
    run_until(settings, stop_after);
    run_to_end(settings, /*resume=*/true);
    CHECK(tree_of(settings.output) == tree_of(directory / "out"));
    CHECK(timeless_metrics(settings.output.string() + ".run") ==
          timeless_metrics(directory / "out.run"));
  }
}

TEST_CASE("distillation from an equal teacher has zero loss", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 1);
  settings.teacher.model = settings.model;
  settings.teacher.distillation.weight = 1.0;
  CHECK(run_to_end(settings).last_loss == 0.0);
  settings.teacher.model = golden("t5");
  settings.output = directory / "other";
  CHECK_THAT(refusal_of([&] { run_to_end(settings); }),
             is_bad_input("t5", "vocabulary has 40 tokens", "64"));
}

TEST_CASE("resuming with another teacher is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  fs::copy(golden("llama"), directory / "teacher");
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.teacher.model = directory / "teacher";
  run_until(settings, 2);
  std::string bytes = weights_in(directory / "teacher");
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  put_file(directory / "teacher" / "model.safetensors", bytes);
  CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }), is_wrong_usage("teacher was"));
}

TEST_CASE("a run resumes only with the teacher that it has, or without one", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  UptrainSettings taught = settings;
  taught.teacher.model = golden("llama_bf16");
  const bool forgotten = GENERATE(true, false);
  run_until(forgotten ? taught : settings, 2);
  const auto before = tree_of(directory / "out.run");
  CHECK_THAT(refusal_of([&] { run_to_end(forgotten ? settings : taught, true); }),
             is_wrong_usage("teacher was", "(--teacher)"));
  CHECK(tree_of(directory / "out.run") == before);
  CHECK(run_to_end(forgotten ? taught : settings, true).progress.step == 4);
}

TEST_CASE("a run without a state begins again only if it may", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  run_until(settings, 2);
  fs::remove_all(directory / "out.run" / "state-00000002");
  const auto before = tree_of(directory / "out.run");
  CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }),
             is_wrong_usage("out.run", "no state to resume from", "--resume=auto"));
  CHECK(tree_of(directory / "out.run") == before);
  settings.begin_again = true;
  CHECK(run_to_end(settings, true).progress.step == 4);
}

TEST_CASE("a state that the run cannot have reached is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings settings = short_run(directory.path(), "llama", 4);
  run_until(settings, 2);
  const auto* key = GENERATE("step", "samples", "skipped");
  const fs::path run = directory / "out.run";
  Json state = Json::parse(bytes_of_file(run / "state-00000002/part-1-of-1/state.json"));
  state.erase("checksum");
  state[key] = key == std::string("skipped") ? 1 : 40;
  state["checksum"] = checksum_of(state.dump());
  put_file(run / "state-00000002/part-1-of-1/state.json", state.dump());
  if (key == std::string("step")) {
    fs::rename(run / "state-00000002", run / "state-00000040");
  }
  CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }), is_bad_input("no state is usable"));
  CHECK_FALSE(fs::exists(settings.output));
}

TEST_CASE("a run stopped repeatedly gives the same result", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "bloom", 4);
  run_to_end(settings);
  settings.output = directory / "stopped";
  for (std::int64_t step = 0; step < 4; ++step) {
    run_until(settings, step, /*resume=*/step > 0);
  }
  run_to_end(settings, true);
  CHECK(tree_of(directory / "stopped") == tree_of(directory / "out"));
}

TEST_CASE("a run without its newest state resumes from the previous one", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 6);
  settings.save_every = 1;
  run_to_end(settings);
  settings.output = directory / "stopped";
  run_until(settings, 4);
  const fs::path newest =
      directory / "stopped.run" / "state-00000004" / "part-1-of-1" / "model.safetensors";
  std::string bytes = bytes_of_file(newest);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 0x10);
  put_file(newest, bytes);
  run_to_end(settings, true);
  CHECK(tree_of(directory / "stopped") == tree_of(directory / "out"));
}

// The largest difference of any weight of two results.
double largest_difference(const fs::path& left, const fs::path& right) {
  const Model first = open_model(left), second = open_model(right);
  double largest = 0;
  for (const TensorInfo& tensor : first.checkpoint.tensors()) {
    const auto a = values_of(first.checkpoint, tensor.name);
    const auto b = values_of(second.checkpoint, tensor.name);
    for (std::size_t i = 0; i < a.size(); ++i) {
      largest = std::max(largest, std::abs(a[i] - b[i]));
    }
  }
  return largest;
}

TEST_CASE("a resumed run may divide the samples of a step into other batches", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.batch = 4;
  settings.accumulation = 1;
  run_to_end(settings);
  settings.output = directory / "stopped";
  run_until(settings, 2);
  settings.batch = 1;
  settings.accumulation = 4;
  const auto before = tree_of(directory / "stopped.run");
  settings.accumulation = 2;
  CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }),
             is_wrong_usage("batch was 4, now 1", "accumulation was 1, now 2"));
  CHECK(tree_of(directory / "stopped.run") == before);
  settings.accumulation = 4;
  CHECK(run_to_end(settings, true).progress.samples == 16);
  // Sums of gradients are added in another order; an undone step would change weights by the rate.
  CHECK(largest_difference(directory / "stopped", directory / "out") < 1e-5);
}

TEST_CASE("a resumed run may become longer, and no shorter than it is", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 6);
  settings.schedule = LrScheduleKind::kConstant;
  settings.warmup_steps = 0;
  run_to_end(settings);
  settings.output = directory / "longer";
  settings.steps = 4;
  run_until(settings, 3);
  const auto before = tree_of(directory / "longer.run");
  settings.steps = 2;
  CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }),
             is_wrong_usage("steps is 2", "a state after step 3"));
  CHECK(tree_of(directory / "longer.run") == before);
  settings.steps = 5;
  run_until(settings, 4, /*resume=*/true);
  settings.steps = 6;
  run_to_end(settings, true);
  CHECK(tree_of(directory / "longer") == tree_of(directory / "out"));
  settings.steps = 9;
  CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }),
             is_wrong_usage("longer: exists already", "complete", "--steps"));
}

TEST_CASE("a complete run that kept its state goes on as if it had been longer", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 6);
  settings.schedule = LrScheduleKind::kConstant;
  settings.warmup_steps = 0;
  run_to_end(settings);
  settings.output = directory / "kept";
  settings.steps = 4;
  settings.keep_state = true;
  run_to_end(settings);
  CHECK(tree_of(directory / "kept.run").contains("state-00000004/"));
  CHECK_FALSE(tree_of(directory / "kept.run").contains("state-00000003/"));
  settings.steps = 6;
  CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }),
             is_wrong_usage("kept: exists already", "move the output away", "--steps"));
  fs::rename(directory / "kept", directory / "shorter");
  settings.keep_state = false;
  run_to_end(settings, true);
  CHECK(tree_of(directory / "kept") == tree_of(directory / "out"));
  CHECK_FALSE(tree_of(directory / "kept.run").contains("state-00000006/"));
}

TEST_CASE("resuming with other settings or data or weights is refused", "[uptrain]") {
  const TemporaryDirectory directory;
  fs::copy(golden("llama"), directory / "model");
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.model = directory / "model";
  run_until(settings, 2);
  SECTION("settings") {
    settings.batch = 2;
    settings.learning_rate = 1e-3;
    CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }),
               is_wrong_usage("batch was 3, now 2", "learning_rate was 0.003, now 0.001"));
  }
  SECTION("other data of the same size") {
    auto text = learnable_text(2000, 64);
    text[1999] = static_cast<std::uint16_t>((text[1999] + 1) % 64);
    REQUIRE(fs::file_size(settings.data.front()) == 2 * text.size());
    put_file(settings.data.front(), bytes_of_numbers(text));
    CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }),
               is_wrong_usage("data_digest was [", "(--data)"));
  }
  SECTION("data") {
    put_file(settings.data.front(), bytes_of_numbers(learnable_text(1999, 64)));
    CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }),
               is_wrong_usage("data_bytes was [4000], now [3998]"));
  }
  SECTION("weights") {
    std::string bytes = weights_in(settings.model);
    bytes.back() = static_cast<char>(bytes.back() ^ 1);
    put_file(settings.model / "model.safetensors", bytes);
    CHECK_THAT(refusal_of([&] { run_to_end(settings, true); }), is_bad_input("another model"));
  }
  SECTION("without --resume") {
    CHECK_THAT(refusal_of([&] { run_to_end(settings); }),
               is_wrong_usage("out.run", "holds a run already"));
  }
  CHECK_FALSE(fs::exists(settings.output));
}

TEST_CASE("unusable evaluation data are refused before files are written", "[uptrain]") {
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 4);
  settings.eval_data = directory / "held-out.bin";
  put_file(settings.eval_data, bytes_of_numbers(std::vector<std::uint16_t>(30, 500)));
  CHECK_THAT(refusal_of([&] { run_to_end(settings); }), is_bad_input("held-out.bin", "500"));
  CHECK_FALSE(fs::exists(directory / "out.run"));
}

TEST_CASE("training a tied model keeps its set of tensors", "[uptrain]") {
  const TemporaryDirectory directory;
  const UptrainSettings settings = short_run(directory.path(), "gpt2_base", 2);
  run_to_end(settings);
  const Checkpoint before = open_checkpoint(settings.model);
  const Checkpoint after = open_checkpoint(settings.output);
  REQUIRE(after.tensors().size() == before.tensors().size());
  for (std::size_t i = 0; i < before.tensors().size(); ++i) {
    const std::string& name = before.tensors()[i].name;
    CHECK(after.tensors()[i].name == name);
    const bool buffer = name.ends_with(".attn.bias");
    CHECK((bytes_of(after, name) == bytes_of(before, name)) == buffer);
  }
}

}  // namespace regroup
