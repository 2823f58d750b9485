// Reading safetensors: the header, parsed as an attacker may have written it, and the checkpoint.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/base/file.h"
#include "formats/base/json_events.h"
#include "formats/tensors/checkpoint.h"

namespace regroup {

// Parses a safetensors header in one pass, without building a document.

/// Receives the header's JSON events and fills in tensors. Throws kBadInput for anything other than
/// {name: {dtype, shape, data_offsets}, "__metadata__": {string: string}}.
class SafetensorsHeaderParser : private JsonEvents {
 public:
  SafetensorsHeaderParser(std::string_view where, std::vector<TensorInfo>& tensors,
                          std::map<std::string, std::string>& metadata)
      : where_(where), tensors_(tensors), metadata_(metadata) {}

  void parse(std::string_view header);

 private:
  bool null() override;
  bool boolean(bool value) override;
  bool whole_number(std::uint64_t value) override;
  bool other_number(std::string_view spelling) override;
  bool string(std::string_view value) override;
  bool start_object() override;
  bool key(std::string_view value) override;
  bool end_object() override;
  bool start_array() override;
  bool end_array() override;
  bool broken(std::size_t position, std::string_view why) override;

  // The position of the next event in the header.
  enum class State { kStart, kTop, kEntry, kMetadata, kShape, kOffsets, kDone };
  enum class Field { kNone, kDType, kShape, kOffsets };

  [[noreturn]] void reject(std::string_view found) const;
  void begin_entry(std::string_view name);
  void begin_field(std::string_view name);
  void finish_entry();
  void check_names() const;

  std::string_view where_;
  std::vector<TensorInfo>& tensors_;
  std::map<std::string, std::string>& metadata_;

  State state_ = State::kStart;
  Field field_ = Field::kNone;
  std::string metadata_key_;
  TensorInfo entry_;
  std::array<std::uint64_t, 2> offsets_{};
  std::size_t offset_count_ = 0;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  bool seen_metadata_ = false;
};

// Detects too many tensors in a safetensors header before it is parsed.

/// The most tensors in a safetensors file, and the most keys in its __metadata__: as many as can be
/// read in a tenth of a second. Published files have a few thousand tensors and about ten keys.
inline constexpr std::uint64_t kMaxSafetensorsTensors = 100'000;
inline constexpr std::uint64_t kMaxSafetensorsKeys = 10'000;

/// Throws kBadInput if the header (`length` bytes from byte `begin` on) contains more objects than
/// kMaxSafetensorsTensors entries, __metadata__ and the header itself. Makes one pass through a
/// small buffer; headers too short for that many entries are not read. The error message begins
/// with `where` (a file name).
void check_entry_count(const File& file, std::uint64_t begin, std::uint64_t length,
                       std::string_view where);

// The safetensors container: header length, JSON header, tensor data.
// https://github.com/huggingface/safetensors#format

/// The largest header accepted, in bytes (the reference implementation's limit).
inline constexpr std::uint64_t kMaxSafetensorsHeader = 25'000'000;

/// Opens one file and validates its whole header: tensor ranges must cover the data section
/// exactly, without overlap, and match shape and dtype. Throws kBadInput naming file and tensor.
Checkpoint::Part open_safetensors(File file);
Checkpoint::Part open_safetensors(const std::filesystem::path& path);

/// Parses `header` (the JSON text, starting at its brace) of a file with `data_bytes` bytes of
/// tensor data. Ranges in the result are sorted and relative to the data section. Error messages
/// begin with `where` (a file name).
void parse_safetensors_header(std::string_view header, std::uint64_t data_bytes,
                              std::string_view where, std::vector<TensorInfo>& tensors,
                              std::map<std::string, std::string>& metadata);

/// Encodes the bytes before the data section: length and header, padded with spaces to 8 bytes, or
/// so that the data begins `data_in_block` bytes (a multiple of 8) after a multiple of
/// kSharedBlock. The tensors' `begin` and `end` are relative to the data section. Throws kUsage for
/// block types, which the format does not support.
std::string encode_safetensors_header(std::span<const TensorInfo> tensors,
                                      const std::map<std::string, std::string>& metadata,
                                      std::optional<std::uint64_t> data_in_block = std::nullopt);

}  // namespace regroup
