#include "tests/uptrain/golden_case.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include "tests/file_tree.h"
#include "tests/tiny_models.h"
#include "uptrain/model/parameters.h"
#include "uptrain/model/transformer.h"
#include "uptrain/train/objective.h"

namespace regroup {
namespace {

at::ScalarType any_scalar_type(DType dtype) {
  return dtype == DType::kI64 ? at::kLong : scalar_type_of(dtype);
}

}  // namespace

at::Tensor read_tensor(const std::filesystem::path& file, const std::string& name) {
  const Checkpoint checkpoint = open_checkpoint(file);
  const TensorInfo& info = checkpoint.at(name);
  at::Tensor tensor = at::empty(info.shape, any_scalar_type(info.dtype));
  checkpoint.read(info, {static_cast<std::byte*>(tensor.data_ptr()), tensor.nbytes()});
  return tensor;
}

GoldenCase load_golden_case(const std::string& name) {
  const auto expected = golden(name) / "expected.safetensors";
  return {open_computable_model(golden(name)), read_tensor(expected, "tokens"),
          read_tensor(expected, "logits")};
}

double largest_difference(const at::Tensor& one, const at::Tensor& other) {
  return (one.to(at::kDouble) - other.to(at::kDouble)).abs().max().item<double>();
}

at::Tensor logits_of(const ModelSpec& spec, const Parameters& parameters,
                     const at::Tensor& tokens) {
  return window_logits(Transformer(spec, parameters), tokens);
}

std::vector<std::string> golden_cases() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(golden("llama").parent_path())) {
    if (path_exists(entry.path() / "expected.safetensors") &&
        open_model(entry.path()).spec.not_computable.empty()) {
      names.push_back(entry.path().filename());
    }
  }
  std::ranges::sort(names);
  return names;
}

TokenFile put_tokens_of(const GoldenCase& golden, const std::filesystem::path& path) {
  const at::Tensor flat = golden.tokens.flatten().contiguous();
  const auto* ids = flat.const_data_ptr<std::int64_t>();
  put_file(path, bytes_of_numbers(std::vector<std::uint16_t>(ids, ids + flat.numel())));
  return TokenFile::open(path);
}

std::filesystem::path put_random_llama(const std::filesystem::path& directory,
                                       const std::string& changes) {
  Json config = Json::parse(golden_model("llama").config);
  config.update(Json::parse(changes));
  write_new_model({config.dump(), "config.json"}, /*seed=*/3, DType::kF32, directory);
  return directory;
}

}  // namespace regroup
