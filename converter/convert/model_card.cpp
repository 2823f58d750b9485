#include "converter/convert/model_card.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "formats/base/file.h"
#include "formats/base/hub_cache.h"
#include "formats/base/ranges.h"
#include "formats/model/model_directory.h"
#include "formats/model/record_words.h"

namespace regroup {

namespace {

std::string heads_text(const std::vector<std::int64_t>& heads) {
  return is_uniform(heads) ? fmt::format("{}", std::ranges::max(heads)) : text_of_heads(heads);
}

// Recorded kv heads of one role, unless there are more than layers.
std::string recorded_heads(const Fact<KvHeads>& recorded, const ModelSpec& spec,
                           AttentionRole role) {
  const auto heads = heads_of(recorded.value, spec, role);
  return heads.empty() || heads.size() > spec.layers.size() ? std::string(kNotRecorded)
                                                            : plain_heads(KvHeads{{"", heads}});
}

// Whether an attention has fewer kv heads than query heads in some layer, and whether all of its
// layers have one.
enum class Grouping { kNone, kGrouped, kMultiQuery };

Grouping grouping_of(const ModelSpec& spec) {
  Grouping found = Grouping::kNone;
  for (const AttentionRole role : spec.roles()) {
    std::vector<std::int64_t> heads = spec.kv_heads_of(role);
    std::erase(heads, 0);  // layers without attention
    if (heads.empty() || std::ranges::min(heads) >= spec.query_heads) {
      continue;
    }
    found =
        std::max(found, std::ranges::max(heads) == 1 ? Grouping::kMultiQuery : Grouping::kGrouped);
  }
  return found;
}

constexpr const char *kMadeBy = "regroup", *kMultiQuery = "multi-query-attention",
                     *kGroupedQuery = "grouped-query-attention", *kCustomCode = "custom_code";

// The source's tags without those that the result need not have: of this function, and of formats.
std::vector<std::string> lasting_tags(std::string_view metadata) {
  constexpr std::array<std::string_view, 4> kOwn{kMadeBy, kMultiQuery, kGroupedQuery, kCustomCode};
  std::vector<std::string> tags = metadata_values(metadata, "tags");
  std::erase_if(tags,
                [&](const std::string& tag) { return contains(kOwn, tag) || is_format_word(tag); });
  return tags;
}

std::string front_matter(const Json& config, const ModelSpec& spec, std::string_view metadata,
                         const DirectoryCode& code) {
  std::string text = fmt::format("---\n{}", without_metadata(metadata, "tags"));
  if (!has_metadata(metadata, "library_name")) {
    text += "library_name: transformers\n";
  }
  if (const std::string_view task = pipeline_tag_of(spec);
      !task.empty() && !has_metadata(metadata, "pipeline_tag")) {
    text += fmt::format("pipeline_tag: {}\n", task);
  }
  std::vector<std::string> tags = lasting_tags(metadata);
  tags.emplace_back(kMadeBy);
  if (const Grouping grouping = grouping_of(spec); grouping != Grouping::kNone) {
    tags.emplace_back(grouping == Grouping::kMultiQuery ? kMultiQuery : kGroupedQuery);
  }
  if (code.carried || has_own_code(config) || !code.foreign.empty()) {
    tags.emplace_back(kCustomCode);
  }
  text += "tags:\n";
  for (const std::string& tag : tags) {
    text += fmt::format("- {}\n", yaml_text(tag));
  }
  return text + "---\n";
}

// Links to the cards of the models that this one was made from.
std::string links_to(const std::vector<std::string>& cards) {
  std::string links;
  for (const std::string& card : cards) {
    links += fmt::format("{}[{}]({})", links.empty() ? "" : ", ", card, card);
  }
  return links.empty() ? "" : fmt::format(" What it was made from: {}.", links);
}

std::string heads_table(const ConversionRecord& record, const ModelSpec& spec) {
  std::string table =
      "| Attention | Query heads | Key and value heads of the source | Of this model |\n"
      "|---|---|---|---|\n";
  for (const AttentionRole role : spec.roles()) {
    table += fmt::format("| {} | {} | {} | {} |\n", spec.has_encoder() ? name_of(role) : "self",
                         spec.query_heads, recorded_heads(record.source_kv_heads, spec, role),
                         heads_text(spec.kv_heads_of(role)));
  }
  return table;
}

std::string method_text(const ConversionRecord& record) {
  std::string text = fmt::format(
      "The key and value heads of each group were pooled into one: method `{}`, "
      "grouping `{}`",
      plain_word(record.pool.value), plain_word(record.grouping.value));
  if (record.calibration_tokens.recorded()) {
    text +=
        fmt::format(", with statistics of {} tokens", plain_count(record.calibration_tokens.value));
  }
  text += record.refit.recorded()
              ? ". Each attention layer was then fitted to the outputs of the source's layer."
              : ".";
  if (!record.keeps_distillation()) {
    return text;
  }
  return text + fmt::format(" Then all of them were trained together {}.",
                            record.distilled.value->measure == "hidden_state_error"
                                ? "to give the source's last hidden states"
                                : "to predict what the source predicts");
}

std::string warnings_text(const ConversionRecord& record) {
  std::string text;
  for (const std::string& warning : warnings_in(record)) {
    text += fmt::format("\n**Warning:** {}.\n", warning);
  }
  return text;
}

// How heads were pooled and stored; `pooling`: see with_pooling().
std::string pooling_text(const ConversionRecord& record, const ConversionRecord& pooling) {
  return (pooling.pooled() ? method_text(pooling) : "No heads were pooled.") +
         (pooling.pooled() && !record.pooled() ? " The result was then written in another form."
                                               : "") +
         (record.stored_kv_heads.recorded()
              ? " Each head is stored several times, for loaders without grouped heads."
              : "");
}

std::string measured_losses(const ConversionRecord& record) {
  std::string rows;
  const auto add_mean = [&](std::optional<double> RecordedLayer::* number, const char* title) {
    if (const auto mean = mean_of(record.layers.value, number)) {
      rows += fmt::format("| {} | {:.3g} |\n", title, *mean);
    }
  };
  add_mean(&RecordedLayer::key_energy, "share of the keys' energy kept, on the text");
  add_mean(&RecordedLayer::value_energy, "share of the values' energy kept, on the text");
  add_mean(&RecordedLayer::error_before, "error of attention outputs before fitting");
  add_mean(&RecordedLayer::error_after, "error of attention outputs after fitting");
  return rows.empty() ? "" : "\n| Measured, mean of the pooled layers | |\n|---|---|\n" + rows;
}

// How source and result go on after the same words: a stranger's text, in an indented code block,
// which only a line break could end.
std::string answers_text(const std::optional<std::vector<HeldOutAnswer>>& answers, bool trained) {
  std::string text;
  for (const HeldOutAnswer& answer : answers.value_or(std::vector<HeldOutAnswer>())) {
    text += fmt::format("\n    > {}\n    source: {}\n    {}: {}\n", text_of_answer(answer.prompt),
                        text_of_answer(answer.source), trained ? "converted" : "this model",
                        text_of_answer(answer.result));
  }
  return text.empty() ? ""
                      : fmt::format("\nHow they go on after the same words{}:\n{}",
                                    trained ? ", before the training" : "", text);
}

// The losses of source, mean and result on held-out text, and their answers.
std::string held_out_losses(const ConversionRecord& record) {
  const auto held_out = shown_held_out(record);
  if (!held_out || !held_out->models) {
    return "";
  }
  const std::array<std::pair<std::string, std::optional<double> HeldOutModel::*>, 4> measures{
      {{"Loss, nats per token", &HeldOutModel::loss},
       {"Cosine of last hidden states", &HeldOutModel::cosine},
       {"Divergence from the source", &HeldOutModel::divergence},
       {fmt::format("The same on {} tokens that the source wrote",
                    plain_count(held_out->own_tokens)),
        &HeldOutModel::own_divergence}}};
  std::string head = fmt::format("\n| On {} held-out tokens{} |", plain_count(held_out->tokens),
                                 record.trained() ? ", before the training" : "");
  std::string line = "|---|";
  std::vector<std::string> rows;
  for (const HeldOutModel& model : *held_out->models) {
    rows.push_back(fmt::format("| {} |", plain_word(model.model)));
  }
  for (const auto& [heading, value] : measures) {
    if (std::ranges::none_of(*held_out->models, &std::optional<double>::has_value, value)) {
      continue;  // not measured for models of this kind, or without text of the source
    }
    head += fmt::format(" {} |", heading);
    line += "---|";
    for (std::size_t i = 0; i < rows.size(); ++i) {
      rows[i] += fmt::format(" {} |", plain_loss((*held_out->models)[i].*value));
    }
  }
  return fmt::format("{}\n{}\n{}\n{}", head, line, fmt::join(rows, "\n"),
                     answers_text(held_out->answers, record.trained()));
}

std::string conversion_section(const ConversionRecord& record, const ConversionRecord& pooling,
                               const ModelSpec& spec) {
  return fmt::format(
      "\n## Conversion\n\n{}\n{}\n{}{}{}\nAll facts are in `config.json`, under `regroup`.\n",
      heads_table(pooling, spec), pooling_text(record, pooling), warnings_text(record),
      measured_losses(pooling), held_out_losses(pooling));
}

// What was trained and how, from the recipe in the record of a training.
std::string recipe_text(const Json& training) {
  const Json &trained = member_of(training, "trained"),
             &rate = member_of(training, "learning_rate");
  std::string text = trained == "attention" ? ", on the attention layers"
                     : trained == "kv"      ? ", on the key and value projections"
                     : trained == "all"     ? ", on all weights"
                                            : "";
  text +=
      rate.is_number() ? fmt::format(", with a learning rate of {:.3g}", rate.get<double>()) : "";
  return text +
         (member_of(training, "teacher").is_null() ? "" : ", to predict what a teacher does");
}

std::string training_section(const ConversionRecord& record) {
  const Fact<TrainingRecord>& fact = record.training;
  const auto& training = fact.value;
  if (!training) {
    return fmt::format("\n## Training\n\n{}.\n",
                       record.distill.value ? "That of the attention layers, above; none after it"
                                            : "None after the conversion");
  }
  std::string text = fmt::format("\n## Training\n\n{} step{} of {} tokens in all{}.\n",
                                 plain_count(training->steps), training->steps == 1U ? "" : "s",
                                 plain_count(training->tokens), recipe_text(fact.stored));
  if (training->eval_loss) {
    text += fmt::format(
        "\n| Held-out loss, nats per token ({} tokens) | |\n|---|---|\n| before training | {} |\n"
        "| after | {} |\n",
        plain_count(training->eval_tokens), plain_loss(training->eval_loss_before),
        plain_loss(training->eval_loss));
  }
  return text;
}

// The steps before the last conversion and the training after it.
std::string history_section(const ConversionRecord& record) {
  const Json steps = record.steps();
  const std::size_t shown = (record.converted() ? 1 : 0) + (record.trained() ? 1 : 0);
  if (steps.size() <= shown) {
    return "";
  }
  std::string text = "\n## History\n\n";
  for (const Json& step : steps) {
    const std::string version = version_of_step(step);
    text += fmt::format("- {}{}\n", text_of_step(step),
                        version.empty() ? "" : fmt::format(" (regroup {})", version));
  }
  return text;
}

namespace fs = std::filesystem;

constexpr const char* kCard = "README.md";
constexpr std::uint64_t kMaxCardBytes = 4U << 20;

// The card in `directory`; empty if there is none, or if it is too long to be one.
std::string card_in(const fs::path& directory) {
  const fs::path path = directory / kCard;
  std::error_code unknown;
  return fs::is_regular_file(path, unknown) && fs::file_size(path, unknown) <= kMaxCardBytes
             ? read_text(path, kMaxCardBytes)
             : std::string();
}

// Whether the record in `config` has all of that in `before`: its steps and its last conversion.
bool keeps_record(const Json& config, const Json& before) {
  const auto now = ConversionRecord::in_config(config), old = ConversionRecord::in_config(before);
  const Json steps = now.steps(), old_steps = old.steps();
  if (steps.size() < old_steps.size() ||
      !std::equal(old_steps.begin(), old_steps.end(), steps.begin())) {
    return false;
  }
  const auto members = old.facts().items();
  return std::all_of(members.begin(), members.end(), [&](const auto& member) {
    return member.key() == old.training.key || member.key() == old.history.key ||
           (now.facts().contains(member.key()) && now.facts()[member.key()] == member.value());
  });
}

std::string name_of_earlier_card(std::size_t older) {
  return older == 0 ? "README.source.md" : fmt::format("README.source-{}.md", older + 1);
}

// The cards in `directory` of the models that its model was made from, oldest first.
std::vector<std::string> earlier_cards(const fs::path& directory) {
  std::vector<std::string> cards;
  while (path_exists(directory / name_of_earlier_card(cards.size()))) {
    cards.push_back(name_of_earlier_card(cards.size()));
  }
  return cards;
}

// The heading in the first line of a card's text, if it is one word that looks like a model's name.
std::string name_in_heading(std::string_view card) {
  constexpr std::string_view kMatter = "---\n", kHeading = "# ";
  if (card.starts_with(kMatter)) {
    const std::size_t end = card.find("\n---", kMatter.size() - 1);
    card.remove_prefix(std::min(card.find('\n', std::min(end, card.size() - 1) + 1), card.size()));
  }
  card.remove_prefix(std::min(card.find_first_not_of(" \r\n"), card.size()));
  if (!card.starts_with(kHeading)) {
    return "";
  }
  std::string heading(card.substr(kHeading.size(), card.find('\n') - kHeading.size()));
  heading.erase(heading.find_last_not_of(" \r\n") + 1);
  const bool name = heading.find_first_of("0123456789-_") != heading.npos;  // not "Introduction"
  return name && card_word(heading) == heading ? heading : "";
}

// What a model without a name in its metadata is called: its name on the hub, its card's heading,
// the name of its directory, or of its file without the extension. A plain word, or empty.
std::string usual_name(const fs::path& path, std::string_view card) {
  if (const std::string hub_name = hub_name_of(path); !hub_name.empty()) {
    return hub_name.substr(hub_name.rfind('/') + 1);
  }
  std::string name = name_in_heading(card);
  if (name.empty()) {
    std::error_code unknown;
    const fs::path whole = fs::weakly_canonical(path, unknown);
    name = (fs::is_directory(whole, unknown) ? whole.filename() : whole.stem()).string();
  }
  name = card_word(name);
  std::ranges::replace(name, '?', '-');
  name.erase(0, std::min(name.find_first_not_of("._-"), name.size()));
  return name;
}

// `metadata` of the source's card with the source's name, and with its name on the hub as base
// model if its path is in a cache.
std::string with_origin(std::string metadata, const fs::path& path, std::string_view card) {
  const std::string name = usual_name(path, card), hub_name = hub_name_of(path);
  if (metadata_value(metadata, "model_name").empty() && !name.empty()) {
    metadata = fmt::format("model_name: {}\n{}", yaml_text(name),
                           without_metadata(metadata, "model_name"));
  }
  return hub_name.empty() ? metadata
                          : fmt::format("base_model: {}\n{}", yaml_text(hub_name),
                                        without_metadata(metadata, "base_model"));
}

// The code in a directory without links to the outside, as results are.
DirectoryCode code_of(const fs::path& directory, const Json& config) {
  return code_in(config, directory, companions_of(directory), carried_files(directory));
}

}  // namespace

std::string model_card(const Json& config, const ModelSpec& spec, std::string_view metadata,
                       const DirectoryCode& code, const std::vector<std::string>& earlier) {
  const ConversionRecord record = ConversionRecord::in_config(config);
  const bool converted = record.converted();
  if (!converted && !record.trained()) {
    return "";
  }
  const ConversionRecord pooling = with_pooling(record);
  const std::string version = plain_word(record.version.value);
  const std::string heads = range_of_heads(spec.kv_heads);
  const std::string name = metadata_value(metadata, "model_name");
  return front_matter(config, spec, metadata, code) +
         fmt::format(
             "\n# {} with {} key and value head{}\n\nMade by regroup{}, which gives models fewer "
             "key and value heads.{}\n",
             card_word(name.empty() ? spec.architecture : name), heads, heads == "1" ? "" : "s",
             version == kNotRecorded ? "" : " " + version, links_to(earlier)) +
         (converted ? conversion_section(record, pooling, spec) : "") + training_section(pooling) +
         history_section(record) + loading_section(config, spec, metadata, code);
}

void describe_source(GgufMetadata& gguf, const Model& source) {
  const std::string card = card_in(source.path);
  const std::string metadata = with_origin(lasting_metadata(card), source.path, card);
  const std::string name = metadata_value(metadata, "model_name");
  gguf.set_string("general.type", "model");
  gguf.set_string("general.name", name.empty() ? source.spec.architecture : name);
  for (const auto& [key, gguf_key] : {std::pair{"license", "general.license"},
                                      {"license_name", "general.license.name"},
                                      {"license_link", "general.license.link"}}) {
    if (const std::string value = metadata_value(metadata, key); !value.empty()) {
      gguf.set_string(gguf_key, value);
    }
  }
  for (const auto& [gguf_key, values] :
       {std::pair{"general.languages", metadata_values(metadata, "language")},
        {"general.tags", lasting_tags(metadata)}}) {
    if (!values.empty()) {
      gguf.set_array(gguf_key, values);
    }
  }
  const std::string base = metadata_value(metadata, "base_model");
  if (const std::size_t slash = base.find('/'); slash != base.npos) {
    const std::string key = "general.base_model.0.";
    gguf.set_u32("general.base_model.count", 1);
    gguf.set_string(key + "name", base.substr(slash + 1));
    gguf.set_string(key + "organization", base.substr(0, slash));
    gguf.set_string(key + "repo_url", "https://huggingface.co/" + base);
  }
}

void set_size_label(GgufMetadata& gguf, const ModelSpec& spec) {
  double parameters = 0;
  for (const ExpectedTensor& tensor : expected_tensors(spec)) {
    double elements = 1;
    for (const std::int64_t dimension : tensor.shape) {
      elements *= static_cast<double>(dimension);
    }
    parameters += elements;
  }
  std::size_t unit = 0;
  constexpr std::array<char, 4> kUnits{'K', 'M', 'B', 'T'};
  for (parameters /= 1000; parameters >= 1000 && unit + 1 < kUnits.size(); ++unit) {
    parameters /= 1000;
  }
  const int digits = parameters < 9.95 ? 1 : 0;
  gguf.set_string("general.size_label", fmt::format("{:.{}f}{}", parameters, digits, kUnits[unit]));
}

void write_model_card(const Model& source, const fs::path& directory,
                      const std::string& config_text, const ModelSpec& spec) {
  const Json config = parse_json_object(config_text, "config.json");
  const std::string copied = card_in(directory);
  std::string metadata = source.gguf ? lasting_metadata(*source.gguf) : lasting_metadata(copied);
  const auto source_card = [&] {
    const DirectoryCode code =
        code_in(source.config, source.path, source.companions, carried_files(source.path));
    return model_card(source.config, source.spec, metadata, code, earlier_cards(source.path));
  };
  const bool repeated =
      !copied.empty() && keeps_record(config, source.config) && copied == source_card();
  metadata = with_origin(std::move(metadata), source.path, copied);
  if (model_card(config, spec, metadata).empty()) {
    return;
  }
  const std::vector<std::string> earlier = earlier_cards(directory);
  if (repeated) {
    fs::remove(directory / kCard);
  } else if (path_exists(directory / kCard)) {
    fs::rename(directory / kCard, directory / name_of_earlier_card(earlier.size()));
  }
  write_text(directory / kCard, model_card(config, spec, metadata, code_of(directory, config),
                                           earlier_cards(directory)));
}

void rewrite_record(const fs::path& directory, const ModelSpec& spec,
                    const std::string& config_text) {
  const Json config = parse_json_object(config_text, "config.json");
  const std::string card = model_card(config, spec, lasting_metadata(card_in(directory)),
                                      code_of(directory, config), earlier_cards(directory));
  fs::remove(directory / "config.json");
  write_text(directory / "config.json", config_text);
  fs::remove(directory / kCard);
  write_text(directory / kCard, card);
}

}  // namespace regroup
