#include "tokens/documents.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/error.h"
#include "formats/base/json.h"
#include "formats/base/printable.h"

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

// What the settings and the name say about an input.
std::optional<bool> stated_json_lines(const std::string& name, const TextSettings& settings) {
  fs::path path = name;
  if (path.extension() == ".gz" || path.extension() == ".zst") {
    path.replace_extension();
  }
  const fs::path extension = path.extension();
  const bool named = extension == ".jsonl" || extension == ".ndjson";
  return settings.json_lines || !named ? settings.json_lines : std::optional(true);
}

// What a text input holds, by its first bytes.
enum class TextKind {
  kPlain,
  kJsonLines,  // one JSON object per line
  kJson,       // a list of objects or strings, objects over several lines or several on one
};

std::string_view without_spaces(std::string_view text) {
  text.remove_prefix(std::min(text.find_first_not_of(kTextSpaces), text.size()));
  return text;
}

// Whether an object's first key, or a list's first string, object or list, is where it must be.
// Other text may begin with a bracket, too, such as a link in a wiki: [["Heroes" (album)]].
bool begins_like_json(std::string_view text) {
  std::size_t depth = 0;
  for (; text.starts_with('['); ++depth) {
    text = without_spaces(text.substr(1));
  }
  if (!text.starts_with('{')) {
    const bool string = depth > 0 && text.starts_with('"');
    const std::string_view rest = string ? without_spaces(text.substr(end_of_json(text))) : "";
    return string && (depth == 1 || rest.starts_with(',') || rest.starts_with(']'));
  }
  const std::string_view inner = without_spaces(text.substr(1));
  return inner.starts_with('"') &&
         without_spaces(inner.substr(end_of_json(inner))).starts_with(':');
}

TextKind text_kind_of(std::string_view start) {
  const std::string_view text = without_spaces(start);
  if (!(text.starts_with('{') || text.starts_with('[')) || !begins_like_json(text)) {
    return TextKind::kPlain;
  }
  const std::string_view value = text.substr(0, end_of_json(text));
  const std::string_view rest = text.substr(value.size());
  const std::string_view next = without_spaces(rest);
  const std::size_t spaces = rest.size() - next.size();
  const bool alone = next.empty() || rest.substr(0, spaces).find('\n') != std::string_view::npos;
  if (!alone && next.front() != text.front()) {
    return TextKind::kPlain;  // its line goes on in another way
  }
  const bool one_line = value.find('\n') == std::string_view::npos && alone;
  return text.front() == '{' && one_line ? TextKind::kJsonLines : TextKind::kJson;
}

// Throws kBadInput for containers, compressed data, text in UTF-16 or UTF-32 and, if the text is to
// be UTF-8, for other bytes that are no text. The message names a way to read it.
void check_is_text(std::string_view start, std::string_view name, bool utf8) {
  const auto kind = kind_of_bytes(start);
  if (kind && (utf8 || !kind->hidden_text)) {
    throw_bad_input("{}: {}, {} is needed{}", name, kind->name,
                    kind->hidden_text ? "UTF-8" : "text",
                    kind->reader.empty()
                        ? ""
                        : fmt::format(": {} | regroup …, with - in place of FILE", kind->reader));
  }
  if (utf8 && is_binary(start)) {
    throw_bad_input("{}: binary data, text is needed", name);
  }
}

// The member "a.b", or else the member "b" of the member "a"; null if there is none.
const nlohmann::json* member_at(const nlohmann::json& document, const std::string& field) {
  if (const auto found = document.find(field); found != document.end()) {
    return &*found;
  }
  const std::size_t dot = field.find('.');
  const auto outer =
      dot == std::string::npos ? document.end() : document.find(field.substr(0, dot));
  return outer != document.end() && outer->is_object() ? member_at(*outer, field.substr(dot + 1))
                                                       : nullptr;
}

// Whether `value` is a list of objects, as chats are stored.
bool is_chat(const nlohmann::json* value) {
  return value != nullptr && value->is_array() && !value->empty() && value->front().is_object();
}

// The keys of `document` whose values are strings, for a message; not all if there are many.
std::string text_keys_of(const nlohmann::json& document) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : document.items()) {
    if (value.is_string() && keys.size() < 5) {
      keys.push_back(printable(key, 40));
    }
  }
  return keys.empty() ? "no key has a string"
                      : fmt::format("--field names another key: {}", fmt::join(keys, ", "));
}

