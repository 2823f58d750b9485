// A small model, described or refused.
#pragma once

#include "formats/families/family.h"
#include "formats/model/model_directory.h"
#include "tests/refusal.h"
#include "tests/temporary_directory.h"
#include "tests/tiny_models.h"

namespace regroup {

/// The spec of a model directory.
inline ModelSpec spec_of(const ModelDirectory& model) {
  return describe_model(model.config, model.checkpoint, "config.json");
}

/// The error that describing the model, or checking its attention tensors, ends in.
inline Error refusal_of_model(const TinyModel& tiny) {
  const TemporaryDirectory directory;
  const ModelDirectory model = open_model_directory(put_model(directory.path(), tiny));
  return refusal_of([&] { check_attention_shapes(spec_of(model), model.checkpoint); });
}

}  // namespace regroup
