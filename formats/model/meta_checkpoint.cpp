#include <algorithm>
#include <array>
#include <unordered_map>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/file.h"
#include "formats/base/printable.h"
#include "formats/model/model_directory.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConsolidated = "consolidated.safetensors";
constexpr std::string_view kEmbedding = "tok_embeddings.weight";
constexpr std::string_view kFinalNorm = "norm.weight";  // also the suffix of all norms
constexpr std::size_t kMaxRanks = 100;                  // two digits

std::string rank_file(std::size_t rank) { return fmt::format("consolidated.{:02}.pth", rank); }

bool is_rank_file(const fs::path& path) {
  const std::string name = path.filename().string();
  return name.starts_with("consolidated.") && name.ends_with(".pth");
}

// Every reader recomputes these frequencies. In some releases, the stored ones are wrong.
bool is_buffer(std::string_view name) { return name == "rope.freqs"; }

using RankTensors = std::unordered_map<std::string_view, const TensorInfo*>;

// The dimension along which ranks split a matrix. For the embedding, the first piece tells.
std::size_t joint_of(const TensorInfo& piece, std::int64_t width, const std::string& where) {
  constexpr std::array<std::string_view, 2> kByColumns{".wo.weight", ".w2.weight"};
  constexpr std::array<std::string_view, 5> kByRows{".wq.weight", ".wk.weight", ".wv.weight",
                                                    ".w1.weight", ".w3.weight"};
  const std::string_view name = piece.name;
  const auto ends = [&](std::string_view suffix) { return name.ends_with(suffix); };
  if (name == kEmbedding) {
    return piece.shape[1] == width ? 0 : 1;
  }
  if (std::ranges::any_of(kByColumns, ends)) {
    return 1;
  }
  if (name == "output.weight" || std::ranges::any_of(kByRows, ends)) {
    return 0;
  }
  throw_bad_input("{}: tensor {}: it is unknown how the files split it", where, printable(name));
}

// Joins `pieces`, one per rank, into a tensor.
TensorInfo join(std::vector<TensorInfo> pieces, std::int64_t width, const std::string& where) {
  const TensorInfo first = pieces.front();
  const std::string name = printable(first.name);
  for (const TensorInfo& piece : pieces) {
    if (piece.dtype != first.dtype || piece.shape.size() != first.shape.size()) {
      throw_bad_input("{}: tensor {} is {} {} in one file, {} {} in another", where, name,
                      name_of(first.dtype), text_of(first.shape), name_of(piece.dtype),
                      text_of(piece.shape));
    }
  }
  if (first.shape.size() == 2) {
    TensorInfo whole{first.name, first.dtype, first.shape, first.file, 0, 0, {}};
    whole.joint = joint_of(first, width, where);
    whole.shape[whole.joint] = 0;
    for (const TensorInfo& piece : pieces) {
      if (piece.shape[1 - whole.joint] != first.shape[1 - whole.joint] ||
          __builtin_add_overflow(whole.shape[whole.joint], piece.shape[whole.joint],
                                 &whole.shape[whole.joint])) {
        throw_bad_input("{}: tensor {}: {} and {} cannot be joined", where, name,
                        text_of(first.shape), text_of(piece.shape));
      }
    }
    whole.pieces = std::move(pieces);
    return whole;
  }
  const bool same = std::ranges::all_of(
      pieces, [&](const TensorInfo& piece) { return piece.shape == first.shape; });
  if (first.shape.size() != 1 || !same || !first.name.ends_with(kFinalNorm)) {
    throw_bad_input("{}: tensor {}: it is unknown how the files split it", where, name);
  }
  return first;
}

std::vector<RankTensors> tensors_by_name(const std::vector<Checkpoint::Part>& ranks) {
  std::vector<RankTensors> by_name;
  for (const Checkpoint::Part& rank : ranks) {
    RankTensors& tensors = by_name.emplace_back();
    for (const TensorInfo& tensor : rank.tensors) {
      tensors.emplace(tensor.name, &tensor);
    }
  }
  return by_name;
}

