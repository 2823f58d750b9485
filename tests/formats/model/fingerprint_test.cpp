// Fingerprints of models.
#include <catch2/catch_test_macros.hpp>

#include "formats/model/model.h"
#include "tests/checkpoint_builder.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {
namespace {

std::string fingerprint(const TinyModel& model) {
  const TemporaryDirectory directory;
  return fingerprint_of(open_model(put_model(directory / "model", model)));
}

TEST_CASE("fingerprints do not depend on where a model is", "[formats]") {
  CHECK(fingerprint(tiny_llama()) == fingerprint(tiny_llama()));
}

TEST_CASE("fingerprints differ if config or contents differ", "[formats]") {
  const std::string original = fingerprint(tiny_llama());
  TinyModel contents = tiny_llama();
  contents.tensor("model.norm.weight").bytes[0] ^= 1;
  CHECK(fingerprint(contents) != original);
  CHECK(fingerprint(tiny_llama().set("rms_norm_eps", "1e-3")) != original);
}

TEST_CASE("fingerprints differ if a tensor of equal bytes has another name or dtype or shape",
          "[formats]") {
  const auto with = [](const std::string& name, DType dtype, const Shape& shape) {
    TinyModel model = tiny_llama();
    model.tensors.push_back({name, dtype, shape, std::string(8, '\0')});
    return fingerprint(model);
  };
  const std::string original = with("more", DType::kF32, {2});
  CHECK(with("other", DType::kF32, {2}) != original);
  CHECK(with("more", DType::kI32, {2}) != original);
  CHECK(with("more", DType::kF32, {2, 1}) != original);
}

TEST_CASE("the first and the last bytes of a large tensor count", "[formats]") {
  constexpr std::size_t kBytes = 100'000;
  const auto with = [](const std::string& bytes) {
    TinyModel model = tiny_llama();
    model.tensors.push_back({"large", DType::kU8, {kBytes}, bytes});
    return fingerprint(model);
  };
  std::string first(kBytes, '\0'), last = first;
  const std::string original = with(first);
  first.front() = last.back() = 1;
  CHECK(with(first) != original);
  CHECK(with(last) != original);
  CHECK(with(first) != with(last));
}

}  // namespace
}  // namespace regroup
