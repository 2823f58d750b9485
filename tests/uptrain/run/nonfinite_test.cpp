// Commands report NaN and infinities and do not write them.
#include <limits>

#include <catch2/catch_test_macros.hpp>

#include "tests/checkpoint_builder.h"
#include "tests/child_program.h"
#include "tests/file_tree.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"
#include "tests/uptrain/token_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

// A fixture with one tensor filled with `number`.
std::string put_filled(const TemporaryDirectory& directory, const std::string& name,
                       double number) {
  TinyModel model = golden_model("llama_mha");
  BuiltTensor& tensor = model.tensor(name);
  const std::vector<double> values(values_of(tensor).size(), number);
  tensor = tensor_of(tensor.name, tensor.dtype, tensor.shape, values);
  return put_model(directory / "model", model).string();
}

TEST_CASE("commands that read a model with NaN end with one line and write nothing", "[uptrain]") {
  for (const double number :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const TemporaryDirectory directory;
    const std::string model = put_filled(directory, "model.layers.0.mlp.down_proj.weight", number);
    put_file(directory / "tokens", bytes_of_numbers(learnable_text(400, 30)));
    const std::string data = (directory / "tokens").string();
    const std::string output = (directory / "output").string();
    const auto check = [&](std::vector<std::string> arguments) {
      arguments.emplace_back("--quiet");  // omits the plan before the error
      const ProgramResult result = run_program(arguments);
      CAPTURE(number, arguments[0], result.err, result.out);
      CHECK(result.exit_code == 3);
      CHECK(result.one_line_of_error());
      CHECK(result.out.empty());
      CHECK_FALSE(fs::exists(output));
    };
    check({"eval", model, "--data", data, "--context", "12", "--json"});
    check({"eval", model, "--data", data, "--context", "12", "--write-logits", output});
    check({"calibrate", model, "--data", data, "--context", "12", "-o", output});
    check({"teach", model, "--data", data, "--sequence", "12", "--batch", "2", "--top", "3",
           "--windows", "4", "--output", output});
    check({"convert", model, output, "--kv-budget", "50%", "--kv-budget-data", data,
           "--refit-context", "12"});
  }
}

TEST_CASE("init refuses to write infinities", "[uptrain]") {
  const TemporaryDirectory directory;
  const auto init = [&](const char* deviation, const char* dtype) {
    put_file(directory / "config.json", tiny_llama().set("initializer_range", deviation).config);
    return run_program({"init", (directory / "config.json").string(), (directory / "new").string(),
                        "--dtype", dtype});
  };
  for (const auto& [deviation, dtype] : {std::pair{"1e39", "fp32"}, {"1e5", "fp16"}}) {
    const ProgramResult result = init(deviation, dtype);
    CAPTURE(deviation, result.err);
    CHECK(result.exit_code == 3);
    CHECK(result.one_line_of_error());
    CHECK(result.err.find("initializer_range") != std::string::npos);
    CHECK_FALSE(fs::exists(directory / "new"));
  }
  CHECK(init("1e5", "fp32").exit_code == 0);
}

}  // namespace
}  // namespace regroup
