#include <algorithm>
#include <array>

#include "tokens/tokenizer.h"

namespace regroup {
namespace {

// How one kind of template writes a chat. A text names its special tokens as the tokenizer does;
// {bos} and {eos} are the tokenizer's tokens of these roles.
struct KnownForm {
  std::string_view name;
  // All of them are in the template, with line breaks instead of "\n".
  std::array<std::string_view, 3> in_template;
  bool special;             // whether those that begin with "<" are tokens of this form
  std::string_view system;  // what a system prompt follows; empty: the form has none
  std::string_view to_user, end_of_user, to_answer, end_of_answer;
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

using SpecialTokens = std::vector<std::pair<std::string_view, std::uint32_t>>;

SpecialTokens special_tokens_of(const KnownForm& form, const Tokenizer& tokenizer) {
  SpecialTokens special;
  const auto add = [&](std::string_view name, std::optional<std::int64_t> id) {
    if (id) {
      special.emplace_back(name, static_cast<std::uint32_t>(*id));
    }
  };
  for (const std::string_view token : form.in_template) {
    if (token.starts_with('<') || token.starts_with('[')) {
      add(token, tokenizer.id_of(token));
    }
  }
  add("{bos}", tokenizer.ends().bos);
  add("{eos}", tokenizer.ends().eos);
  return special;
}

// Encodes a text of a form.
std::vector<std::uint32_t> encoded(std::string_view text, const SpecialTokens& special,
                                   const Tokenizer& tokenizer) {
  std::vector<std::uint32_t> ids;
  while (!text.empty()) {
    std::size_t first = text.size();
    const SpecialTokens::value_type* token = nullptr;
    for (const auto& each : special) {
      if (const std::size_t at = text.find(each.first); at < first) {
        first = at;
        token = &each;
      }
    }
    if (first > 0) {
      tokenizer.encode(text.substr(0, first), /*begins_document=*/ids.empty(), ids);
    }
    if (token == nullptr) {
      break;
    }
    ids.push_back(token->second);
    text.remove_prefix(first + token->first.size());
  }
  return ids;
}

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

std::optional<ChatForm> chat_form_of(const Tokenizer& tokenizer) {
  const std::string chat_template = with_line_breaks(tokenizer.chat_template());
  const auto form = std::ranges::find_if(
      kForms, [&](const KnownForm& each) { return is_of(each, chat_template, tokenizer); });
  if (form == kForms.end()) {
    return std::nullopt;
  }
  const bool repeats_bos = form->to_user.starts_with("{bos}");
  const bool begins =
      !repeats_bos && chat_template.find("bos_token") != std::string::npos && tokenizer.ends().bos;
  const SpecialTokens special = special_tokens_of(*form, tokenizer);
  const auto joined = [&](const auto&... texts) {
    return encoded((std::string(texts) + ...), special, tokenizer);
  };
  return ChatForm{std::string(form->name),
                  joined(begins ? "{bos}" : "", system_turn(*form, chat_template), form->to_user),
                  joined(form->end_of_user, form->to_answer),
                  joined(form->end_of_answer, form->to_user)};
}

}  // namespace regroup
