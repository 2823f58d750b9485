#include "uptrain/metrics.h"

#include <catch2/catch_test_macros.hpp>

#include "tests/file_tree.h"
#include "tests/temporary_directory.h"

namespace regroup {

TEST_CASE("metrics are whole lines of JSON as soon as they are appended", "[uptrain]") {
  const TemporaryDirectory directory;
  MetricsLog log(directory / "metrics.jsonl", -1);
  log.append({{"step", 1}, {"loss", 2.5}});
  CHECK(bytes_of_file(directory / "metrics.jsonl") == "{\"step\":1,\"loss\":2.5}\n");
}

TEST_CASE("metrics of steps that will be done again are cut off", "[uptrain]") {
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

}  // namespace regroup
