#include "uptrain/train/metrics.h"

#include <algorithm>
#include <set>
#include <string>
#include <string_view>

#include "formats/families/family.h"
#include "uptrain/model/parameters.h"

namespace regroup {

namespace {

// The number of elements of the tensors in an encoder's blocks.
std::int64_t encoder_parameters(const ModelSpec& spec) {
  std::set<std::string> names;
  for (const LayerTensors& layer : spec.encoder_layers) {
    names.merge(tensors_of(layer));
  }
  double elements = 0.0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    elements += names.contains(tensor.name) ? elements_of(tensor.shape) : 0.0;
  }
  return static_cast<std::int64_t>(elements);
}

// Whether this is a complete line of a step up to `last_step`.
bool is_kept(std::string_view line, std::int64_t last_step) {
  const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  const Json& step = member_of(parsed, "step");
  return step.is_number_integer() && step.get<std::int64_t>() <= last_step;
}

// The number of bytes of the leading lines that are kept.
std::uint64_t bytes_to_keep(const File& file, std::int64_t last_step) {
  constexpr std::uint64_t kPart = 1U << 20;  // longer than any line
  std::uint64_t kept = 0;
  while (true) {
    const std::string part = read_bytes(file, kept, std::min(kPart, file.size() - kept));
    std::size_t begin = 0;
    for (std::size_t end = part.find('\n'); end != std::string::npos;
         end = part.find('\n', begin)) {
      if (!is_kept(std::string_view(part).substr(begin, end - begin), last_step)) {
        return kept + begin;
      }
      begin = end + 1;
    }
    if (begin == 0) {
      return kept;
    }
    kept += begin;
  }
}

}  // namespace

std::int64_t attending_layers(const ModelSpec& spec, AttentionRole role) {
  std::int64_t count = 0;
  for (std::size_t i = 0; i < spec.stack(role).size(); ++i) {
    count += spec.attention(role, i).present() ? 1 : 0;
  }
  return count;
}

double elements_of(const Shape& shape) {
  double elements = 1.0;
  for (const std::int64_t size : shape) {
    elements *= static_cast<double>(size);
  }
  return elements;
}

StackTokens tokens_of(const Task& task, std::int64_t sequence_length) {
  switch (task.objective) {
    case Objective::kContinuation:
      return {static_cast<double>(sequence_length / 2),
              static_cast<double>(sequence_length - sequence_length / 2)};
    case Objective::kSpanCorruption:
    case Objective::kTextInfilling: {
      const SpanCounts counts = counts_of(task, sequence_length);
      return {static_cast<double>(counts.source), static_cast<double>(counts.target)};
    }
    default: return {0.0, static_cast<double>(sequence_length)};
  }
}

std::int64_t count_parameters(const ModelSpec& spec) {
  std::int64_t total = 0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    total += element_count(tensor.shape);
  }
  return total;
}

std::int64_t multiplied_weights(const ModelSpec& spec) {
  std::int64_t multiplied = count_parameters(spec) - spec.idle_expert_weights();
  const std::int64_t width = spec.projected_last ? spec.embedding_width() : spec.hidden_size;
  for (const std::string& table : {spec.position_embedding, spec.encoder_position_embedding}) {
    if (!table.empty()) {
      multiplied -= (spec.max_positions.value_or(0) + spec.position_offset) * width;
    }
  }
  if (!spec.lm_head.empty()) {
    multiplied -= spec.vocab_size * spec.embedding_width();
  }
  return multiplied;
}

double training_flops_per_token(const ModelSpec& spec, const Task& task,
                                std::int64_t sequence_length) {
  const std::int64_t multiplied = multiplied_weights(spec);
  const auto attention = [&](AttentionRole role, double queries, double keys, double share) {
    return 12.0 * share * static_cast<double>(attending_layers(spec, role)) *
           static_cast<double>(spec.query_heads * spec.head_dim) * queries * keys;
  };
  const StackTokens tokens = tokens_of(task, sequence_length);
  const auto encoder = static_cast<double>(encoder_parameters(spec));
  double flops = 6.0 * encoder * tokens.encoder +
                 6.0 * (static_cast<double>(multiplied) - encoder) * tokens.decoder;
  flops += attention(AttentionRole::kSelf, tokens.decoder, tokens.decoder, spec.causal ? 0.5 : 1.0);
  if (spec.has_encoder()) {
    flops += attention(AttentionRole::kEncoder, tokens.encoder, tokens.encoder, 1.0) +
             attention(AttentionRole::kCross, tokens.decoder, tokens.encoder, 1.0);
  }
  return flops / static_cast<double>(sequence_length);
}

MetricsLog::MetricsLog(const std::filesystem::path& path, std::int64_t last_step)
    : file_(File::open_or_create(path)), end_(bytes_to_keep(file_, last_step)) {
  file_.truncate(end_);
}

void MetricsLog::append(const Json& line) {
  const std::string text = line.dump() + "\n";
  file_.write_at(end_, text);
  end_ += text.size();
}

}  // namespace regroup
