#include "tests/cli/report/markup_reader.h"

#include <algorithm>
#include <array>
#include <sstream>

namespace regroup {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view document) : left_(document) {}

  Markup read() {
    while (!left_.empty() && found_.fault.empty()) {
      if (left_.starts_with("<!doctype html>")) {
        left_.remove_prefix(15);
      } else if (left_.starts_with("</")) {
        close();
      } else if (left_.front() == '<') {
        open();
      } else {
        text();
      }
    }
    if (found_.fault.empty() && !open_.empty()) {
      found_.fault = "<" + open_.back() + "> is not closed";
    }
    return std::move(found_);
  }

 private:
  void fail(const std::string& why) {
    found_.fault = why + " at: " + std::string(left_.substr(0, 80));
  }

  std::string name() {
    const std::size_t end = left_.find_first_of(" />\n");
    const std::string name(left_.substr(0, end));
    left_.remove_prefix(std::min(end, left_.size()));
    return name;
  }

  void close() {
    left_.remove_prefix(2);
    const std::string closed = name();
    if (open_.empty() || open_.back() != closed || !left_.starts_with('>')) {
      return fail("</" + closed + "> closes something else");
    }
    open_.pop_back();
    left_.remove_prefix(1);
  }

  void open() {
    constexpr std::array<std::string_view, 2> kWithoutEnd{"meta", "link"};
    left_.remove_prefix(1);
    const std::string opened = name();
    if (opened.empty() ||
        opened.find_first_not_of("abcdefghijklmnopqrstuvwxyzH123456") != opened.npos) {
      return fail("<" + opened + "> is no tag");
    }
    found_.tags.push_back(opened);
    while (found_.fault.empty() && !left_.starts_with('>') && !left_.starts_with("/>")) {
      attribute();
    }
    if (found_.fault.empty()) {
      const bool ended = left_.front() == '/';
      left_.remove_prefix(ended ? 2 : 1);
      if (opened == "style") {  // contains no markup
        left_.remove_prefix(std::min(left_.find("</style>"), left_.size()));
      }
      if (!ended &&
          std::find(kWithoutEnd.begin(), kWithoutEnd.end(), opened) == kWithoutEnd.end()) {
        open_.push_back(opened);
      }
    }
  }

  void attribute() {
    if (!left_.starts_with(' ')) {
      return fail("an attribute is needed");
    }
    left_.remove_prefix(1);
    const std::size_t equals = left_.find("=\"");
    const std::string key(left_.substr(0, equals));
    if (equals == left_.npos || key.find_first_of(" <>\"'&") != key.npos) {
      return fail("no attribute");
    }
    left_.remove_prefix(equals + 2);
    const std::size_t end = left_.find('"');
    const std::string value = resolved(left_.substr(0, end));
    left_.remove_prefix(std::min(end, left_.size() - 1) + 1);
    found_.attributes.push_back(key);
    if (key == "id") {
      found_.ids.push_back(value);
    } else if (key == "aria-labelledby") {
      std::istringstream words(value);
      for (std::string word; words >> word;) {
        found_.references.push_back(word);
      }
    } else if (key == "href" && value.starts_with('#')) {
      found_.references.push_back(value.substr(1));
    }
  }

  void text() {
    const std::string_view text = left_.substr(0, left_.find('<'));
    if (text.find('>') != text.npos) {
      return fail("a bare > in text");
    }
    found_.text += resolved(text);
    left_.remove_prefix(text.size());
  }

  std::string resolved(std::string_view text) {
    constexpr std::array<std::pair<std::string_view, char>, 5> kEntities{
        {{"&amp;", '&'}, {"&lt;", '<'}, {"&gt;", '>'}, {"&quot;", '"'}, {"&#39;", '\''}}};
    std::string result;
    while (!text.empty()) {
      const auto entity = std::find_if(kEntities.begin(), kEntities.end(),
                                       [&](const auto& e) { return text.starts_with(e.first); });
      if (entity == kEntities.end() && text.front() == '&') {
        fail("a bare & in text");
      }
      result += entity == kEntities.end() ? text.front() : entity->second;
      text.remove_prefix(entity == kEntities.end() ? 1 : entity->first.size());
    }
    return result;
  }

  std::string_view left_;
  std::vector<std::string> open_;
  Markup found_;
};

}  // namespace

Markup read_markup(std::string_view document) { return Reader(document).read(); }

}  // namespace regroup
