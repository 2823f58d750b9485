#include <algorithm>
#include <array>

#include "formats/base/printable.h"
#include "formats/base/ranges.h"
#include "tokens/tokenizer.h"

namespace regroup {
namespace {

// How one kind of template writes a chat. A text names its special tokens as the tokenizer does;
// {bos} and {eos} are the tokenizer's tokens of these roles.
struct KnownForm {
  std::string_view name;
  // All of them are in the template, with line breaks instead of "\n".
  std::array<std::string_view, 4> in_template;
  bool special;             // whether those that begin with "<" are tokens of this form
  std::string_view system;  // what a system prompt follows; empty: the form has none
  std::string_view to_user, end_of_user, to_answer, end_of_answer;
  std::string_view opening = "";  // what each chat begins with
};

// More special forms stand before those that they resemble.
constexpr std::array kForms{
    KnownForm{"Phi-4",
              {"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
              true,
              "<|im_start|>system<|im_sep|>",
              "<|im_start|>user<|im_sep|>",
              "<|im_end|>",
              "<|im_start|>assistant<|im_sep|>",
              "<|im_end|>"},
    KnownForm{"ChatML",
              {"<|im_start|>", "<|im_end|>", "assistant"},
              true,
              "<|im_start|>system\n",
              "<|im_start|>user\n",
              "<|im_end|>",
              "\n<|im_start|>assistant\n",
              "<|im_end|>\n"},
    // The date is the template's own; some loaders put today's there.
    KnownForm{
        "Llama 3.1",
        {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>",
         "Cutting Knowledge Date: December 2023"},
        true,
        "",
        "<|start_header_id|>user<|end_header_id|>\n\n",
        "<|eot_id|>",
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        "<|eot_id|>",
        "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n"
        "Today Date: 26 Jul 2024\n\n<|eot_id|>"},
    KnownForm{"Llama 3",
              {"<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"},
              true,
              "",
              "<|start_header_id|>user<|end_header_id|>\n\n",
              "<|eot_id|>",
              "<|start_header_id|>assistant<|end_header_id|>\n\n",
              "<|eot_id|>"},
    KnownForm{"Gemma",
              {"<start_of_turn>", "<end_of_turn>", "model"},
              true,
              "",
              "<start_of_turn>user\n",
              "<end_of_turn>",
              "\n<start_of_turn>model\n",
              "<end_of_turn>\n"},
    // The tokenizer of Phi-3 drops white space after these tokens.
    KnownForm{"Phi-3",
              {"<|user|>", "<|assistant|>", "<|end|>"},
              true,
              "",
              "<|user|>",
              "<|end|>",
              "<|assistant|>",
              "<|end|>"},
    KnownForm{"Zephyr",
              {"<|user|>\n' + message['content'] + eos_token", "<|assistant|>", "eos_token"},
              false,
              "",
              "<|user|>\n",
              "{eos}",
              "\n<|assistant|>\n",
              "{eos}\n"},
    KnownForm{"Llama 2",
              {"bos_token + '[INST] '", "[/INST]", "eos_token"},
              false,
              "",
              "{bos}[INST]",
              "[/INST]",
              "",
              "{eos}"},
    KnownForm{
        "Mistral", {"[INST]", "[/INST]", "eos_token"}, false, "", "[INST]", "[/INST]", "", "{eos}"},
};

std::string with_line_breaks(std::string_view text) {
  std::string lines;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const bool is_break = text.substr(at, 2) == "\\n";
    lines += is_break ? '\n' : text[at];
    at += is_break ? 1 : 0;
  }
  return lines;
}

bool is_of(const KnownForm& form, const std::string& chat_template, const Tokenizer& tokenizer) {
  const auto in_template = [&](std::string_view text) {
    return chat_template.find(text) != std::string::npos;
  };
  const auto there = [&](std::string_view token) {
    return !form.special || !token.starts_with('<') || tokenizer.id_of(token).has_value();
  };
  const DocumentEnds& ends = tokenizer.ends();
  if ((form.to_user.starts_with("{bos}") && !ends.bos) ||
      (form.end_of_answer.starts_with("{eos}") && !ends.eos)) {
    return false;
  }
  return std::ranges::all_of(form.in_template, in_template) &&
         std::ranges::all_of(form.in_template, there);
}

// Turns texts of a form into tokens.
class FormEncoder {
 public:
  FormEncoder(const KnownForm& form, Tokenizer& tokenizer) : tokenizer_(tokenizer) {
    for (const std::string_view token : form.in_template) {
      if (token.starts_with('<') || token.starts_with('[')) {
        add(std::string(token), token, tokenizer.id_of(token));
      }
    }
    const DocumentEnds& ends = tokenizer.ends();
    std::string bos, eos;
    tokenizer.for_each_token([&](std::int64_t id, std::string_view text) {
      bos = id == ends.bos ? text : bos;
      eos = id == ends.eos ? text : eos;
    });
    add("{bos}", bos, ends.bos);
    add("{eos}", eos, ends.eos);
    finds_special_ = tokenizer.parse_special() && std::ranges::all_of(special_, [&](auto& token) {
                       return encoded(token.text, true) == std::vector{token.id};
                     });
  }

