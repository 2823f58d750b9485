#include "converter/target/kv_head_request.h"

#include <algorithm>
#include <charconv>
#include <set>

#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"

namespace regroup {
namespace {

std::vector<std::int64_t> divisors(std::int64_t number) {
  std::vector<std::int64_t> found;
  for (std::int64_t i = 1; i <= number; ++i) {
    if (number % i == 0) {
      found.push_back(i);
    }
  }
  return found;
}

}  // namespace

std::vector<std::int64_t> parse_kv_heads(std::string_view text) {
  std::vector<std::int64_t> heads;
  std::string_view rest = text;
  while (true) {
    const std::string_view item = rest.substr(0, rest.find(','));
    std::int64_t count = 0;
    const auto [end, fault] = std::from_chars(item.data(), item.data() + item.size(), count);
    if (fault != std::errc() || end != item.data() + item.size() || count <= 0) {
      throw_usage(
          "--kv-heads: \"{}\" is neither a positive whole number nor a list of them, one per layer",
          printable(text));
    }
    heads.push_back(count);
    if (item.size() == rest.size()) {
      return heads;
    }
    rest.remove_prefix(item.size() + 1);
  }
}

std::vector<std::int64_t> resolve_kv_heads(const std::vector<std::int64_t>& request,
                                           const ModelSpec& spec, AttentionRole role) {
  const std::vector<std::int64_t>& present = spec.kv_heads_of(role);
  std::vector<std::int64_t> heads = request;
  if (request.size() == 1) {
    heads.assign(present.size(), request.front());
  }
  if (heads.size() != present.size()) {
    throw_usage("--kv-heads lists {} layers, the {} has {}", heads.size(),
                !spec.has_encoder()               ? "model"
                : role == AttentionRole::kEncoder ? "encoder"
                                                  : "decoder",
                present.size());
  }
  for (std::size_t i = 0; i < heads.size(); ++i) {
    const std::int64_t has = present[i];
    if (!spec.attention(role, i).present()) {
      heads[i] = has;
      continue;
    }
    if (heads[i] > has) {
      throw_usage("--kv-heads {}: layer {} has only {} kv heads", heads[i], i, has);
    }
    if (has % heads[i] != 0) {
      throw_usage("--kv-heads {}: does not divide the {} kv heads of layer {}; allowed: {}",
                  heads[i], has, i, fmt::join(divisors(has), ", "));
    }
  }
  return heads;
}

bool is_uniform(const std::vector<std::int64_t>& kv_heads) {
  std::set<std::int64_t> counts(kv_heads.begin(), kv_heads.end());
  counts.erase(0);
  return counts.size() <= 1;
}

}  // namespace regroup
