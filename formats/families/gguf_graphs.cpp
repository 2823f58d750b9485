// The graphs in llama.cpp's src/models/*.cpp. The comment of each row names the Hugging Face models
// that it computes. "gelu" is the erf form in Hugging Face's GPT-NeoX, MPT and Falcon and the tanh
// form in every graph. llama.cpp has always computed these models with the tanh form. The
// difference is below 5e-4 per activation.
#include "formats/families/gguf_graphs.h"

#include <algorithm>
#include <array>

namespace regroup {
namespace {

using enum Presence;

// A gated MLP with SiLU, RoPE on whole heads, and no biases but those of queries, keys and values.
constexpr GgufGraph gated(GgufGraph graph) {
  graph.activation = Activation::kSilu;
  graph.gated = graph.whole_head_rotates = true;
  graph.fused_qkv = kOptional;
  graph.norm_bias = graph.o_bias = graph.mlp_bias = kNever;
  return graph;
}

// The same with RMSNorm.
constexpr GgufGraph rms_gated(GgufGraph graph) {
  graph.norm = NormKind::kRmsNorm;
  return gated(graph);
}

// Llama, with biases or without; Mistral (all tokens within its window); Mixtral.
constexpr GgufGraph kLlama = [] {
  GgufGraph graph = rms_gated({.architecture = "llama",
                               .family = "llama",
                               .interleaved = true,
                               .free_head_dim = true,
                               .rope_factors = true,
                               .experts = {.presence = kOptional, .normalised = true}});
  graph.qkv_bias = graph.o_bias = graph.mlp_bias = kOptional;
  return graph;
}();

// Nemotron-NAS (DeciLM), and Llama with another number of kv heads in each layer.
constexpr GgufGraph kDeci = [] {
  GgufGraph graph = kLlama;
  graph.architecture = "deci";
  graph.made_for = "DeciLMForCausalLM";
  graph.per_layer = true;
  graph.experts = {};
  return graph;
}();

// Granite.
constexpr GgufGraph kGranite = [] {
  GgufGraph graph = kLlama;
  graph.architecture = graph.family = "granite";
  graph.multipliers = true;
  graph.experts = {};
  return graph;
}();

// GraniteMoE.
constexpr GgufGraph with_experts(GgufGraph graph, std::string_view architecture,
                                 std::string_view family, const GgufExperts& experts) {
  graph.architecture = architecture;
  graph.family = family;
  graph.made_for = {};
  graph.experts = experts;
  return graph;
}
constexpr GgufGraph kGraniteMoe =
    with_experts(kGranite, "granitemoe", "granitemoe", {.presence = kAlways, .normalised = true});

// DeepSeek-MoE.
constexpr GgufGraph with_own_output(GgufGraph graph) {
  graph.head = kAlways;
  return graph;
}
constexpr GgufGraph kDeepseek = with_own_output(
    with_experts(kLlama, "deepseek", "deepseek",
                 {.presence = kAlways, .own_width = true, .shared = true, .leading_dense = true}));

// SmolLM3.
constexpr GgufGraph kSmollm3 = rms_gated({.architecture = "smollm3",
                                          .family = "smollm3",
                                          .interleaved = true,
                                          .no_rope_every = 4,
                                          .qkv_bias = kNever});

// Command-R. The norms of queries and keys of Command-R+ are one tensor [H, d] each, as StableLM's.
constexpr GgufGraph kCommandR = gated({.architecture = "command-r",
                                       .family = "cohere",
                                       .residual = Residual::kParallel,
                                       .interleaved = true,
                                       .logit_scale = true,
                                       .qk_norm = QkNorm::kPerHead,
                                       .qk_norm_tensors = kOptional,
                                       .qkv_bias = kNever,
                                       .mlp_norm = kNever,
                                       .head = kNever});

// Qwen2.
constexpr GgufGraph kQwen2 = rms_gated({.architecture = "qwen2",
                                        .family = "llama",
                                        .made_for = "Qwen2ForCausalLM",
                                        .qkv_bias = kOptional,
                                        .head_bias = kOptional});

// Qwen3.
constexpr GgufGraph kQwen3 = rms_gated({.architecture = "qwen3",
                                        .family = "llama",
                                        .free_head_dim = true,
                                        .qk_norm = QkNorm::kSharedAcrossHeads,
                                        .qk_norm_tensors = kAlways,
                                        .qkv_bias = kOptional});

// Qwen2-MoE.
constexpr GgufGraph kQwen2Moe = with_own_output(
    with_experts(kQwen2, "qwen2moe", "qwen_moe",
                 {.presence = kAlways, .own_width = true, .shared = true, .shared_gate = true}));

// Qwen3-MoE with norm_topk_prob.
constexpr GgufGraph kQwen3Moe = with_experts(
    kQwen3, "qwen3moe", "qwen_moe", {.presence = kAlways, .normalised = true, .own_width = true});

// Gemma (the first): norm weights hold the 1 that Hugging Face adds.
constexpr GgufGraph kGemma = [] {
  GgufGraph graph = rms_gated({.architecture = "gemma",
                               .family = "gemma",
                               .free_head_dim = true,
                               .scaled_embedding = true,
                               .qkv_bias = kOptional,
                               .head = kNever});
  graph.activation = Activation::kGeluTanh;
  return graph;
}();

// OLMo.
constexpr GgufGraph kOlmo = gated({.architecture = "olmo",
                                   .family = "olmo",
                                   .interleaved = true,
                                   .clips = true,
                                   .norm_without_parameters = true,
                                   .qkv_bias = kOptional});

// OLMo2.
constexpr GgufGraph kOlmo2 = rms_gated({.architecture = "olmo2",
                                        .family = "olmo",
                                        .norm_placement = NormPlacement::kAfterSublayer,
                                        .qk_norm = QkNorm::kProjection,
                                        .qk_norm_tensors = kAlways,
                                        .qkv_bias = kOptional,
                                        .head = kAlways});

// OLMoE with as many kv heads as query heads.
constexpr GgufGraph kOlmoe = rms_gated({.architecture = "olmoe",
                                        .family = "olmoe",
                                        .experts = {.presence = kAlways},
                                        .whole_k_norm = true,
                                        .qk_norm = QkNorm::kProjection,
                                        .qk_norm_tensors = kAlways,
                                        .qkv_bias = kNever,
                                        .head = kAlways});

// StableLM. Its per-head norms are one tensor [H, d], which a ModelSpec cannot express.
constexpr GgufGraph kStablelm{.architecture = "stablelm",
                              .family = "stablelm",
                              .activation = Activation::kSilu,
                              .residual = Residual::kByMlpNorm,
                              .gated = true,
                              .qk_norm = QkNorm::kPerHead,
                              .qk_norm_tensors = kOptional,
                              .fused_qkv = kOptional,
                              .qkv_bias = kOptional,
                              .o_bias = kNever,
                              .mlp_bias = kNever,
                              .mlp_norm = kOptional,
                              .head = kAlways};

// Nemotron: norm weights hold the 1 that Hugging Face adds. Not GPT-NeoX, which has another
// activation.
constexpr GgufGraph kNemotron{.architecture = "nemotron",
                              .family = "nemotron",
                              .activation = Activation::kReluSquared,
                              .fused_qkv = kOptional,
                              .qkv_bias = kOptional,
                              .o_bias = kOptional,
                              .mlp_bias = kOptional,
                              .head = kAlways};

// Phi (1, 1.5 and 2, without norms of queries and keys); GPT-J with its rotating rows reordered.
constexpr GgufGraph kPhi2{.architecture = "phi2",
                          .family = "phi",
                          .residual = Residual::kParallel,
                          .fused_qkv = kOptional,
                          .qkv_bias = kOptional,
                          .mlp_norm = kNever,
                          .head = kAlways,
                          .head_bias = kAlways};

// Phi-3 (all tokens within its window, without LongRoPE).
constexpr GgufGraph kPhi3{.architecture = "phi3",
                          .family = "phi3",
                          .norm = NormKind::kRmsNorm,
                          .activation = Activation::kSilu,
                          .gated = true,
                          .fused_gate = true,
                          .norm_bias = kNever,
                          .qkv_bias = kNever,
                          .o_bias = kNever,
                          .mlp_bias = kNever};

// Starcoder2 (all tokens within its window); sequential GPT-NeoX with rotary_pct 1.
constexpr GgufGraph kStarcoder2{.architecture = "starcoder2",
                                .family = "starcoder2",
                                .whole_head_rotates = true,
                                .fused_qkv = kOptional,
                                .qkv_bias = kOptional};

// GPT-NeoX, parallel or sequential, except for the form of GELU.
constexpr GgufGraph kGptNeoX{
    .architecture = "gptneox", .family = "gpt_neox", .residual = Residual::kByKey, .head = kAlways};

// GPT-2 with the tanh form of GELU.
constexpr GgufGraph kGpt2{
    .architecture = "gpt2", .family = "gpt2", .positions = PositionKind::kLearned};

// GPTBigCode, whose graph is the same as GPT-2's.
constexpr GgufGraph kStarcoder{
    .architecture = "starcoder", .family = "gpt_bigcode", .positions = PositionKind::kLearned};

// BLOOM without apply_residual_connection_post_layernorm.
constexpr GgufGraph kBloom{.architecture = "bloom",
                           .family = "bloom",
                           .positions = PositionKind::kAlibi,
                           .embedding_norm = true};

// Baichuan 13B; the graph of the 7B is Llama's, with pairs (2i, 2i+1).
constexpr GgufGraph kBaichuan = rms_gated({.architecture = "baichuan",
                                           .family = "baichuan",
                                           .positions = PositionKind::kAlibi,
                                           .interleaved = true,
                                           .alibi_layers = 40,
                                           .rope_layers = 32,
                                           .qkv_bias = kNever,
                                           .head = kAlways});

// MPT, except for the form of GELU; with max_alibi_bias 0, learned positions or none.
constexpr GgufGraph kMpt{.architecture = "mpt",
                         .family = "mpt",
                         .positions = PositionKind::kAlibi,
                         .clips = true,
                         .max_alibi_bias = true,
                         .qk_norm = QkNorm::kProjection,
                         .qk_norm_tensors = kOptional,
                         .norm_bias = kOptional,
                         .qkv_bias = kOptional,
                         .o_bias = kOptional,
                         .mlp_bias = kOptional};

// Falcon with RoPE (7B, 40B, 180B, 11B), except for the form of GELU. Not Falcon-RW, which has
// biases, ALiBi, and sequential attention and MLP.
constexpr GgufGraph kFalcon{.architecture = "falcon",
                            .family = "falcon",
                            .residual = Residual::kParallel,
                            .whole_head_rotates = true,
                            .second_norm = true,
                            .qkv_bias = kNever,
                            .o_bias = kNever,
                            .mlp_bias = kNever,
                            .mlp_norm = kOptional};

// If several graphs compute the same, the first one is written.
constexpr std::array<GgufGraph, 27> kGraphs{
    kLlama,      kDeci,       kGranite,  kSmollm3,   kCommandR, kQwen2, kQwen3,
    kGemma,      kOlmo,       kOlmo2,    kStablelm,  kNemotron, kPhi2,  kPhi3,
    kStarcoder2, kGptNeoX,    kGpt2,     kStarcoder, kBloom,    kMpt,   kFalcon,
    kBaichuan,   kGraniteMoe, kDeepseek, kQwen2Moe,  kQwen3Moe, kOlmoe};

}  // namespace

std::span<const GgufGraph> gguf_graphs() { return kGraphs; }

const GgufGraph* find_gguf_graph(std::string_view architecture) {
  const auto* graph = std::ranges::find(kGraphs, architecture, &GgufGraph::architecture);
  return graph == kGraphs.end() ? nullptr : graph;
}

}  // namespace regroup
