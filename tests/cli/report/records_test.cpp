// The records that pages show: metrics of a run and the report of a conversion.
#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "cli/report/conversion_facts.h"
#include "cli/report/training_charts.h"
#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {
namespace {

TEST_CASE("metrics become curves without non-finite values and truncated lines", "[cli]") {
  const TemporaryDirectory directory;
  put_file(
      directory / "m.run/metrics.jsonl",
      "{\"step\": 0, \"eval_loss\": 3.0}\n"
      "{\"step\": 1, \"loss\": 2.5, \"lr\": 0.1, \"grad_norm\": 4, \"tokens\": 8, \"seconds\": 2, "
      "\"skipped\": false}\n"
      "{\"step\": 2, \"loss\": null, \"lr\": 0.1, \"grad_norm\": null, \"tokens\": 16, "
      "\"seconds\": 1, "
      "\"skipped\": true}\n"
      "{\"step\": 3, \"lo");
  put_file(
      directory / "m.run/run.json",
      R"({"version": "0.1.0", "recipe": {"alpha": null, "learning_rate": 0.002, "schedule": "wsd"}})");
  CHECK(run_directory_of(directory / "m") == directory / "m.run");
  CHECK(run_directory_of(directory.path().string() + "/m/") == directory / "m.run");
  CHECK_FALSE(run_directory_of(directory / "n"));
  const TrainingCurve curve = read_training_curve(directory / "m.run");
  REQUIRE(curve.loss.size() == 1);
  CHECK(curve.loss[0].x == 1);
  CHECK(curve.loss[0].y == 2.5);
  CHECK(curve.evaluation.size() == 1);
  CHECK(curve.learning_rate.size() == 2);
  CHECK(curve.skipped == 1);
  CHECK(curve.seconds == 3.0);
  CHECK(curve.tokens == 16.0);
  CHECK(curve.recipe == std::vector<std::pair<std::string, std::string>>{{"learning rate", "0.002"},
                                                                         {"schedule", "wsd"}});
}

TEST_CASE("an invalid metrics file is refused with the line", "[cli]") {
  const TemporaryDirectory directory;
  const auto refused = [&](const std::string& text) {
    put_file(directory / "metrics.jsonl", text);
    return refusal_of([&] { read_training_curve(directory.path()); });
  };
  CHECK_THAT(refused("{\"step\": 1, \"loss\": 1}\n[1]\n"),
             is_bad_input("line 2 is not a JSON object"));
  CHECK_THAT(refused("{\"step\": \"1\"}\n"), is_bad_input("line 1"));
  put_file(directory / "run.json", "[]");
  CHECK_THAT(refused("{\"step\": 1, \"loss\": 1}\n"), is_bad_input("run.json"));
  CHECK_THAT(refused("{\"step\": 1}\n"), is_bad_input("no step has a loss"));
}

TEST_CASE("many values are reduced to means of neighbours", "[cli]") {
  const StepValues values{{0, 1}, {1, 3}, {2, 5}, {3, 7}, {4, 9}};
  const auto thin = thinned(values, 3);
  REQUIRE(thin.size() == 3);
  CHECK(thin[0].y == 2.0);
  CHECK(thin[1].x == 2.5);
  CHECK(thin[2].y == 9.0);
  CHECK(thinned(values, 5).size() == 5);
}

TEST_CASE("a conversion's report is read and anything else refused", "[cli]") {
  const TemporaryDirectory directory;
  const auto path = directory / "c.json";
  put_file(path, R"({"source": "a", "pool": "lowrank", "layers": [
    {"attention": "decoder", "layer": 0, "key_energy_kept": 0.5, "value_energy_kept": 0.75, "groups": []},
    {"attention": "decoder", "layer": 1, "groups": []}]})");
  const RecordedMeasurements record = read_measurements(path);
  CHECK(record.source == "a");
  REQUIRE(record.layers.size() == 2);
  CHECK(record.layers[0].key_energy == 0.5);
  CHECK_FALSE(record.layers[1].value_energy);
  put_file(directory / "d.json", R"({"model_type": "llama"})");
  CHECK_THAT(refusal_of([&] { read_measurements(directory / "d.json"); }),
             is_bad_input("not the output of regroup convert --json"));
  put_file(directory / "e.json", R"({"pool": "mean", "layers": [{"layer": "0"}]})");
  CHECK_THAT(refusal_of([&] { read_measurements(directory / "e.json"); }),
             is_bad_input("an entry of layers"));
}

TEST_CASE("the record in a result's config is read like a report", "[cli]") {
  const Json config = Json::parse(R"({"regroup": {"pool": "lowrank", "layers": [
    {"attention": "cross", "layer": 3, "key_energy_kept": 0.5, "output_error_after_refit": 0.1}]}})");
  const auto record = measurements_in(config, "model");
  REQUIRE(record);
  REQUIRE(record->layers.size() == 1);
  CHECK(record->layers[0].attention == "cross");
  CHECK(record->layers[0].layer == 3U);
  CHECK(record->layers[0].key_energy == 0.5);
  CHECK(record->layers[0].error_after == 0.1);
  CHECK_FALSE(measurements_in(Json::parse(R"({"regroup": {"pool": "mean"}})"), "model"));
  CHECK_FALSE(measurements_in(Json::parse(R"({"regroup": 3})"), "model"));
  CHECK_FALSE(measurements_in(Json::object(), "model"));
  CHECK_THAT(
      refusal_of([&] { measurements_in(Json::parse(R"({"regroup": {"layers": 3}})"), "model"); }),
      is_bad_input("model: layers is a JSON number"));
}

}  // namespace
}  // namespace regroup
