#include "formats/spec/published_pretraining.h"

#include <array>

namespace regroup {
namespace {

// The facts that identify a model. 0 means any value.
struct Sizes {
  std::string_view family;
  std::int64_t layers, hidden_size, query_heads, vocab_size, max_positions = 0, rotary_dim = 0;
};

struct Row {
  PublishedPretraining published;
  Sizes sizes;
};

constexpr std::int64_t kBillion = 1'000'000'000;

constexpr std::string_view kLlamaSource = "https://arxiv.org/abs/2302.13971, table 2";
constexpr std::string_view kLlama2Source = "https://arxiv.org/abs/2307.09288, table 1";
constexpr std::string_view kPythiaSource = "https://arxiv.org/abs/2304.01373, section 2";
constexpr std::string_view kNeoxSource = "https://arxiv.org/abs/2204.06745, section 3";
constexpr std::string_view kGptjSource = "https://huggingface.co/EleutherAI/gpt-j-6b";
constexpr std::string_view kBloomSource = "https://arxiv.org/abs/2211.05100, table 3";
constexpr std::string_view kMpt7bSource = "https://huggingface.co/mosaicml/mpt-7b";
constexpr std::string_view kMpt30bSource = "https://huggingface.co/mosaicml/mpt-30b";
constexpr std::string_view kFalcon1bSource = "https://huggingface.co/tiiuae/falcon-rw-1b";
constexpr std::string_view kFalcon7bSource = "https://huggingface.co/tiiuae/falcon-rw-7b";
constexpr std::string_view kMt5Source = "https://arxiv.org/abs/2010.11934, section 3.2";

constexpr std::int64_t kPythiaTokens = 299'892'736'000;  // 143,000 steps of 2²¹
constexpr std::int64_t kNeoxTokens = 472'473'600'000;    // 150,000 steps of 1538 · 2048
constexpr std::int64_t kMt5Tokens = 1'048'576'000'000;   // 10⁶ steps of 1024 · 1024

constexpr std::array kPublished{
    Row{{"Llama 2 7B", 2000 * kBillion, kLlama2Source}, {"llama", 32, 4096, 32, 32000, 4096}},
    Row{{"Llama 2 13B", 2000 * kBillion, kLlama2Source}, {"llama", 40, 5120, 40, 32000, 4096}},
    Row{{"LLaMA 33B", 1400 * kBillion, kLlamaSource}, {"llama", 60, 6656, 52, 32000, 2048}},
    Row{{"LLaMA 65B", 1400 * kBillion, kLlamaSource}, {"llama", 80, 8192, 64, 32000, 2048}},
    Row{{"Pythia 70M", kPythiaTokens, kPythiaSource}, {"gpt_neox", 6, 512, 8, 50304, 2048, 16}},
    Row{{"Pythia 160M", kPythiaTokens, kPythiaSource}, {"gpt_neox", 12, 768, 12, 50304, 2048, 16}},
    Row{{"Pythia 410M", kPythiaTokens, kPythiaSource}, {"gpt_neox", 24, 1024, 16, 50304, 2048, 16}},
    Row{{"Pythia 1B", kPythiaTokens, kPythiaSource}, {"gpt_neox", 16, 2048, 8, 50304, 2048, 64}},
    Row{{"Pythia 1.4B", kPythiaTokens, kPythiaSource}, {"gpt_neox", 24, 2048, 16, 50304, 2048, 32}},
    Row{{"Pythia 2.8B", kPythiaTokens, kPythiaSource}, {"gpt_neox", 32, 2560, 32, 50304, 2048, 20}},
    Row{{"Pythia 6.9B", kPythiaTokens, kPythiaSource}, {"gpt_neox", 32, 4096, 32, 50432, 2048, 32}},
    Row{{"Pythia 12B", kPythiaTokens, kPythiaSource}, {"gpt_neox", 36, 5120, 40, 50688, 2048, 32}},
    Row{{"GPT-NeoX 20B", kNeoxTokens, kNeoxSource}, {"gpt_neox", 44, 6144, 64, 50432, 2048, 24}},
    Row{{"GPT-J 6B", 402 * kBillion, kGptjSource}, {"gptj", 28, 4096, 16, 50400}},
    Row{{"BLOOM 560M", 341 * kBillion, kBloomSource}, {"bloom", 24, 1024, 16, 250880}},
    Row{{"BLOOM 1.1B", 341 * kBillion, kBloomSource}, {"bloom", 24, 1536, 16, 250880}},
    Row{{"BLOOM 1.7B", 341 * kBillion, kBloomSource}, {"bloom", 24, 2048, 16, 250880}},
    Row{{"BLOOM 3B", 341 * kBillion, kBloomSource}, {"bloom", 30, 2560, 32, 250880}},
    Row{{"BLOOM 7.1B", 341 * kBillion, kBloomSource}, {"bloom", 30, 4096, 32, 250880}},
    Row{{"BLOOM 176B", 366 * kBillion, kBloomSource}, {"bloom", 70, 14336, 112, 250880}},
    Row{{"MPT 7B", 1000 * kBillion, kMpt7bSource}, {"mpt", 32, 4096, 32, 50432, 2048}},
    Row{{"MPT 30B", 1000 * kBillion, kMpt30bSource}, {"mpt", 48, 7168, 64, 50432, 8192}},
    Row{{"Falcon-RW 1B", 350 * kBillion, kFalcon1bSource}, {"falcon", 24, 2048, 32, 50304}},
    Row{{"Falcon-RW 7B", 350 * kBillion, kFalcon7bSource}, {"falcon", 36, 4096, 64, 65024}},
    Row{{"mT5 Small", kMt5Tokens, kMt5Source}, {"t5", 8, 512, 6, 250112}},
    Row{{"mT5 Base", kMt5Tokens, kMt5Source}, {"t5", 12, 768, 12, 250112}},
    Row{{"mT5 Large", kMt5Tokens, kMt5Source}, {"t5", 24, 1024, 16, 250112}},
    Row{{"mT5 XL", kMt5Tokens, kMt5Source}, {"t5", 24, 2048, 32, 250112}},
    Row{{"mT5 XXL", kMt5Tokens, kMt5Source}, {"t5", 24, 4096, 64, 250112}},
};

bool has_sizes(const ModelSpec& spec, const Sizes& sizes) {
  const auto is = [](std::int64_t wanted, std::int64_t found) {
    return wanted == 0 || wanted == found;
  };
  return spec.family == sizes.family && spec.layer_count() == sizes.layers &&
         spec.hidden_size == sizes.hidden_size && spec.query_heads == sizes.query_heads &&
         spec.vocab_size == sizes.vocab_size &&
         is(sizes.max_positions, spec.max_positions.value_or(-1)) &&
         is(sizes.rotary_dim, spec.rope.rotary_dim);
}

// If positions are scaled for longer contexts, the model had more pretraining than the original.
bool is_stretched(const ModelSpec& spec) {
  return spec.positions == PositionKind::kRope &&
         (spec.rope.theta != 10000.0 || spec.rope.scaling.kind != RopeScaling::Kind::kNone);
}

}  // namespace

std::optional<PublishedPretraining> published_pretraining(const ModelSpec& spec) {
  for (const Row& row : kPublished) {
    if (has_sizes(spec, row.sizes) && !is_stretched(spec)) {
      return row.published;
    }
  }
  return std::nullopt;
}

}  // namespace regroup
