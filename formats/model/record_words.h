// Facts of a record in words. A record is a stranger's text: only plain words, numbers and heads
// are shown, so that they are safe in Markdown, HTML and a terminal.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/json.h"
#include "formats/model/conversion_record.h"

namespace regroup {

std::string plain_count(const std::optional<std::uint64_t>& count);

/// A number with four decimals.
std::string plain_loss(const std::optional<double>& loss);

/// Kv heads of layers: "8", or if layers with attention differ, "1 or 3" for two numbers, "1 to 8"
/// for more.
std::string range_of_heads(const std::vector<std::int64_t>& heads);

/// Heads per layer: "8" if all are equal, otherwise "8 in layers 0-29, 4 in layers 30-31", or, if
/// that would be long, "3 in 22 layers, 1 in 8 layers". `unit`, as "kv head", follows the first
/// number.
std::string text_of_heads(const std::vector<std::int64_t>& heads, std::string_view unit = "");

/// The same of recorded heads; of an encoder-decoder, "decoder 8, encoder 4".
std::string plain_heads(const std::optional<KvHeads>& heads, std::string_view unit = "");

/// One entry of ConversionRecord::steps(): "converted from 8 kv heads to 4 (mean, contiguous)",
/// "trained in 40 steps on 20480 tokens, held-out loss 3.1000 to 2.9000".
std::string text_of_step(const Json& step);

/// The version of regroup that took the step; empty if that is not recorded.
std::string version_of_step(const Json& step);

std::string text_of_training(const TrainingRecord& training);

/// "source 3.0512, mean 10.5801, result 3.6540 nats per token on 8192 tokens", or for models that
/// cannot predict the cosines to the source. Empty if there are none.
std::string text_of_held_out(const HeldOut& held_out);

/// The comparison as it is shown. If the model was trained since, what was the result is called
/// "converted".
std::optional<HeldOut> shown_held_out(const ConversionRecord& record);

/// The conversion that last pooled heads, with the training since then, if the model was given
/// another form afterwards; otherwise `record`.
ConversionRecord with_pooling(const ConversionRecord& record);

/// A sentence on what the result has lost of what the source knew, if its predictions on text that
/// the source wrote are more than 0.25 nats per token from the source's, or were not measured.
/// Otherwise, and for models that do not predict tokens, empty.
std::string text_of_lost_knowledge(const HeldOut& held_out);

/// A sentence on pooled heads that nothing has adapted to the model's inputs. `model`: what to call
/// it, such as "this model"; `pool`: the method.
std::string text_of_unadapted_heads(std::string_view model, std::string_view pool);

/// What a model wrote, on one line: white space is one space, and at most 400 characters are shown.
std::string text_of_answer(const std::optional<std::string>& answer);

/// What a user must know before using the model, one sentence each: that nothing has adapted its
/// pooled heads to the model's inputs, or what it has lost.
std::vector<std::string> warnings_in(const ConversionRecord& record);

/// "divergence from the source 0.9000 -> 0.3000 nats per token on the windows that judged it",
/// which are no part of the text that it trained on nor of that of the held-out table.
std::string text_of_distilled(const DistillOutcome& outcome);

}  // namespace regroup
