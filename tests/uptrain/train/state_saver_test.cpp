#include <chrono>
#include <csignal>
#include <future>
#include <sys/resource.h>
#include <thread>

#include <ATen/ops/full.h>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>

#include "formats/base/error.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/uptrain/token_text.h"
#include "uptrain/run/uptrain.h"
#include "uptrain/train/run_directory.h"
#include "uptrain/train/training_state.h"

namespace regroup {
namespace {

std::vector<StateTensor> saved_tensors(double value) {
  return {{"weight.a", at::full({3, 4}, value, at::kFloat)}};
}

double value_in(std::span<const StateTensor> tensors) {
  return tensors.front().value[2][3].item<double>();
}

// While it exists, writing beyond a number of bytes of any file fails, as on a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    ::getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit less{bytes, before_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &less);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;
  ~FullDisk() {
    ::setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit before_{};
  void (*handler_)(int) = std::signal(SIGXFSZ, SIG_IGN);
};

// The disk is full after the state of a given step is saved, until one save has failed.
class FullAfter : public UptrainObserver {
 public:
  explicit FullAfter(std::int64_t step) : step_(step) {}

  void on_saved(const std::filesystem::path& /*run*/, std::int64_t step) override {
    saved.push_back(step);
    if (step == step_) {
      disk_.emplace(4096);
    }
  }
  void on_warning(const std::string& text) override {
    disk_.reset();
    warnings.push_back(text);
  }

  std::vector<std::int64_t> saved;
  std::vector<std::string> warnings;

 private:
  std::int64_t step_;
  std::optional<FullDisk> disk_;
};

}  // namespace

TEST_CASE("a saved state holds the tensors as they were when saving began", "[uptrain]") {
  std::promise<void> go_on;
  std::vector<double> saved;
  StateSaver saver(
      [&, may_write = go_on.get_future().share()](const auto&, const auto& tensors) {
        may_write.wait();
        saved.push_back(value_in(tensors));
      },
      /*in_background=*/true);
  const auto tensors = saved_tensors(1.0);
  saver.start({.step = 5}, tensors);
  tensors.front().value.fill_(2.0);
  CHECK_FALSE(saver.outcome());
  go_on.set_value();
  const auto outcome = saver.wait();
  REQUIRE(outcome);
  CHECK((outcome->step == 5 && outcome->fault.empty()));
  CHECK_FALSE(saver.wait());  // reported once
  saver.start({.step = 6}, tensors);
  CHECK(saver.wait()->step == 6);
  CHECK(saved == std::vector{1.0, 2.0});
}

TEST_CASE("tensors that nobody else uses are saved without a copy, and released", "[uptrain]") {
  const void* written = nullptr;
  const bool fails = GENERATE(false, true);
  StateSaver saver(
      [&](const auto&, const auto& tensors) {
        written = tensors.front().value.const_data_ptr();
        if (fails) {
          throw_environment("no room");
        }
      },
      /*in_background=*/true);
  const auto tensors = saved_tensors(1.0);
  saver.start({.step = 5}, tensors, {true});
  CHECK(saver.wait()->fault.empty() == !fails);
  CHECK(written == tensors.front().value.const_data_ptr());
  CHECK(tensors.front().value.use_count() == 1);
}

TEST_CASE("without memory for a copy a state is saved before training continues", "[uptrain]") {
  const void* written = nullptr;
  std::thread::id writer;
  double saved = 0.0;
  StateSaver saver(
      [&](const auto&, const auto& tensors) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        written = tensors.front().value.const_data_ptr();
        writer = std::this_thread::get_id();
        saved = value_in(tensors);
      },
      /*in_background=*/false);
  const auto tensors = saved_tensors(1.0);
  saver.start({.step = 5}, tensors);
  CHECK(saved == 1.0);
  CHECK(writer == std::this_thread::get_id());
  CHECK(written == tensors.front().value.const_data_ptr());  // not a copy
  const auto outcome = saver.outcome();
  REQUIRE(outcome);
  CHECK((outcome->step == 5 && outcome->fault.empty()));
  CHECK_FALSE(saver.outcome());  // reported once
}

TEST_CASE("a failed save is reported", "[uptrain]") {
  const bool in_background = GENERATE(true, false);
  StateSaver saver([](const auto&, const auto&) { throw_environment("no room"); }, in_background);
  CHECK_FALSE(saver.wait());
  saver.start({.step = 7}, saved_tensors(1.0));
  const auto outcome = saver.wait();
  REQUIRE(outcome);
  CHECK((outcome->step == 7 && outcome->fault == "no room"));
}

TEST_CASE("the destructor waits for the save in progress", "[uptrain]") {
  bool saved = false;
  {
    StateSaver saver(
        [&](const auto&, const auto&) {
          std::this_thread::sleep_for(std::chrono::milliseconds(20));
          saved = true;
        },
        /*in_background=*/true);
    saver.start({.step = 1}, saved_tensors(1.0));
  }
  CHECK(saved);
}

TEST_CASE("a full disk during a save neither ends nor changes a run", "[uptrain]") {
  const bool in_background = GENERATE(true, false);
  const TemporaryDirectory directory;
  UptrainSettings settings = short_run(directory.path(), "llama", 6);
  settings.save_every = 1;
  run_to_end(settings);
  settings.output = directory / "short of room";
  const Model source = open_computable_model(settings.model);
  const DataLoader data = open_training_data(settings, source.spec);
  UptrainPlan plan = plan_uptraining(settings, source, data);
  plan.background_saving = in_background;
  FullAfter observer(2);
  run_uptraining(plan, source, data, false, observer, std::atomic<bool>{false});
  REQUIRE(observer.warnings.size() == 1);
  CHECK(observer.warnings.front().starts_with("no state saved at step 3: "));
  CHECK(observer.saved == std::vector<std::int64_t>{1, 2, 4, 5, 6});
  CHECK(tree_of(settings.output) == tree_of(directory / "out"));
}

}  // namespace regroup
