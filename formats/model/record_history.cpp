// The steps that led to a model: a list with an end.
#include <vector>

#include "formats/model/conversion_record.h"

namespace regroup {
namespace {

// In a history: the number of older steps.
constexpr std::string_view kLeftOutKey = "left_out";

constexpr std::size_t kMostSteps = 32;
constexpr std::size_t kMostHistoryBytes = 64U << 10;

}  // namespace

std::string line_of_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool stands_for_older_steps(const Json& step) { return !member_of(step, kLeftOutKey).is_null(); }

std::optional<std::uint64_t> left_out_of(const Json& step) {
  const Json& count = member_of(step, kLeftOutKey);
  return count.is_number_unsigned() ? std::optional(count.get<std::uint64_t>()) : std::nullopt;
}

Json bounded_history(const Json& all) {
  std::vector<Json> steps(all.begin(), all.end());
  std::uint64_t left_out = 0;
  if (!steps.empty() && stands_for_older_steps(steps.front())) {
    left_out = left_out_of(steps.front()).value_or(0);
    steps.erase(steps.begin());
  }
  std::size_t kept = 0;
  std::size_t bytes = 0;
  for (auto step = steps.rbegin(); step != steps.rend() && kept < kMostSteps; ++step, ++kept) {
    bytes += line_of_json(*step).size();
    if (bytes > kMostHistoryBytes) {
      break;
    }
  }
  left_out += steps.size() - kept;
  Json list = Json::array();
  if (left_out > 0) {
    list.push_back({{kLeftOutKey, left_out}});
  }
  for (auto step = steps.end() - static_cast<std::ptrdiff_t>(kept); step != steps.end(); ++step) {
    list.push_back(std::move(*step));
  }
  return list;
}

}  // namespace regroup
