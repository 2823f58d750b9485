// What a checkpoint is, as a screen of text or as JSON.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "formats/inspect/model_summary.h"
#include "formats/json/json.h"

namespace regroup {

/// How much is to be kept at a time.
struct CacheQuestion {
  std::uint64_t context = 4096;  ///< tokens
  std::uint64_t batch = 1;
};

Json summary_json(const ModelSummary& summary, const CacheQuestion& cache);

/// Names of facts and what is to be said of each, in the order to say it; empty where there is
/// nothing to say. Without a name: more about the one before.
std::vector<std::pair<std::string, std::string>> summary_facts(const ModelSummary& summary,
                                                               const CacheQuestion& cache);

/// Columns that the names of facts take in summary_text().
inline constexpr std::size_t kFactsIndent = 12;

/// A line for each fact, no newline at the end.
std::string summary_text(const ModelSummary& summary, const CacheQuestion& cache);

}  // namespace regroup
