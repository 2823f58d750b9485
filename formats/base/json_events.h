// A SAX-style parser for untrusted JSON: one pass over the bytes, no document in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace regroup {

/// Receives the events of a document. String arguments are valid until the next event. Returning
/// false stops parsing.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  /// An integer literal from 0 to 2^64-1.
  virtual bool whole_number(std::uint64_t value) = 0;
  /// Any other number, as spelled in the text.
  virtual bool other_number(std::string_view spelling) = 0;
  virtual bool string(std::string_view value) = 0;
  virtual bool key(std::string_view name) = 0;
  virtual bool start_object() = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;
  /// The text is not valid JSON (RFC 8259): `why` describes the error at byte `position`, counted
  /// from 0. This is the last event.
  virtual bool broken(std::size_t position, std::string_view why) = 0;
};

/// Parses one document strictly: valid UTF-8, no byte order mark, only white space around the
/// value. Nesting takes one byte per level and no stack; event handlers must enforce depth limits.
/// Returns false if an event did.
bool read_json_events(std::string_view text, JsonEvents& events);

}  // namespace regroup
