#include "cli/shell/quantity.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>
#include <utility>

#include "cli/shell/text.h"
#include "formats/base/error.h"
#include "formats/base/printable.h"
#include "formats/base/ranges.h"

namespace regroup {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::ranges::transform(result, result.begin(), [](unsigned char c) { return std::tolower(c); });
  return result;
}

// Bytes of a unit; 0 if it is unknown.
double bytes_of_unit(const std::string& unit) {
  constexpr std::array<std::pair<std::string_view, double>, 9> kUnits{{{"b", 1},
                                                                       {"kb", 1e3},
                                                                       {"mb", 1e6},
                                                                       {"gb", 1e9},
                                                                       {"tb", 1e12},
                                                                       {"kib", 1024.0},
                                                                       {"mib", 1048576.0},
                                                                       {"gib", 1073741824.0},
                                                                       {"tib", 1099511627776.0}}};
  const auto found = std::ranges::find(kUnits, unit, [](const auto& known) { return known.first; });
  return found == kUnits.end() ? 0.0 : found->second;
}

// A number and the text that follows it, in lower case.
struct Amount {
  double number = 0.0;
  std::string unit;
};

std::optional<Amount> split_amount(std::string_view text) {
  Amount amount;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), amount.number);
  if (fault != std::errc() || !std::isfinite(amount.number)) {
    return std::nullopt;
  }
  amount.unit = lower({end, text.data() + text.size()});
  return amount;
}

// Suggests sizes for one without a unit ("24") or with an ambiguous unit ("24G").
std::string meant_size(std::string_view text, const Amount& amount) {
  if (amount.unit.empty()) {
    return fmt::format(
        "has no unit; write {0}GiB for 2^30 bytes each, {0}GB for 10^9, {0}B for bytes",
        printable(text));
  }
  const std::string prefix(1, static_cast<char>(std::toupper(amount.unit.front())));
  return fmt::format(
      "has an ambiguous unit; write {0:g}{1}iB (powers of 1024) or {0:g}{1}B "
      "(powers of 1000)",
      amount.number, prefix);
}

std::string text_of(NumberRange range) {
  return range.least_allowed ? fmt::format("{} to {}", range.least, range.most)
                             : fmt::format("more than {}, up to {}", range.least, range.most);
}

// "8192", "8k", "2e9", "1.5T": k and m are contexts' 2^10 and 2^20, b and t pretraining's 10^9 and
// 10^12.
std::optional<std::uint64_t> whole_number(std::string_view text) {
  constexpr double kExact = 0x1p53;
  std::uint64_t digits = 0;
  const char* last = text.data() + text.size();
  if (const auto [end, fault] = std::from_chars(text.data(), last, digits);
      fault == std::errc() && end == last) {
    return digits;
  }
  const std::optional<Amount> amount = split_amount(text);
  const std::string unit = amount ? amount->unit : "none";
  const double factor = unit.empty()  ? 1
                        : unit == "k" ? 0x1p10
                        : unit == "m" ? 0x1p20
                        : unit == "b" ? 1e9
                        : unit == "t" ? 1e12
                                      : 0.0;
  const double number = amount ? amount->number * factor : 0.0;
  const bool written_as_count = !unit.empty() || text.find_first_of("eE") != text.npos;  // no "8.0"
  const bool fits = written_as_count && factor > 0.0 && number >= 0.0 && number <= kExact;
  return fits && std::trunc(number) == number ? std::optional(static_cast<std::uint64_t>(number))
                                              : std::nullopt;
}

// The name of an option in messages: "--output" of "output,-o,--output".
std::string shown_name(const std::string& names) {
  const std::size_t begin = names.find("--");
  return begin == names.npos ? names.substr(0, names.find(','))
                             : names.substr(begin, names.find(',', begin) - begin);
}

}  // namespace

std::uint64_t parse_count(std::string_view option, std::string_view text, CountRange range) {
  const std::optional<std::uint64_t> count = whole_number(text);
  if (!count || *count < range.least || *count > range.most) {
    constexpr std::uint64_t kMany = 1'000'000, kPretraining = 1'500'000'000'000;
    const std::string_view examples =  // of counts of tokens, not of heads
        range.most < kMany || range.least > 8192 ? ""
        : range.most < kPretraining              ? ", such as 8192 or 8k (k: 1,024)"
                                                 : ", such as 8192, 8k (k: 1,024) or 1.5T (10^12)";
    throw_usage("{}: \"{}\" is not a whole number from {} to {}{}", option, printable(text),
                with_thousands(range.least), with_thousands(range.most), examples);
  }
  return *count;
}

std::vector<std::uint64_t> parse_counts(std::string_view option, std::string_view text,
                                        CountRange range) {
  std::vector<std::uint64_t> counts;
  for (const std::string_view part : split(text, ',')) {
    if (part.empty() && !text.empty()) {
      throw_usage("{}: \"{}\": a number is missing before or after a comma", option,
                  printable(text));
    }
    counts.push_back(parse_count(option, part, range));
  }
  return counts;
}

