// Text that a model writes itself: a substitute for calibration text where there is none.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include <c10/core/Device.h>

#include "formats/model/model.h"
#include "formats/vocabulary/vocabulary.h"
#include "uptrain/model/device.h"

namespace regroup {

/// Chats that a model writes, both the user's turns and its answers.
struct ChatSettings {
  ChatForm form;
  std::int64_t user_tokens = 64;     ///< of a turn at most; the next turn then begins
  std::int64_t answer_tokens = 256;  ///< likewise
  /// Tokens less likely than this share of the likeliest are not drawn: small models lose the
  /// thread by them. Nguyen et al. 2024, https://arxiv.org/abs/2407.01082.
  double min_p = 0.01;
};

struct SampleSettings {
  std::int64_t tokens = 131'072;  ///< to write, rounded up to whole sequences
  std::int64_t context = 512;     ///< tokens in a window
  std::int64_t batch = 0;         ///< windows at a time; 0: usual_sampling_batch()
  double temperature = 1.0;       ///< of the softmax that tokens are drawn from
  std::uint64_t seed = 0;
  /// The token that a sequence begins with; default: the config's bos_token_id, or else its
  /// eos_token_id, or else none.
  std::optional<std::int64_t> first_token = std::nullopt;
  std::optional<ChatSettings> chat = std::nullopt;  ///< none: texts, not chats
  Precision precision = Precision::kFp32;
  c10::Device device = c10::kCPU;
};

/// How many sequences of `context` tokens to write at a time: as many as have a KV cache in bf16 of
/// a fifth of the device's memory, from 8 to 128 on a CPU. A GPU takes little longer for more of
/// them, and gets from 64 to 1,024.
std::int64_t usual_sampling_batch(const Model& source, std::int64_t context, c10::Device device);

/// A text that a model continues.
struct Continuation {
  std::vector<std::uint32_t> prompt = {};
  std::int64_t tokens = 128;  ///< at most; fewer if the model ends the text or has fewer positions
  double temperature = 0.7;   ///< as in SampleSettings; 0: the likeliest token each time
  std::optional<std::uint32_t> end = std::nullopt;  ///< besides the model's own
  std::uint64_t seed = 0;
};

/// Receives the tokens of a continuation so far, after each one.
using ContinuationObserver = std::function<void(std::span<const std::uint32_t> written)>;

/// Whether a model writes text token by token; check_writes_text() throws if it does not.
bool writes_text(const Model& source);
void check_writes_text(const Model& source);

/// The tokens of the longest text that the model can compute: the rows of its table of positions,
/// or the limit of ModelSpec::limited_to_positions. Nothing for other models with RoPE or ALiBi,
/// which go on beyond the length of training.
std::optional<std::int64_t> longest_text(const ModelSpec& spec);

/// The tokens that the model writes after each prompt, without those that end the text.
/// `after_token` may be empty. Throws as sample() does, and kUsage for a prompt that is empty or as
/// long as longest_text().
std::vector<std::vector<std::uint32_t>> continue_texts(const Model& source,
                                                       std::span<const Continuation> texts,
                                                       Precision precision, c10::Device device,
                                                       const ContinuationObserver& after_token,
                                                       const std::atomic<bool>& stop);

/// Receives one sequence, settings.context tokens.
using SequenceSink = std::function<void(std::span<const std::uint32_t> tokens)>;

/// Draws sequences from the model's own distribution, token by token, and passes them on. The first
/// token is followed by one drawn uniformly from the vocabulary, so that sequences differ from
/// their beginning. With `chat` each sequence is a chat instead, cut off at its end. `progress`,
/// unless empty, gets the tokens written so far. The same settings give the same text on the same
/// machine. Throws kUsage for a model that is not a decoder or has fewer positions, for a first
/// token outside the vocabulary, and for chats whose beginning fills a sequence; kInterrupted soon
/// after `stop` turns true.
void sample(const Model& source, const SampleSettings& settings, const SequenceSink& sink,
            const std::function<void(std::int64_t)>& progress, const std::atomic<bool>& stop);

}  // namespace regroup
