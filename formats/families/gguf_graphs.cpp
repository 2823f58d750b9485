// The graphs in llama.cpp's src/models/*.cpp. The comment of a row names the Hugging Face models
// that it computes, where its name does not. "gelu" is the erf form in Hugging Face's GPT-NeoX, MPT
// and Falcon and the tanh form in every graph. llama.cpp has always computed these models with the
// tanh form. The difference is below 5e-4 per activation.
#include <algorithm>
#include <array>

#include "formats/families/gguf_parts.h"

namespace regroup {
namespace {

using enum Presence;

constexpr GgufGraph with_names(std::string_view architecture, std::string_view family,
                               GgufGraph graph) {
  graph.architecture = architecture;
  graph.family = family;
  return graph;
}

// A gated MLP with SiLU, RoPE on whole heads, and no biases but those of queries, keys and values.
constexpr GgufGraph gated(std::string_view architecture, std::string_view family, GgufGraph graph) {
  graph.activation = Activation::kSilu;
  graph.gated = graph.whole_head_rotates = true;
  graph.fused_qkv = kOptional;
  graph.biases.norm = graph.biases.o = graph.biases.mlp = kNever;
  return with_names(architecture, family, graph);
}

// The same with RMSNorm.
constexpr GgufGraph rms_gated(std::string_view architecture, std::string_view family,
                              GgufGraph graph) {
  graph.norm = NormKind::kRmsNorm;
  return gated(architecture, family, graph);
}

// `graph` with experts in place of the MLP, under a name of its own.
constexpr GgufGraph with_experts(std::string_view architecture, std::string_view family,
                                 GgufGraph graph, const GgufExperts& experts) {
  graph.made_for = {};
  graph.experts = experts;
  return with_names(architecture, family, graph);
}

constexpr GgufGraph with_own_output(GgufGraph graph) {
  graph.head = kAlways;
  return graph;
}

constexpr GgufBiases kNoBiases{kNever, kNever, kNever, kNever};
constexpr GgufBiases kOptionalBiases{kOptional, kOptional, kOptional, kOptional};

// Llama, with biases or without; Mistral (all tokens within its window); Mixtral.
constexpr GgufGraph kLlama = [] {
  GgufGraph graph = rms_gated("llama", "llama",
                              {.interleaved = true,
                               .free_head_dim = true,
                               .rope_factors = true,
                               .experts = {.presence = kOptional, .normalised = true}});
  graph.biases = {kOptional, kOptional, kOptional, kNever};
  return graph;
}();

// Nemotron-NAS (DeciLM), and Llama with another number of kv heads in each layer.
constexpr GgufGraph kDeci = [] {
  GgufGraph graph = with_names("deci", "llama", kLlama);
  graph.made_for = "DeciLMForCausalLM";
  graph.per_layer = true;
  graph.experts = {};
  return graph;
}();

constexpr GgufGraph kGranite = [] {
  GgufGraph graph = with_names("granite", "granite", kLlama);
  graph.multipliers = true;
  graph.experts = {};
  return graph;
}();

constexpr GgufGraph kQwen2 = rms_gated(
    "qwen2", "llama",
    {.made_for = "Qwen2ForCausalLM", .biases = {.qkv = kOptional}, .head_bias = kOptional});

constexpr GgufGraph kQwen3 = rms_gated("qwen3", "llama",
                                       {.free_head_dim = true,
                                        .qk_norm = QkNorm::kSharedAcrossHeads,
                                        .qk_norm_tensors = kAlways,
                                        .biases = {.qkv = kOptional}});

// Gemma (the first): norm weights hold the 1 that Hugging Face adds.
constexpr GgufGraph kGemma = [] {
  GgufGraph graph = rms_gated("gemma", "gemma",
                              {.free_head_dim = true,
                               .scaled_embedding = true,
                               .biases = {.qkv = kOptional},
                               .head = kNever});
  graph.activation = Activation::kGeluTanh;
  return graph;
}();

// If several graphs compute the same, the first one is written.
constexpr std::array<GgufGraph, 27> kGraphs{
    kLlama, kDeci, kGranite,
    rms_gated("smollm3", "smollm3",
              {.interleaved = true, .no_rope_every = 4, .biases = {.qkv = kNever}}),
    // Command-R. The norms of queries and keys of Command-R+ are one tensor [H, d] each, as
    // StableLM's.
    gated("command-r", "cohere",
          {.residual = Residual::kParallel,
           .interleaved = true,
           .logit_scale = true,
           .qk_norm = QkNorm::kPerHead,
           .qk_norm_tensors = kOptional,
           .biases = {.qkv = kNever},
           .mlp_norm = kNever,
           .head = kNever}),
    kQwen2, kQwen3, kGemma,
    gated("olmo", "olmo",
          {.interleaved = true,
           .clips = true,
           .norm_without_parameters = true,
           .biases = {.qkv = kOptional}}),
    rms_gated("olmo2", "olmo",
              {.norm_placement = NormPlacement::kAfterSublayer,
               .qk_norm = QkNorm::kProjection,
               .qk_norm_tensors = kAlways,
               .biases = {.qkv = kOptional},
               .head = kAlways}),
    // StableLM. Its per-head norms are one tensor [H, d], which a ModelSpec cannot express.
    with_names("stablelm", "stablelm",
               {.activation = Activation::kSilu,
                .residual = Residual::kByMlpNorm,
                .gated = true,
                .qk_norm = QkNorm::kPerHead,
                .qk_norm_tensors = kOptional,
                .fused_qkv = kOptional,
                .biases = {.qkv = kOptional, .o = kNever, .mlp = kNever},
                .mlp_norm = kOptional,
                .head = kAlways}),
    // Nemotron: norm weights hold the 1 that Hugging Face adds. Not GPT-NeoX, which has another
    // activation.
    with_names("nemotron", "nemotron",
               {.activation = Activation::kReluSquared,
                .fused_qkv = kOptional,
                .biases = {.qkv = kOptional, .o = kOptional, .mlp = kOptional},
                .head = kAlways}),
    // Phi (1, 1.5 and 2, without norms of queries and keys); GPT-J with its rotating rows
    // reordered.
    with_names("phi2", "phi",
               {.residual = Residual::kParallel,
                .fused_qkv = kOptional,
                .biases = {.qkv = kOptional},
                .mlp_norm = kNever,
                .head = kAlways,
                .head_bias = kAlways}),
    // Phi-3 (all tokens within its window, without LongRoPE).
    with_names("phi3", "phi3",
               {.norm = NormKind::kRmsNorm,
                .activation = Activation::kSilu,
                .gated = true,
                .fused_gate = true,
                .biases = kNoBiases}),
    // Starcoder2 (all tokens within its window); sequential GPT-NeoX with rotary_pct 1.
    with_names("starcoder2", "starcoder2",
               {.whole_head_rotates = true, .fused_qkv = kOptional, .biases = {.qkv = kOptional}}),
    // GPT-NeoX, parallel or sequential, except for the form of GELU.
    with_names("gptneox", "gpt_neox", {.residual = Residual::kByKey, .head = kAlways}),
    // GPT-2 with the tanh form of GELU, and GPTBigCode.
    with_names("gpt2", "gpt2", {.positions = PositionKind::kLearned}),
    with_names("starcoder", "gpt_bigcode", {.positions = PositionKind::kLearned}),
    // BLOOM without apply_residual_connection_post_layernorm.
    with_names("bloom", "bloom", {.positions = PositionKind::kAlibi, .embedding_norm = true}),
    // MPT, except for the form of GELU; with max_alibi_bias 0, learned positions or none.
    with_names("mpt", "mpt",
               {.positions = PositionKind::kAlibi,
                .clips = true,
                .max_alibi_bias = true,
                .qk_norm = QkNorm::kProjection,
                .qk_norm_tensors = kOptional,
                .biases = kOptionalBiases}),
    // Falcon with RoPE (7B, 40B, 180B, 11B), except for the form of GELU. Not Falcon-RW, which has
    // biases, ALiBi, and sequential attention and MLP.
    with_names("falcon", "falcon",
               {.residual = Residual::kParallel,
                .whole_head_rotates = true,
                .second_norm = true,
                .biases = {.qkv = kNever, .o = kNever, .mlp = kNever},
                .mlp_norm = kOptional}),
    // Baichuan 13B; the graph of the 7B is Llama's, with pairs (2i, 2i+1).
    rms_gated("baichuan", "baichuan",
              {.positions = PositionKind::kAlibi,
               .interleaved = true,
               .alibi_layers = 40,
               .rope_layers = 32,
               .biases = {.qkv = kNever},
               .head = kAlways}),
    with_experts("granitemoe", "granitemoe", kGranite, {.presence = kAlways, .normalised = true}),
    // DeepSeek-MoE.
    with_own_output(with_experts(
        "deepseek", "deepseek", kLlama,
        {.presence = kAlways, .own_width = true, .shared = true, .leading_dense = true})),
    with_own_output(with_experts(
        "qwen2moe", "qwen_moe", kQwen2,
        {.presence = kAlways, .own_width = true, .shared = true, .shared_gate = true})),
    // Qwen3-MoE with norm_topk_prob.
    with_experts("qwen3moe", "qwen_moe", kQwen3,
                 {.presence = kAlways, .normalised = true, .own_width = true}),
    // OLMoE with as many kv heads as query heads.
    rms_gated("olmoe", "olmoe",
              {.experts = {.presence = kAlways},
               .whole_k_norm = true,
               .qk_norm = QkNorm::kProjection,
               .qk_norm_tensors = kAlways,
               .biases = {.qkv = kNever},
               .head = kAlways})};

}  // namespace

std::span<const GgufGraph> gguf_graphs() { return kGraphs; }

const GgufGraph* find_gguf_graph(std::string_view architecture) {
  const auto* graph = std::ranges::find(kGraphs, architecture, &GgufGraph::architecture);
  return graph == kGraphs.end() ? nullptr : graph;
}

}  // namespace regroup
