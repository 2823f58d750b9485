// Cuts JSON that is no JSON lines into values: the elements of a list, or objects of any form.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace regroup {

/// Reads one list, whose elements are the values, or objects one after another. Only one value is
/// in memory. What is inside a value is not checked.
class JsonValues {
 public:
  /// Gets the text of a value and the line on which it begins, counted from 1.
  using Take = std::function<void(std::string value, std::uint64_t line)>;

  /// `name` is for messages; values are limited to `longest` bytes.
  JsonValues(std::string name, std::size_t longest, Take take);

  /// Reads the next bytes. Throws kBadInput for what is neither of the two, and what `take` throws.
  void read(std::string_view bytes);

  /// Throws kBadInput if the text so far is incomplete.
  void finish();

 private:
  void read_byte(char byte);
  void read_inside(char byte);
  void give();
  [[noreturn]] void refuse(std::string_view why) const;

  std::string name_;
  std::size_t longest_;
  Take take_;
  bool begun_ = false, in_list_ = false, list_ended_ = false;
  bool gave_ = false;  // a value since the list's last comma
  bool quoted_ = false, escaped_ = false;
  int depth_ = 0;  // of brackets in the value
  std::string value_;
  std::uint64_t line_ = 1, value_line_ = 1;
};

}  // namespace regroup
