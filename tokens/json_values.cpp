#include "tokens/json_values.h"

#include <utility>

#include "formats/base/error.h"

namespace regroup {

JsonValues::JsonValues(std::string name, std::size_t longest, Take take)
    : name_(std::move(name)), longest_(longest), take_(std::move(take)) {}

void JsonValues::read(std::string_view bytes) {
  for (const char byte : bytes) {
    read_byte(byte);
    line_ += byte == '\n' ? 1 : 0;
  }
}

void JsonValues::read_byte(char byte) {
  constexpr std::string_view kBetweenValues = " \t\r\n";
  const bool between = depth_ == 0 && !quoted_;
  if (between && value_.empty() && kBetweenValues.find(byte) != std::string_view::npos) {
    return;
  }
  if (list_ended_) {
    refuse("more text after the end of the list");
  }
  if (!begun_ && byte == '[') {
    begun_ = in_list_ = true;
  } else if (in_list_ && between && (byte == ',' || byte == ']')) {
    list_ended_ = byte == ']';
    if (!value_.empty()) {
      give();
    } else if (byte == ',' || gave_) {
      refuse("an element of the list is missing");
    }
    gave_ = true;
  } else {
    begun_ = true;
    read_inside(byte);
  }
}

void JsonValues::read_inside(char byte) {
  value_line_ = value_.empty() ? line_ : value_line_;
  value_ += byte;
  if (quoted_) {
    quoted_ = escaped_ || byte != '"';
    escaped_ = !escaped_ && byte == '\\';
  } else {
    quoted_ = byte == '"';
    depth_ += byte == '{' || byte == '[' ? 1 : byte == '}' || byte == ']' ? -1 : 0;
  }
  if (depth_ < 0) {
    refuse("a bracket that was not opened");
  }
  if (value_.size() > longest_) {
    refuse("a value of more than 256 MiB");
  }
  if (!in_list_ && depth_ == 0 && !quoted_) {
    give();
  }
}

void JsonValues::give() { take_(std::exchange(value_, {}), value_line_); }

void JsonValues::finish() {
  if (!value_.empty() || (in_list_ && !list_ended_)) {
    refuse("the text ends inside of it");
  }
}

void JsonValues::refuse(std::string_view why) const {
  throw_bad_input("{}:{}: JSON that cannot be read: {}; --no-jsonl takes it for text", name_, line_,
                  why);
}

}  // namespace regroup
