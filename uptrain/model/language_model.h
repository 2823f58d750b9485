// Opens a model directory for computing and writes it back.
#pragma once

#include <filesystem>
#include <span>
#include <string>

#include <ATen/core/Tensor.h>

#include "formats/model/model.h"
#include "uptrain/model/parameters.h"
#include "uptrain/model/transformer.h"

namespace regroup {

/// Opens a model and checks that all its tensors are present. Throws kBadInput for models that
/// cannot be computed.
Model open_computable_model(const std::filesystem::path& path);

/// Throws kBadInput for a model without an output head, which cannot predict tokens.
void check_predicts(const Model& model);

/// open_computable_model() and check_predicts().
Model open_predicting_model(const std::filesystem::path& path);

/// Reads the weights onto `device` and builds the transformer on them.
Transformer load_transformer(const Model& source, at::ScalarType type, at::Device device);

/// Writes a Hugging Face directory at `destination`, which appears only when it is complete:
/// weights in the source's names, order and dtypes with the values of `parameters`, `config_text`
/// as config.json, the source's other files, and a model card (see write_model_card()).
void save_model(const Model& source, const Parameters& parameters, const std::string& config_text,
                const std::filesystem::path& destination);

/// The same with whole or split tensors.
void save_model(const Model& source, std::span<const StateTensor> tensors,
                const std::string& config_text, const std::filesystem::path& destination);

/// Writes all files of a result but its weights: config.json, the source's other files, and a model
/// card.
void write_other_files(const Model& source, const std::string& config_text,
                       const std::filesystem::path& directory);

}  // namespace regroup
