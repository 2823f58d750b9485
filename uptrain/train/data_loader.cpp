#include "uptrain/train/data_loader.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numbers>
#include <numeric>
#include <utility>

#include <ATen/ops/empty.h>

#include "formats/base/checksum.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "uptrain/ops/expert_routing.h"

namespace regroup {

std::vector<std::int64_t> spread_windows(std::int64_t all, std::int64_t count) {
  std::int64_t step = std::llround(static_cast<double>(all) / std::numbers::phi);
  while (std::gcd(step, all) > 1) {  // otherwise numbers would repeat
    ++step;
  }
  std::vector<std::int64_t> numbers;
  for (std::int64_t number = 0; std::ssize(numbers) < count; number = (number + step) % all) {
    numbers.push_back(number);
  }
  return numbers;
}

at::Tensor token_rows(
    std::int64_t rows, std::int64_t width,
    const std::function<void(std::int64_t row, std::span<std::int64_t> ids)>& fill) {
  at::Tensor ids = at::empty({rows, width}, at::kLong);
  const std::span<std::int64_t> all(ids.mutable_data_ptr<std::int64_t>(), rows * width);
  for (std::int64_t row = 0; row < rows; ++row) {
    fill(row, all.subspan(row * width, width));
  }
  return ids;
}

DocumentWindows::DocumentWindows(const TokenFile& file, std::int64_t sequence_length,
                                 const std::optional<DocumentMark>& mark) {
  constexpr std::int64_t kMostTokens = std::int64_t{1} << 40;
  constexpr std::int64_t kLongestSequence = (1 << 24) - 2;
  if (sequence_length > kLongestSequence || file.size() > kMostTokens) {
    throw_usage(
        "{}: windows of {} tokens out of {}: allowed are {} out of {} to keep documents "
        "apart",
        file.name(), sequence_length, file.size(), kLongestSequence, kMostTokens);
  }
  file.for_each_document(mark, [&](std::int64_t begin, std::int64_t end) {
    for (; end - begin > 1; begin += sequence_length) {
      const std::int64_t length = std::min(sequence_length + 1, end - begin);
      windows_.push_back({static_cast<std::uint64_t>(begin) & (kMostTokens - 1),
                          static_cast<std::uint64_t>(length) & (kLongestSequence + 1)});
      predictions_ += length - 1;
    }
  });
  if (windows_.empty()) {
    throw_bad_input("{}: none of its documents has two tokens", file.name());
  }
}

void DocumentWindows::read(const TokenFile& file, std::int64_t window,
                           std::span<std::int64_t> ids) const {
  const auto length = static_cast<std::size_t>(windows_[window].length);
  file.read(static_cast<std::int64_t>(windows_[window].begin), ids.first(length));
  std::fill(ids.begin() + static_cast<std::ptrdiff_t>(length), ids.end(), kNoToken);
}

namespace {

// A checksum of ids, and of the parts in which they come: with one part more.
std::uint64_t digest_with(std::uint64_t digest, std::span<const std::int64_t> ids) {
  const std::array<std::uint64_t, 2> both = {digest, xxh64(std::as_bytes(ids))};
  return xxh64(std::as_bytes(std::span(both)));
}

}  // namespace

std::string digest_of(const TokenFile& file) {
  constexpr std::int64_t kChunk = 1 << 18;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(std::min(kChunk, file.size())));
  std::uint64_t digest = 0;
  for (std::int64_t begin = 0; begin < file.size(); begin += kChunk) {
    check_stop();
    const auto chunk =
        std::span(ids).first(static_cast<std::size_t>(std::min(kChunk, file.size() - begin)));
    file.read(begin, chunk);
    digest = digest_with(digest, chunk);
  }
  return fmt::format("{:016x}", digest);
}

DataLoader::DataLoader(const std::vector<std::filesystem::path>& paths,
                       std::int64_t sequence_length, std::int64_t vocab_size, std::uint64_t seed,
                       const std::vector<double>& weights, const DocumentSettings& documents,
                       const std::string& name)
    : sequence_length_(sequence_length), seed_(seed) {
  for (const std::filesystem::path& path : paths) {
    files_.push_back(TokenFile::open(path, name));
    const TokenFile& file = files_.back();
    if (documents.separate) {
      documents_.emplace_back(file, sequence_length, documents.mark);
    }
    const std::int64_t windows = windows_of(files_.size() - 1);
    if (windows == 0) {
      throw_bad_input(
          "{}: {} tokens, one window needs {} (its length and the token after it): give more text, "
          "or a smaller --context",
          file.name(), file.size(), sequence_length + 1);
    }
    file.check_vocabulary(vocab_size);
    windows_ += windows;
  }
  if (!weights.empty()) {
    set_weights(weights);
  }
}