  // Whether the tokenizer finds special tokens that a text spells out.
  bool finds_special() const { return finds_special_; }

  // The text with special tokens as the tokenizer spells them.
  std::string spelled(std::string text) const {
    for (const Special& token : special_) {
      replace_all(text, token.name, token.text);
    }
    return text;
  }

  // What goes on from other text, unless `begins`.
  std::vector<std::uint32_t> operator()(const std::string& text, bool begins) const {
    return finds_special_ ? encoded(spelled(text), begins) : encoded_in_parts(text, begins);
  }

 private:
  struct Special {
    std::string name;  // in the form
    std::string text;  // of the tokenizer
    std::uint32_t id;
  };

  void add(std::string name, std::string_view text, std::optional<std::int64_t> id) {
    if (id) {
      special_.push_back({std::move(name), std::string(text), static_cast<std::uint32_t>(*id)});
    }
  }

  std::vector<std::uint32_t> encoded(std::string_view text, bool begins) const {
    std::vector<std::uint32_t> ids;
    tokenizer_.encode(text, begins, ids);
    return ids;
  }

  std::vector<std::uint32_t> encoded_in_parts(std::string_view text, bool begins) const {
    std::vector<std::uint32_t> ids;
    while (!text.empty()) {
      std::size_t first = text.size();
      const Special* token = nullptr;
      for (const Special& each : special_) {
        if (const std::size_t at = text.find(each.name); at < first) {
          first = at;
          token = &each;
        }
      }
      if (first > 0) {
        tokenizer_.encode(text.substr(0, first), /*begins_document=*/begins && ids.empty(), ids);
      }
      if (token == nullptr) {
        break;
      }
      ids.push_back(token->id);
      text.remove_prefix(first + token->name.size());
    }
    return ids;
  }

  const Tokenizer& tokenizer_;
  std::vector<Special> special_;
  bool finds_special_ = false;
};

// The default system prompt, if the template has one that is plain text.
std::string system_turn(const KnownForm& form, const std::string& chat_template) {
  constexpr std::size_t kLongest = 2000;
  for (std::size_t at = 0; !form.system.empty();) {
    at = chat_template.find(form.system, at);
    if (at == std::string::npos) {
      break;
    }
    at += form.system.size();
    const std::string rest = chat_template.substr(at, kLongest);
    const std::string prompt = rest.substr(0, rest.find(form.end_of_user));
    if (!prompt.empty() && prompt.size() < rest.size() &&
        prompt.find_first_of("'\"{}") == std::string::npos) {
      return std::string(form.system) + prompt + std::string(form.end_of_answer);
    }
  }
  return "";
}

}  // namespace

std::optional<ChatForm> chat_form_of(Tokenizer& tokenizer) {
  const std::string chat_template = with_line_breaks(tokenizer.chat_template());
  const auto form = std::ranges::find_if(
      kForms, [&](const KnownForm& each) { return is_of(each, chat_template, tokenizer); });
  if (form == kForms.end()) {
    return std::nullopt;
  }
  const auto in_template = [&](std::string_view text) {
    return chat_template.find(text) != std::string::npos;
  };
  const bool repeats_bos = form->to_user.starts_with("{bos}");
  const bool begins = !repeats_bos && in_template("bos_token") && tokenizer.ends().bos;
  const auto space_of = [&](std::string_view text) {  // around [INST], where templates differ
    return form->to_user.ends_with("[INST]") && in_template(text) ? " " : "";
  };
  const FormEncoder encoded(*form, tokenizer);
  const auto joined = [](const auto&... texts) { return (std::string(texts) + ...); };
  const std::string to_user = joined(space_of("' [INST]"), form->to_user);
  const std::string opening =
      joined(begins ? "{bos}" : "", form->opening, system_turn(*form, chat_template), to_user);
  const std::string to_answer = joined(space_of(" [/INST]"), form->end_of_user, form->to_answer);
  ChatForm chat{std::string(form->name), encoded(opening, true), encoded(to_answer, false),
                encoded(joined(form->end_of_answer, to_user), false)};
  chat.before_prompt = encoded.finds_special() ? encoded.spelled(opening) : "";
  chat.before_prompt += space_of("[INST] ");
  chat.after_prompt = encoded.finds_special() ? encoded.spelled(to_answer) : "";
  return chat;
}

std::vector<std::uint32_t> asked_in(const ChatForm& chat, std::string_view prompt,
                                    const Tokenizer& tokenizer) {
  const std::string text = chat.before_prompt + std::string(prompt) + chat.after_prompt;
  std::vector<std::uint32_t> ids;
  if (!chat.after_prompt.empty()) {
    tokenizer.encode(text, /*begins_document=*/true, ids);
    return ids;
  }
  ids = chat.opening;
  tokenizer.encode(text, /*begins_document=*/false, ids);
  append(ids, chat.to_answer);
  return ids;
}

}  // namespace regroup
