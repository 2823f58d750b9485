// The documents in text files and JSON lines, in parts that fit into memory.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokens/text_stream.h"

namespace regroup {

/// A document, or where it is longer than 1 MiB a part of one.
struct TextPart {
  std::string text;
  bool begins = true;  ///< its document
  bool ends = true;
};

/// Whether a file of that name holds a JSON document in each line.
bool is_named_json_lines(const std::string& name);

struct TextSettings {
  bool json_lines = false;     ///< of every input; else of those named .jsonl or .ndjson
  std::string field = "text";  ///< where a line of JSON has its document
  /// A line of text between two documents; without one a file is one document.
  std::optional<std::string> separator = std::nullopt;
  bool utf8 = true;              ///< bytes that are no UTF-8 are refused
  bool replace_invalid = false;  ///< … or become U+FFFD
};

class DocumentReader {
 public:
  /// `inputs`: files and pipes, "-" for standard input. Throws kBadInput for those that cannot be
  /// read.
  DocumentReader(std::vector<std::string> inputs, TextSettings settings,
                 const std::atomic<bool>& stop);

  /// The next part; false when there is none left. Throws kBadInput naming the file and the byte or
  /// line for text that is no UTF-8, lines that are no JSON object with such a field or longer than
  /// 256 MiB; kInterrupted soon after `stop` turns true.
  bool next(TextPart& part);

  /// Bytes read so far, of all inputs.
  std::uint64_t bytes_read() const { return finished_ + (stream_ ? stream_->given() : 0); }
  /// Bytes of all inputs; 0 where one of them has no size.
  std::uint64_t bytes_in_all() const { return bytes_in_all_; }

 private:
  bool open_next();
  void read_line();
  void read_json_line(std::string_view chunk);
  void take_json_document();
  void take_text(std::string_view text);
  void emit(std::size_t bytes, bool ends);
  void finish_stream();

  std::vector<std::string> inputs_;
  TextSettings settings_;
  const std::atomic<bool>& stop_;
  std::size_t next_input_ = 0;
  std::unique_ptr<TextStream> stream_;
  bool json_ = false;              // the stream's
  std::uint64_t line_number_ = 0;  // in it
  bool at_line_start_ = true;
  std::string json_line_;
  std::string pending_;              // of the document in progress
  std::uint64_t pending_begin_ = 0;  // the byte of the stream where it stands
  bool begun_ = false;               // a part of the document is out already
  bool separated_ = false;           // a separator has come in this stream
  std::deque<TextPart> ready_;
  std::uint64_t finished_ = 0;  // bytes of streams that are done
  std::uint64_t bytes_in_all_ = 0;
};

}  // namespace regroup
