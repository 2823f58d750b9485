// Reads a safetensors header in one pass, entry by entry, without building a document.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include <nlohmann/json.hpp>

#include "formats/checkpoint.h"

namespace regroup {

/// Receives the header's JSON events and fills in tensors; anything that is not exactly
/// {name: {dtype, shape, data_offsets}, "__metadata__": {string: string}} throws kBadInput.
class SafetensorsHeaderParser : public nlohmann::json_sax<nlohmann::json> {
 public:
  SafetensorsHeaderParser(std::string_view where, std::vector<TensorInfo>& tensors,
                          std::map<std::string, std::string>& metadata)
      : where_(where), tensors_(tensors), metadata_(metadata) {}

  void parse(std::string_view header);

  bool null() override;
  bool boolean(bool value) override;
  bool number_integer(number_integer_t value) override;
  bool number_unsigned(number_unsigned_t value) override;
  bool number_float(number_float_t value, const string_t& spelling) override;
  bool string(string_t& value) override;
  bool binary(binary_t& value) override;
  bool start_object(std::size_t elements) override;
  bool key(string_t& value) override;
  bool end_object() override;
  bool start_array(std::size_t elements) override;
  bool end_array() override;
  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& fault) override;

 private:
  // Where in the header the next event stands.
  enum class State { kStart, kTop, kEntry, kMetadata, kShape, kOffsets, kDone };
  enum class Field { kNone, kDType, kShape, kOffsets };

  [[noreturn]] void reject(std::string_view found) const;
  void finish_entry();

  std::string_view where_;
  std::vector<TensorInfo>& tensors_;
  std::map<std::string, std::string>& metadata_;

  State state_ = State::kStart;
  Field field_ = Field::kNone;
  std::string metadata_key_;
  TensorInfo entry_;
  std::vector<std::uint64_t> offsets_;
  bool has_dtype_ = false, has_shape_ = false, has_offsets_ = false;
  bool seen_metadata_ = false;
  std::unordered_set<std::string> names_;
};

}  // namespace regroup
