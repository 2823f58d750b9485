// Reads documents from text files and JSON lines, in parts that fit into memory.
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

/// A document, or a part of a document longer than 1 MiB.
struct TextPart {
  std::string text;
  bool begins = true;  ///< whether the document starts here
  bool ends = true;
};

struct TextSettings {
  /// Whether all inputs are JSON lines (one JSON object per line), or none is JSON. If absent,
  /// those named *.jsonl or *.ndjson are, and those that begin as JSON lines do. A list of objects
  /// or strings is read as such unless this is false, and so are objects over several lines if
  /// absent.
  std::optional<bool> json_lines = std::nullopt;
  /// The JSON key of the document's text; "a.b" is also the key "b" of the object "a".
  std::string field = "text";
  /// The line that separates documents in text files. If absent, each file is one document.
  std::optional<std::string> separator = std::nullopt;
  bool utf8 = true;              ///< reject invalid UTF-8 …
  bool replace_invalid = false;  ///< … or replace it with U+FFFD
  /// Leave out lines and elements of lists that are not a JSON object with that field (in a list
  /// also a string), and count them.
  bool skip_invalid = false;
  /// What to do about invalid UTF-8: the end of the error message.
  std::string advice = "iconv converts texts of other encodings";
};

/// Whether an input is read as JSON; nothing if that cannot be known before it is read (a pipe).
/// Throws kBadInput if it cannot be read.
std::optional<bool> is_json(const std::string& input, const TextSettings& settings);

class DocumentReader {
 public:
  /// `inputs` are files and pipes; "-" is standard input. Throws kBadInput if one cannot be read.
  DocumentReader(std::vector<std::string> inputs, TextSettings settings,
                 const std::atomic<bool>& stop);
  ~DocumentReader();

  /// Reads the next part; returns false at the end. Throws kBadInput naming the file and the byte
  /// or line for invalid UTF-8, for lines that are not a JSON object with that field unless they
  /// are skipped, for lines longer than 256 MiB, for what is no text and for JSON
  /// that is neither one list nor a sequence of objects. Throws kInterrupted soon after `stop`
  /// becomes true.
  bool next(TextPart& part);

  /// Bytes of text read so far, of all inputs.
  std::uint64_t bytes_read() const { return finished_ + (stream_ ? stream_->given() : 0); }
  /// How much of bytes_in_all() that is.
  std::uint64_t position() const { return finished_stored_ + (stream_ ? stream_->position() : 0); }
  /// The inputs so far that are JSON.
  std::int64_t json_inputs() const { return json_inputs_; }
  /// Invalid bytes, and halves of surrogate pairs in JSON, that were replaced by U+FFFD.
  std::int64_t replaced_bytes() const { return replaced_bytes_; }
  /// Lines that were skipped.
  std::int64_t skipped_lines() const { return skipped_lines_; }
  /// Total bytes of all inputs, as stored; 0 if the size of one is unknown.
  std::uint64_t bytes_in_all() const { return bytes_in_all_; }

 private:
  class JsonValues;

  bool open_next();
  void look_at_start();
  std::string replaced(std::string_view text);
  void read_line();
  void read_json_line(std::string_view chunk);
  void take_json_line();
  void take_json_document(std::string text, std::uint64_t line);
  void take_json_text(const std::string& text, std::uint64_t line);
  void take_text(std::string_view text);
  void emit(std::size_t bytes, bool ends);
  void finish_stream();

  std::vector<std::string> inputs_;
  TextSettings settings_;
  const std::atomic<bool>& stop_;
  std::size_t next_input_ = 0;
  std::unique_ptr<TextStream> stream_;
  bool looked_ = false;                      // at the current stream's start
  bool json_ = false;                        // whether it is JSON lines …
  std::unique_ptr<JsonValues> json_values_;  // … or other JSON
  std::uint64_t line_number_ = 0;            // in it
  bool at_line_start_ = true;
  std::string json_line_;
  std::string pending_;              // unread text of the current document
  std::uint64_t pending_begin_ = 0;  // its byte offset in the stream
  bool begun_ = false;               // a part of the document was returned
  bool separated_ = false;           // this stream has had a separator
  std::deque<TextPart> ready_;
  std::int64_t json_inputs_ = 0, replaced_bytes_ = 0, skipped_lines_ = 0;
  std::uint64_t finished_ = 0;         // bytes of text of finished streams
  std::uint64_t finished_stored_ = 0;  // and of their files
  std::uint64_t bytes_in_all_ = 0;
};

}  // namespace regroup
