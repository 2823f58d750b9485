// Fixtures that hold what grouped heads are, pooled by hand, and what transformers computes with
// them.
#pragma once

#include <cstdint>
#include <vector>

namespace regroup {

/// tests/golden/NAME/grouped_gN.safetensors and expected_gN.safetensors, for N kv heads in all
/// roles.
struct GroupedCase {
  const char* name;
  std::int64_t groups;
};

inline const std::vector<GroupedCase> kGroupedCases = {{"t5", 4},
                                                       {"t5", 3},
                                                       {"t5_v1_1", 4},
                                                       {"mt5", 3},
                                                       {"umt5", 3},
                                                       {"bart", 3},
                                                       {"bart", 2},
                                                       {"mbart", 2},
                                                       {"marian", 3},
                                                       {"m2m_100", 2},
                                                       {"pegasus", 3},
                                                       {"pegasus", 2},
                                                       {"bert", 4},
                                                       {"bert", 3},
                                                       {"biogpt", 2},
                                                       {"biogpt", 3},
                                                       {"persimmon", 2},
                                                       {"persimmon", 3},
                                                       {"roberta", 4},
                                                       {"xlm_roberta", 4},
                                                       {"camembert", 4},
                                                       {"electra", 4},
                                                       {"distilbert", 3},
                                                       {"distilbert", 4},
                                                       {"baichuan_7b", 2},
                                                       {"baichuan2_13b", 4},
                                                       {"internlm", 3},
                                                       {"qwen", 2},
                                                       {"codegen", 4},
                                                       {"codegen", 2},
                                                       {"gpt_neo", 3},
                                                       {"gpt_neo", 2},
                                                       {"xglm", 3},
                                                       {"xglm", 2},
                                                       {"modernbert", 3},
                                                       {"modernbert", 2},
                                                       {"modernbert_biases", 2},
                                                       {"nomic_bert", 3},
                                                       {"nomic_bert", 2},
                                                       {"mpnet", 4},
                                                       {"mpnet", 3},
                                                       {"jina_bert", 4},
                                                       {"jina_bert", 3},
                                                       {"mosaic_bert", 4},
                                                       {"mosaic_bert", 3},
                                                       {"electra_small", 4},
                                                       {"electra_small", 3}};

/// The same; their encoders read spectra.
inline const std::vector<GroupedCase> kGroupedSpeechCases = {{"whisper", 3}, {"whisper", 2}};

}  // namespace regroup
