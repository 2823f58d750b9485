// JSON from strangers as a series of events, in one pass over its bytes and without a document.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

/// Who is told what stands in a document. Texts hold until the next event. An event that returns
/// false ends the reading.
class JsonEvents {
 public:
  virtual ~JsonEvents() = default;

  virtual bool null() = 0;
  virtual bool boolean(bool value) = 0;
  /// A whole number from 0 to 2^64-1, written as one.
  virtual bool whole_number(std::uint64_t value) = 0;
  /// Any other number, as it is written.
  virtual bool other_number(std::string_view spelling) = 0;
  virtual bool string(std::string_view value) = 0;
  virtual bool key(std::string_view name) = 0;
  virtual bool start_object() = 0;
  virtual bool end_object() = 0;
  virtual bool start_array() = 0;
  virtual bool end_array() = 0;
  /// The text is no JSON (RFC 8259): what is wrong with the byte at `position`, counted from 0. The
  /// last event.
  virtual bool broken(std::size_t position, std::string_view why) = 0;
};

/// Reads one document. Strict: UTF-8 must be valid, no byte order mark, nothing but white space
/// around the value. Nesting costs one byte a level, and no stack; limits are for the events to
/// keep. Returns false where an event did.
bool read_json_events(std::string_view text, JsonEvents& events);

}  // namespace regroup
