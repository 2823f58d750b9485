// Parses a safetensors header in one pass, without building a document.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint/checkpoint.h"
#include "formats/json/json_events.h"

namespace regroup {

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

}  // namespace regroup
