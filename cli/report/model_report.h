// The summary of a checkpoint, as text or as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/base/json.h"
#include "formats/model/model_summary.h"

namespace regroup {

/// The sequences to compute the size of the KV cache for.
struct CacheLoad {
  std::uint64_t context = 4096;  ///< tokens
  std::uint64_t batch = 1;       ///< sequences
};

Json summary_json(const ModelSummary& summary, const CacheLoad& load);

/// Names and values of facts, in the order to print them. Facts with an empty value are not
/// printed; a fact without a name continues the previous one.
std::vector<std::pair<std::string, std::string>> summary_facts(const ModelSummary& summary,
                                                               const CacheLoad& load);

/// Width of the names of facts in summary_text(), in columns.
inline constexpr std::size_t kFactsIndent = 12;

/// One line per fact, no newline at the end.
std::string summary_text(const ModelSummary& summary, const CacheLoad& load);

}  // namespace regroup
