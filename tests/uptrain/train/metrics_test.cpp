#include "uptrain/train/metrics.h"

#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/matchers/catch_matchers.hpp>

#include "tests/file_tree.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"

namespace regroup {

TEST_CASE("appended metrics are complete lines of JSON at once", "[uptrain]") {
  const TemporaryDirectory directory;
  MetricsLog log(directory / "metrics.jsonl", -1);
  log.append({{"step", 1}, {"loss", 2.5}});
  CHECK(bytes_of_file(directory / "metrics.jsonl") == "{\"step\":1,\"loss\":2.5}\n");
}

TEST_CASE("metrics of steps to be repeated are removed", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto path = directory / "metrics.jsonl";
  const std::string kept = "{\"step\":1}\n{\"step\":2}\n{\"step\":2,\"eval_loss\":1}\n";
  const auto resumed = [&](const std::string& before) {
    put_file(path, before);
    MetricsLog(path, 2).append({{"step", 3}});
    return bytes_of_file(path);
  };
  CHECK(resumed(kept + "{\"step\":3}\n{\"step\":4}\n") == kept + "{\"step\":3}\n");
  CHECK(resumed(kept + "{\"step\":2,\"lo") == kept + "{\"step\":3}\n");
  CHECK(resumed(kept + "garbage\n{\"step\":1}\n") == kept + "{\"step\":3}\n");
  CHECK(resumed(kept) == kept + "{\"step\":3}\n");
  CHECK(resumed("") == "{\"step\":3}\n");
}

TEST_CASE("metrics are written to regular files only without waiting", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto path = directory / "metrics.jsonl";
  REQUIRE(::mkfifo(path.c_str(), 0600) == 0);
  CHECK_THAT(refusal_of([&] { MetricsLog(path, 2); }), is_bad_input("metrics.jsonl", "regular"));
  std::filesystem::remove(path);
  std::filesystem::create_symlink("/dev/full", path);
  CHECK_THAT(refusal_of([&] { MetricsLog(path, 2); }), is_bad_input("metrics.jsonl", "regular"));
}

TEST_CASE("an incomplete last line of any length is removed", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto path = directory / "metrics.jsonl";
  const std::string kept = "{\"step\":1}\n";
  put_file(path, kept);
  std::filesystem::resize_file(path, std::uintmax_t{1} << 36);  // a sparse file of 64 GiB
  MetricsLog(path, 2).append({{"step", 2}});
  CHECK(bytes_of_file(path) == kept + "{\"step\":2}\n");
}

}  // namespace regroup