// The number of an escape such as \ud83d at `at`, if it is one half of a surrogate pair.
std::optional<unsigned> surrogate_at(std::string_view line, std::size_t at) {
  unsigned code = 0;
  const std::string_view digits = line.substr(0, at + 6).substr(std::min(at + 2, line.size()));
  const auto [stopped, fault] =
      std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  const bool whole = line.substr(at).starts_with("\\u") && digits.size() == 4 &&
                     fault == std::errc() && stopped == digits.data() + digits.size();
  return whole && code >= 0xd800 && code < 0xe000 ? std::optional(code) : std::nullopt;
}

// Makes U+FFFD of each half of a surrogate pair that is alone. Returns how many there were.
std::int64_t replace_lone_surrogates(std::string& line) {
  std::int64_t replaced = 0;
  for (std::size_t at = line.find('\\'); at < line.size(); at = line.find('\\', at + 2)) {
    const auto first = surrogate_at(line, at);
    const auto second = first ? surrogate_at(line, at + 6) : std::nullopt;
    if (first && *first < 0xdc00 && second && *second >= 0xdc00) {
      at += 6;
    } else if (first) {
      line.replace(at + 2, 4, "fffd");
      ++replaced;
    }
  }
  return replaced;
}

}  // namespace

std::optional<bool> is_json(const std::string& input, const TextSettings& settings) {
  static const std::atomic<bool> never{false};
  if (const auto stated = stated_json_lines(input, settings)) {
    return stated;
  }
  std::error_code fault;
  if (input == "-" || (fs::exists(input, fault) && !fs::is_regular_file(input, fault))) {
    return std::nullopt;
  }
  return text_kind_of(TextStream(input, never).start()) != TextKind::kPlain;
}

// Reads one list, whose elements are the values, or objects one after another. Only one value is in
// memory. What is inside a value is not checked.
class DocumentReader::JsonValues {
 public:
  // Gets the text of a value and the line on which it begins, counted from 1.
  using Take = std::function<void(std::string value, std::uint64_t line)>;

  // `name` is for messages.
  JsonValues(std::string name, Take take) : name_(std::move(name)), take_(std::move(take)) {}

  // Reads the next bytes. Throws kBadInput for what is neither of the two, and what `take` throws.
  void read(std::string_view bytes) {
    for (const char byte : bytes) {
      read_byte(byte);
      line_ += byte == '\n' ? 1 : 0;
    }
  }

  // Throws kBadInput if the text so far is incomplete.
  void finish() const {
    if (!value_.empty() || (in_list_ && !list_ended_)) {
      refuse("the text ends inside of it");
    }
  }