// Sets integers that sum to kMixedSamples: the quotients rounded down, plus one for those with the
// largest remainders.
void DataLoader::set_weights(const std::vector<double>& weights) {
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  const bool positive = std::ranges::all_of(weights, [](double weight) { return weight > 0.0; });
  if (weights.size() != files_.size() || !positive || !std::isfinite(total)) {
    throw_usage("weights of data must be numbers above 0, one for each of {} files", files_.size());
  }
  std::vector<std::pair<double, std::size_t>> remainders;
  std::int64_t left = kMixedSamples;
  for (std::size_t i = 0; i < weights.size(); ++i) {
    const double exact = weights[i] / total * static_cast<double>(kMixedSamples);
    mixed_.push_back(static_cast<std::int64_t>(exact));
    left -= mixed_.back();
    remainders.emplace_back(static_cast<double>(mixed_.back()) - exact, i);  // largest first
  }
  std::sort(remainders.begin(), remainders.end());
  for (std::int64_t i = 0; i < left; ++i) {
    ++mixed_[remainders[static_cast<std::size_t>(i)].second];
  }
  if (const auto none = std::ranges::find(mixed_, 0); none != mixed_.end()) {
    throw_usage("{}: its weight is less than a {}th of all", files_[none - mixed_.begin()].name(),
                kMixedSamples);
  }
}

double DataLoader::share_of(std::size_t file) const {
  return mixed_.empty() ? static_cast<double>(windows_of(file)) / static_cast<double>(windows_)
                        : static_cast<double>(mixed_[file]) / static_cast<double>(kMixedSamples);
}

double DataLoader::passes_through(std::size_t file, std::int64_t samples) const {
  return share_of(file) * static_cast<double>(samples) / static_cast<double>(windows_of(file));
}

std::int64_t DataLoader::tokens() const {
  std::int64_t total = 0;
  for (const TokenFile& file : files_) {
    total += file.size();
  }
  return total;
}

std::vector<std::string> DataLoader::digests() const {
  std::vector<std::string> digests;
  for (const TokenFile& file : files_) {
    digests.push_back(digest_of(file));
  }
  return digests;
}

std::vector<std::string> DataLoader::document_digests() const {
  std::vector<std::string> digests;
  for (std::size_t i = 0; i < documents_.size(); ++i) {
    std::vector<std::int64_t> window(static_cast<std::size_t>(sequence_length_ + 1));
    std::uint64_t digest = 0;
    for (std::int64_t number = 0; number < documents_[i].size(); ++number) {
      check_stop();
      documents_[i].read(files_[i], number, window);
      digest = digest_with(digest, window);
    }
    digests.push_back(fmt::format("{:016x}", digest));
  }
  return digests;
}

std::int64_t DataLoader::windows_of(std::size_t file) const {
  return documents_.empty() ? (files_[file].size() - 1) / sequence_length_
                            : documents_[file].size();
}

at::Tensor DataLoader::batch(std::int64_t first, std::int64_t count) const {
  return token_rows(
      count, sequence_length_ + 1,
      [&](std::int64_t row, std::span<std::int64_t> ids) { read(place_of(first + row), ids); });
}

std::int64_t DataLoader::predictions(std::int64_t first, std::int64_t count) const {
  if (documents_.empty()) {
    return count * sequence_length_;
  }
  std::int64_t total = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    const Place place = place_of(first + i);
    total += documents_[place.file].predictions(place.window);
  }
  return total;
}

double DataLoader::filled() const {
  double filled = documents_.empty() ? 1.0 : 0.0;
  for (std::size_t i = 0; i < documents_.size(); ++i) {
    filled += share_of(i) * static_cast<double>(documents_[i].predictions()) /
              static_cast<double>(documents_[i].size() * sequence_length_);
  }
  return filled;
}

DataLoader::Place DataLoader::place_of(std::int64_t sample) const {
  if (!mixed_.empty()) {
    return mixed_place_of(sample);
  }
  Place place{.epoch = static_cast<std::uint64_t>(sample / windows_)};
  place.window = static_cast<std::int64_t>(
      Permutation(windows_, seed_, place.epoch)(static_cast<std::uint64_t>(sample % windows_)));
  while (place.window >= windows_of(place.file)) {
    place.window -= windows_of(place.file++);
  }
  return place;
}

DataLoader::Place DataLoader::mixed_place_of(std::int64_t sample) const {
  const auto round = static_cast<std::uint64_t>(sample / kMixedSamples);
  const auto slot_number = static_cast<std::uint64_t>(sample % kMixedSamples);
  auto slot = static_cast<std::int64_t>(
      Permutation(kMixedSamples, mix(seed_, files_.size()), round)(slot_number));
  Place place;
  while (slot >= mixed_[place.file]) {
    slot -= mixed_[place.file++];
  }
  const std::int64_t drawn = static_cast<std::int64_t>(round) * mixed_[place.file] + slot;
  const std::int64_t windows = windows_of(place.file);
  place.epoch = static_cast<std::uint64_t>(drawn / windows);
  const Permutation order(static_cast<std::uint64_t>(windows), mix(seed_, place.file), place.epoch);
  place.window = static_cast<std::int64_t>(order(static_cast<std::uint64_t>(drawn % windows)));
  return place;
}

void DataLoader::read(const Place& place, std::span<std::int64_t> ids) const {
  const TokenFile& file = files_[place.file];
  if (!documents_.empty()) {
    documents_[place.file].read(file, place.window, ids);
    return;
  }
  const std::int64_t spare = file.size() - 1 - windows_of(place.file) * sequence_length_;
  const auto phase = static_cast<std::int64_t>(mix(~seed_, place.epoch) % (spare + 1));
  file.read(phase + place.window * sequence_length_, ids);
}

}  // namespace regroup
