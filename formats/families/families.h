// One function per family: config and tensor names in, ModelSpec out.
#pragma once

#include "formats/spec/config_reader.h"
#include "formats/spec/model_spec.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// llama.cpp: separate q, k, v, o; RoPE; gated MLP.
ModelSpec describe_llama(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mistral(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen3(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_granite(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_smollm3(const ConfigReader& config, const Checkpoint& checkpoint);

// gemma.cpp, olmo.cpp: the same tensors with other norms; the newer ones with windows per layer.
ModelSpec describe_gemma(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gemma2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gemma3(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_olmo(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_olmo2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_olmo3(const ConfigReader& config, const Checkpoint& checkpoint);
// mixtures.cpp: Llama's attention, and experts in place of the MLP.
ModelSpec describe_olmoe(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen2_moe(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen3_moe(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mixtral(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_granitemoe(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_deepseek(const ConfigReader& config, const Checkpoint& checkpoint);

// llama_relatives.cpp: the same attention tensors, but LayerNorm and other blocks.
ModelSpec describe_phi(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_stablelm(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_starcoder2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_nemotron(const ConfigReader& config, const Checkpoint& checkpoint);

// cohere.cpp: a parallel block with one LayerNorm.
ModelSpec describe_cohere(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_cohere2(const ConfigReader& config, const Checkpoint& checkpoint);

// phi3.cpp: Llama's block with fused projections.
ModelSpec describe_phi3(const ConfigReader& config, const Checkpoint& checkpoint);

// baichuan.cpp, minicpm.cpp, qwen.cpp, internlm.cpp, chatglm.cpp: models with code of their own,
// close to Llama.
ModelSpec describe_baichuan(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_minicpm(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_qwen(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_internlm(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_internlm2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_chatglm(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_glm(const ConfigReader& config, const Checkpoint& checkpoint);  // chatglm.cpp

// decilm.cpp: Llama's tensors with a config per layer.
ModelSpec describe_nemotron_nas(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_deci(const ConfigReader& config, const Checkpoint& checkpoint);

// One file each.
ModelSpec describe_gpt2(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gpt_bigcode(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gpt_neox(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gpt_neo(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_gptj(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_codegen(const ConfigReader& config, const Checkpoint& checkpoint);  // gptj.cpp
ModelSpec describe_bloom(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mpt(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_falcon(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_persimmon(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_opt(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_biogpt(const ConfigReader& config, const Checkpoint& checkpoint);  // opt.cpp
ModelSpec describe_xglm(const ConfigReader& config, const Checkpoint& checkpoint);    // opt.cpp

// t5.cpp: encoder-decoder.
ModelSpec describe_t5(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mt5(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_umt5(const ConfigReader& config, const Checkpoint& checkpoint);

// bart.cpp: encoder-decoders with learned positions.
ModelSpec describe_bart(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mbart(const ConfigReader& config, const Checkpoint& checkpoint);

// marian.cpp: the same blocks with sinusoidal positions.
ModelSpec describe_marian(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_m2m_100(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_pegasus(const ConfigReader& config, const Checkpoint& checkpoint);

// whisper.cpp: speech to text.
ModelSpec describe_whisper(const ConfigReader& config, const Checkpoint& checkpoint);

// bert.cpp: encoder-only.
ModelSpec describe_bert(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_roberta(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_electra(const ConfigReader& config, const Checkpoint& checkpoint);

// distilbert.cpp, mpnet.cpp, nomic_bert.cpp: BERT's block under other names or with other
// positions.
ModelSpec describe_distilbert(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_mpnet(const ConfigReader& config, const Checkpoint& checkpoint);
ModelSpec describe_nomic_bert(const ConfigReader& config, const Checkpoint& checkpoint);

// modernbert.cpp: encoder-only, norms before attention and MLP.
ModelSpec describe_modernbert(const ConfigReader& config, const Checkpoint& checkpoint);

}  // namespace regroup