 private:
  void read_byte(char byte) {
    const bool between = depth_ == 0 && !quoted_;
    if (between && value_.empty() && kTextSpaces.find(byte) != std::string_view::npos) {
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

  void read_inside(char byte) {
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
    if (value_.size() > kLongestLine) {
      refuse("a value of more than 256 MiB");
    }
    if (!in_list_ && depth_ == 0 && !quoted_) {
      give();
    }
  }

  void give() { take_(std::exchange(value_, {}), value_line_); }

  [[noreturn]] void refuse(std::string_view why) const {
    throw_bad_input("{}:{}: JSON that cannot be read: {}; --no-jsonl takes it for text", name_,
                    line_, why);
  }

  std::string name_;
  Take take_;
  bool begun_ = false, in_list_ = false, list_ended_ = false;
  bool gave_ = false;  // a value since the list's last comma
  bool quoted_ = false, escaped_ = false;
  int depth_ = 0;  // of brackets in the value
  std::string value_;
  std::uint64_t line_ = 1, value_line_ = 1;
};

DocumentReader::~DocumentReader() = default;

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
  looked_ = false;
  line_number_ = 0;
  at_line_start_ = true;
  separated_ = false;
  pending_begin_ = 0;
  return true;
}

void DocumentReader::look_at_start() {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  std::string_view start = stream_->start();
  check_is_text(start, stream_->name(), settings_.utf8);
  const bool marked = start.starts_with(kByteOrderMark);
  start.remove_prefix(marked ? kByteOrderMark.size() : 0);
  const auto stated = stated_json_lines(inputs_[next_input_ - 1], settings_);
  TextKind kind = stated == false ? TextKind::kPlain : text_kind_of(start);
  // Among JSON lines, an object over several lines is a faulty line, and so is one list of several.
  const std::string_view begun = without_spaces(start);
  const bool list = kind == TextKind::kJson && begun.front() == '[' &&
                    without_spaces(begun.substr(end_of_json(begun))).empty();
  kind = stated == true && !list ? TextKind::kJsonLines : kind;
  json_ = kind == TextKind::kJsonLines;
  json_values_.reset();
  if (kind == TextKind::kJson) {
    const auto take = [this](std::string text, std::uint64_t line) {
      take_json_document(std::move(text), line);
    };
    json_values_ = std::make_unique<JsonValues>(stream_->name(), take);
  }
  json_inputs_ += kind == TextKind::kPlain ? 0 : 1;
  if (marked && (kind != TextKind::kPlain || settings_.utf8)) {
    stream_->skip(kByteOrderMark.size());
    pending_begin_ = kByteOrderMark.size();
  }
  looked_ = true;
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
  if (!looked_) {
    look_at_start();
  }
  std::string_view line;
  if (!stream_->next(line)) {
    finish_stream();
    return;
  }
  const bool whole = at_line_start_;
  at_line_start_ = line.ends_with('\n');
  if (json_values_) {
    json_values_->read(line);
  } else if (json_) {
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
  if (json_values_) {
    json_values_->finish();
  } else if (json_) {
    take_json_line();
  } else if (!pending_.empty() || !separated_) {
    emit(pending_.size(), true);
  }
  finished_ += stream_->given();
  finished_stored_ += stream_->position();
  stream_.reset();
}

void DocumentReader::read_json_line(std::string_view chunk) {
  json_line_ += chunk;
  if (json_line_.size() > kLongestLine) {
    throw_bad_input("{}:{}: a line of more than {} bytes", stream_->name(), line_number_ + 1,
                    kLongestLine);
  }
  if (at_line_start_) {
    take_json_line();
  }
}

void DocumentReader::take_json_line() {
  ++line_number_;
  std::string line = std::exchange(json_line_, {});
  if (line.find_first_not_of(kTextSpaces) != std::string::npos) {
    take_json_document(std::move(line), line_number_);
  }
}

void DocumentReader::take_json_document(std::string text, std::uint64_t line) {
  if (settings_.replace_invalid) {
    text = replaced(text);
    replaced_bytes_ += replace_lone_surrogates(text);
  }
  try {
    take_json_text(text, line);
  } catch (const Error& fault) {
    if (!settings_.skip_invalid || fault.kind() != ErrorKind::kBadInput) {
      throw;
    }
    ++skipped_lines_;
  }
}

void DocumentReader::take_json_text(const std::string& text, std::uint64_t line) {
  const std::string where = fmt::format("{}:{}", stream_->name(), line);
  const bool string = json_values_ && text.starts_with('"');  // an element of a list
  const std::string field_name = string ? "" : settings_.field;
  const nlohmann::json document =
      parse_sorted_json_object(string ? "{\"\":" + text + "}" : text, where);
  const nlohmann::json* field = member_at(document, field_name);
  if (field == nullptr || !field->is_string()) {
    for (const char* key : {settings_.field.c_str(), "messages", "conversations"}) {
      if ((field == nullptr || is_chat(field)) && is_chat(member_at(document, key))) {
        throw_bad_input(
            "{}: \"{}\" is a list of chat messages, which the model's template makes a text of: "
            "python -m regroup.documents FILE --chat MODEL | regroup tokenize - --parse-special "
            "--no-bos --no-eos --tokenizer MODEL -o chats.bin",
            where, printable(key));
      }
    }
    throw_bad_input("{}: \"{}\" is {}, allowed is a string: the document; {}", where,
                    printable(settings_.field),
                    field == nullptr ? "missing" : fmt::format("a JSON {}", field->type_name()),
                    text_keys_of(document));
  }
  take_text(field->get_ref<const std::string&>());
  emit(pending_.size(), true);
}

// Each invalid byte becomes a character of three.
std::string DocumentReader::replaced(std::string_view text) {
  std::string valid = with_replacements(text);
  replaced_bytes_ += static_cast<std::int64_t>(valid.size() - text.size()) / 2;
  return valid;
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
    part.text = replaced(part.text);
  }
  pending_.erase(0, bytes);
  pending_begin_ += bytes;
  begun_ = !ends;
  ready_.push_back(std::move(part));
}

}  // namespace regroup
