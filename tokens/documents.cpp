#include "tokens/documents.h"

#include <filesystem>
#include <utility>

#include <fmt/format.h>

#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/json/json.h"
#include "tokens/utf8_text.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kPart = 1 << 20;
constexpr std::size_t kLongestLine = 256U << 20;

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) {
    line.remove_suffix(1);
  }
  if (line.ends_with('\r')) {
    line.remove_suffix(1);
  }
  return line;
}

std::uint64_t size_of_all(const std::vector<std::string>& inputs) {
  std::uint64_t bytes = 0;
  for (const std::string& input : inputs) {
    std::error_code fault;
    if (input == "-" || !fs::is_regular_file(input, fault)) {
      return 0;
    }
    bytes += fs::file_size(input, fault);
  }
  return bytes;
}

}  // namespace

bool is_named_json_lines(const std::string& name) {
  const fs::path extension = fs::path(name).extension();
  return extension == ".jsonl" || extension == ".ndjson";
}

DocumentReader::DocumentReader(std::vector<std::string> inputs, TextSettings settings,
                               const std::atomic<bool>& stop)
    : inputs_(std::move(inputs)),
      settings_(std::move(settings)),
      stop_(stop),
      bytes_in_all_(size_of_all(inputs_)) {
  open_next();
}

bool DocumentReader::open_next() {
  if (next_input_ == inputs_.size()) {
    return false;
  }
  const std::string& name = inputs_[next_input_++];
  stream_ = std::make_unique<TextStream>(name, stop_);
  json_ = settings_.json_lines || is_named_json_lines(name);
  line_number_ = 0;
  at_line_start_ = true;
  separated_ = false;
  pending_begin_ = 0;
  return true;
}

bool DocumentReader::next(TextPart& part) {
  while (ready_.empty()) {
    if (!stream_ && !open_next()) {
      return false;
    }
    read_line();
  }
  part = std::move(ready_.front());
  ready_.pop_front();
  return true;
}

void DocumentReader::read_line() {
  std::string_view line;
  if (!stream_->next(line)) {
    finish_stream();
    return;
  }
  const bool whole = at_line_start_;
  at_line_start_ = line.ends_with('\n');
  if (json_) {
    read_json_line(line);
  } else if (whole && settings_.separator && without_line_end(line) == *settings_.separator) {
    emit(pending_.size(), true);
    pending_begin_ = stream_->given();
    separated_ = true;
  } else {
    take_text(line);
  }
}

void DocumentReader::finish_stream() {
  if (json_ && !json_line_.empty()) {
    take_json_document();
  } else if (!json_ && (!pending_.empty() || !separated_)) {
    emit(pending_.size(), true);
  }
  finished_ += stream_->given();
  stream_.reset();
}

void DocumentReader::read_json_line(std::string_view chunk) {
  json_line_ += chunk;
  if (json_line_.size() > kLongestLine) {
    throw_bad_input("{}:{}: a line of more than {} bytes", stream_->name(), line_number_ + 1,
                    kLongestLine);
  }
  if (at_line_start_) {
    take_json_document();
  }
}

void DocumentReader::take_json_document() {
  ++line_number_;
  std::string line = std::exchange(json_line_, {});
  if (line.find_first_not_of(" \t\r\n") == std::string::npos) {
    return;
  }
  if (settings_.replace_invalid) {
    line = with_replacements(line);
  }
  const std::string where = fmt::format("{}:{}", stream_->name(), line_number_);
  const nlohmann::json document = parse_sorted_json_object(line, where);
  const auto field = document.find(settings_.field);
  if (field == document.end() || !field->is_string()) {
    throw_bad_input(
        "{}: \"{}\" is {}, allowed is a string: the document", where, printable(settings_.field),
        field == document.end() ? "missing" : fmt::format("a JSON {}", field->type_name()));
  }
  take_text(field->get_ref<const std::string&>());
  emit(pending_.size(), true);
}

void DocumentReader::take_text(std::string_view text) {
  pending_ += text;
  while (pending_.size() > kPart) {
    emit(cut_of_text(pending_, kPart), false);
  }
}

void DocumentReader::emit(std::size_t bytes, bool ends) {
  TextPart part{pending_.substr(0, bytes), !begun_, ends};
  const std::size_t valid = settings_.utf8 ? valid_utf8_prefix(part.text) : part.text.size();
  if (valid < part.text.size()) {
    if (!settings_.replace_invalid) {
      throw_bad_input("{}: byte {} (0x{:02x}) is no UTF-8; {}", stream_->name(),
                      pending_begin_ + valid, static_cast<unsigned char>(part.text[valid]),
                      settings_.advice);
    }
    part.text = with_replacements(part.text);
  }
  pending_.erase(0, bytes);
  pending_begin_ += bytes;
  begun_ = !ends;
  ready_.push_back(std::move(part));
}

}  // namespace regroup