std::vector<TensorInfo> pieces_of(const TensorInfo& tensor, const std::vector<RankTensors>& ranks,
                                  const std::string& where) {
  std::vector<TensorInfo> pieces;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto found = ranks[i].find(tensor.name);
    if (found == ranks[i].end()) {
      throw_bad_input("{}: tensor {} is missing in {}", where, printable(tensor.name),
                      rank_file(i));
    }
    pieces.push_back(*found->second);
    pieces.back().file = i;
  }
  return pieces;
}

// The files of ranks 00, 01, … without gaps.
std::vector<fs::path> rank_files_in(const fs::path& directory) {
  std::size_t count = 0;
  for (const fs::directory_entry& entry : entries_in(directory)) {
    count += is_rank_file(entry.path()) ? 1 : 0;
  }
  if (count > kMaxRanks) {
    throw_bad_input("{}: {} consolidated files, at most {} allowed", printable_path(directory),
                    count, kMaxRanks);
  }
  std::vector<fs::path> files;
  for (std::size_t i = 0; i < count; ++i) {
    files.push_back(directory / rank_file(i));
    if (!path_exists(files.back())) {
      throw_bad_input("{}: {} consolidated files, but {} is missing", printable_path(directory),
                      count, rank_file(i));
    }
  }
  return files;
}

// Joins the tensors of all ranks, in rank order: wo and w2 along columns; tok_embeddings along rows
// (Llama 3) or columns (earlier), decided by the norms' width; all others along rows.
// One-dimensional tensors such as norms are replicated and taken once.
Checkpoint join_meta_ranks(std::vector<Checkpoint::Part> ranks, const std::string& where) {
  const std::vector<RankTensors> by_name = tensors_by_name(ranks);
  const auto norm = by_name.front().find(kFinalNorm);
  if (norm == by_name.front().end() || norm->second->shape.size() != 1) {
    throw_bad_input("{}: {} is missing or not a list of numbers; not Meta's weights", where,
                    kFinalNorm);
  }
  const std::int64_t width = norm->second->shape.front();
  std::vector<TensorInfo> tensors;
  for (const TensorInfo& tensor : ranks.front().tensors) {
    if (!is_buffer(tensor.name)) {
      std::vector<TensorInfo> pieces = pieces_of(tensor, by_name, where);
      tensors.push_back(pieces.size() == 1 ? std::move(pieces.front())
                                           : join(std::move(pieces), width, where));
    }
  }
  for (std::size_t i = 1; i < ranks.size(); ++i) {
    for (const TensorInfo& tensor : ranks[i].tensors) {
      if (!by_name.front().contains(tensor.name)) {
        throw_bad_input("{}: tensor {} is missing in {}", where, printable(tensor.name),
                        rank_file(0));
      }
    }
  }
  std::vector<File> files;
  for (Checkpoint::Part& rank : ranks) {
    files.push_back(std::move(rank.file));
  }
  return {std::move(files), std::move(tensors)};
}

}  // namespace

bool is_meta_directory(const fs::path& directory) {
  std::error_code fault;
  if (!fs::is_directory(directory, fault) || !path_exists(directory / kMetaParamsFile) ||
      path_exists(directory / "config.json")) {
    return false;
  }
  return path_exists(directory / kConsolidated) ||
         std::ranges::any_of(entries_in(directory, fault), [](const fs::directory_entry& entry) {
           return is_rank_file(entry.path());
         });
}

Checkpoint open_meta_checkpoint(const fs::path& directory) {
  std::vector<fs::path> files = {directory / kConsolidated};
  if (!path_exists(files.front())) {
    files = rank_files_in(directory);
  }
  std::vector<Checkpoint::Part> ranks;
  for (const fs::path& file : files) {
    ranks.push_back(open_weight_file(file));
  }
  return join_meta_ranks(std::move(ranks), printable_path(directory));
}

}  // namespace regroup