std::uint64_t parse_bytes(std::string_view option, std::string_view text) {
  const std::optional<Amount> amount = split_amount(text);
  std::string unit = amount ? amount->unit : "";
  if (amount && (unit.empty() || unit == "k" || unit == "m" || unit == "g" || unit == "t")) {
    throw_usage("{}: \"{}\" {}", option, printable(text), meant_size(text, *amount));
  }
  unit.erase(0, unit.find_first_not_of(' '));
  const double bytes = amount ? amount->number * bytes_of_unit(unit) : 0.0;
  if (!(bytes >= 1.0 && bytes <= 0x1p60)) {
    throw_usage("{}: \"{}\" is not a size from 1B to 1,048,576TiB, such as 24GiB or 80GB", option,
                printable(text));
  }
  return static_cast<std::uint64_t>(bytes);
}

std::uint64_t parse_rate(std::string_view option, std::string_view text) {
  constexpr std::string_view kPerSecond = "/s";
  if (!text.ends_with(kPerSecond)) {
    throw_usage("{}: \"{}\" is not a rate, such as 3.35TB/s or 900GB/s", option, printable(text));
  }
  return parse_bytes(option, text.substr(0, text.size() - kPerSecond.size()));
}

std::uint64_t parse_bytes_or_share(std::string_view option, std::string_view text,
                                   std::uint64_t whole) {
  const std::optional<Amount> amount = split_amount(text);
  if (!amount) {
    throw_usage("{}: \"{}\" is neither a size, such as 64KiB, nor a share, such as 83%", option,
                printable(text));
  }
  if (!text.ends_with('%')) {
    return parse_bytes(option, text);
  }
  if (amount->unit != "%" || !(amount->number > 0.0 && amount->number <= 100.0)) {
    throw_usage("{}: \"{}\" is not a share above 0% and up to 100%", option, printable(text));
  }
  return static_cast<std::uint64_t>(
      std::llround(amount->number / 100.0 * static_cast<double>(whole)));
}

double parse_number(std::string_view option, std::string_view text, NumberRange range) {
  const std::optional<Amount> amount = split_amount(text);
  const bool number = amount && amount->unit.empty();
  const bool above = number && (range.least_allowed ? amount->number >= range.least
                                                    : amount->number > range.least);
  if (!above || amount->number > range.most) {
    throw_usage("{}: \"{}\" is not a number in the allowed range: {}", option, printable(text),
                text_of(range));
  }
  return amount->number;
}

std::string shell_quoted(const std::string& text) {
  const bool plain = !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("/._-+=:@,%").find(static_cast<char>(c)) != std::string_view::npos;
  });
  if (plain) {
    return text;
  }
  std::string inner = text;
  replace_all(inner, "'", "'\\''");
  return "'" + inner + "'";
}

Option add_parsed(
    Command command, const std::string& names, const std::string& text, const char* kind,
    const std::function<void(const std::string& name, const std::string& typed)>& take) {
  return command
      .add_value(
          names, [name = shown_name(names), take](const std::string& typed) { take(name, typed); },
          text)
      .value_name(kind);
}

Option add_device_option(Command command, std::string& device, const std::string& text) {
  return command
      .add_value(
          "--device",
          [&device](const std::string& typed) {
            const std::string_view number = std::string_view(typed).substr(
                std::min(typed.size(), std::string_view("cuda:").size()));
            const bool numbered = typed.starts_with("cuda:") && !number.empty() &&
                                  number.find_first_not_of("0123456789") == number.npos;
            if (typed != "cpu" && typed != "cuda" && !numbered) {
              throw_usage("--device {}: allowed are cpu, cuda and cuda:N", printable(typed));
            }
            device = typed;
          },
          text)
      .value_name("cpu|cuda")
      .default_text(device);
}

Option add_threads_option(Command command, int& threads, const std::string& text) {
  return add_count(command, "--threads", threads, text, {1, kMostThreads});
}

namespace {

// In small letters, as some systems take names.
std::string ending_of(const std::filesystem::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char byte) {
    return static_cast<char>(byte < 0x80 ? std::tolower(byte) : byte);
  });
  return ending;
}

}  // namespace

bool names_gguf_file(const std::filesystem::path& path) { return ending_of(path) == ".gguf"; }

void check_output_name(const std::filesystem::path& path, std::string_view what,
                       std::initializer_list<std::string_view> endings) {
  constexpr std::array<std::string_view, 12> kFiles{".gguf", ".safetensors", ".bin",  ".pt",
                                                    ".pth",  ".npy",         ".idx",  ".json",
                                                    ".html", ".svg",         ".toml", ".txt"};
  // "out.gguf/" counts as out.gguf.
  const auto whole = path.has_filename() ? path : path.parent_path();
  const std::string ending = ending_of(whole);
  if (contains(kFiles, ending) && !contains(endings, ending)) {
    throw_usage("{}: {} is made, whose name cannot end in {}{}", printable_path(path), what, ending,
                endings.size() == 0 ? std::string(": leave that out")
                                    : fmt::format("; allowed is {}", fmt::join(endings, ", ")));
  }
}

void check_directory_name(const std::filesystem::path& path) {
  check_output_name(path, "a directory", {});
}

}  // namespace regroup
