#include "uptrain/model/language_model.h"

#include "converter/convert/loader_choice.h"
#include "converter/convert/model_card.h"
#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/base/staged_directory.h"
#include "formats/families/family.h"
#include "uptrain/model/save_parameters.h"

namespace regroup {

ModelSpec without_layers(ModelSpec spec) {
  spec.layers.clear();
  spec.encoder_layers.clear();
  spec.kv_heads.clear();
  spec.cross_kv_heads.clear();
  spec.encoder_kv_heads.clear();
  spec.alibi.slopes.clear();
  spec.encoder_final_norm = {};
  return spec;
}

OutputHead::OutputHead(const Model& source, c10::Device device, at::ScalarType type)
    : model_(without_layers(source.spec),
             load_parameters(without_layers(source.spec), source.checkpoint, type, device)) {}

void check_computable(const ModelSpec& spec) {
  if (!spec.not_computable.empty()) {
    throw_bad_input("{}: cannot be computed: {}", printable(spec.architecture),
                    printable(spec.not_computable));
  }
  if (spec.sliding_window && (spec.has_encoder() || spec.positions == PositionKind::kRelativeBias ||
                              (!spec.causal && spec.positions == PositionKind::kAlibi))) {
    throw_bad_input(
        "{}: sliding windows are supported only in models of one stack, without a relative bias, "
        "and with ALiBi only in causal attention",
        printable(spec.architecture));
  }
  if (spec.attention_softcap &&
      (!spec.causal || spec.has_encoder() || spec.positions == PositionKind::kRelativeBias ||
       spec.positions == PositionKind::kAlibi)) {
    throw_bad_input("{}: soft-capped scores are supported only in causal attention without biases",
                    printable(spec.architecture));
  }
}

void check_length(const ModelSpec& spec, std::int64_t length) {
  if (spec.limited_to_positions && length > spec.max_positions.value()) {
    throw_usage(
        "sequences of {} tokens: {} is computed up to {} tokens only; beyond, its own code changes "
        "its attention",
        length, printable(spec.architecture), *spec.max_positions);
  }
}

void check_takes_parts(const ModelSpec& spec) {
  if (spec.has_encoder() || !spec.causal || spec.positions == PositionKind::kRelativeBias) {
    throw_usage(
        "{}: its sequences cannot be shared out among ranks: that needs a decoder-only model with "
        "causal attention and no relative bias",
        printable(spec.architecture));
  }
}

Model open_computable_model(const std::filesystem::path& path) {
  Model model = open_model(path);
  if (!model.spec.not_computable.empty()) {
    throw_bad_input(
        "{}: this model cannot be computed: {}; inspect, convert by the mean, expand and verify "
        "work without",
        printable_path(path), printable(model.spec.not_computable));
  }
  check_all_shapes(model.spec, model.checkpoint);
  return model;
}

void check_predicts(const Model& model) {
  if (!model.missing_head.empty()) {
    throw_bad_input(
        "{}: a base model, without the head that predicts tokens: {} is in none of its files; "
        "this needs a checkpoint saved with its head; inspect, convert and calibrate work without",
        printable_path(model.path), printable(model.missing_head));
  }
}

Model open_predicting_model(const std::filesystem::path& path) {
  Model model = open_computable_model(path);
  check_predicts(model);
  return model;
}

Transformer load_transformer(const Model& source, at::ScalarType type, at::Device device) {
  return Transformer(source.spec, load_parameters(source.spec, source.checkpoint, type, device));
}

void save_model(const Model& source, std::span<const StateTensor> tensors,
                const std::string& config_text, const std::filesystem::path& destination) {
  refuse_output_inside(source, destination);
  StagedDirectory staged(destination);
  ParametersWriter writer(source.spec, source.checkpoint, staged.path());
  writer.write(tensors);
  writer.finish();
  write_other_files(source, config_text, staged.path());
  staged.publish();
}

void write_other_files(const Model& source, const std::string& config_text,
                       const std::filesystem::path& directory) {
  const Target result = with_kept_code(source, config_text);
  write_text(directory / "config.json", result.config_text);
  write_companions(source, directory, result.left_out, result.loader_files);
  write_model_card(source, directory, result.config_text, source.spec);
}

}  // namespace regroup
