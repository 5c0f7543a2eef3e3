#include "tandem/report/model_card.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "tandem/core/ascii.h"
#include "tandem/core/python_json.h"

namespace tandem::report {
namespace {

using nlohmann::ordered_json;
using Row = std::vector<std::string>;

constexpr std::string_view kMissing = "More information needed";

// A number as Python prints it, floats with at most four digits behind the point.
std::string rounded(const ordered_json& value) {
  if (!value.is_number_float()) return value.is_string() ? value.get<std::string>() : value.dump();
  const std::string exact = python_repr(value.get<double>());
  const auto point = exact.find('.');
  const bool is_long = point != std::string::npos && exact.size() - point - 1 > 4;
  return is_long ? fmt::format("{:.4f}", value.get<double>()) : exact;
}

// "exact_match" → "Exact Match", "HasAns_f1" → "Hasans F1", as str.capitalize gives.
std::string heading(std::string_view key) {
  std::string text;
  bool begins = true;
  for (const char c : key) {
    if (c == '_') {
      text += ' ';
      begins = true;
      continue;
    }
    const auto letter = static_cast<unsigned char>(c);
    text += static_cast<char>(begins ? std::toupper(letter) : std::tolower(letter));
    begins = false;
  }
  return text;
}

bool describes_the_run(std::string_view key) {
  constexpr std::array<std::string_view, 8> kKeys = {
      "runtime", "samples", "samples_per_second",     "steps_per_second",
      "epoch",   "step",    "model_preparation_time", "total_flos"};
  return std::find(kKeys.begin(), kKeys.end(), key) != kKeys.end();
}

// The metrics of an evaluation: (key without prefix, value).
std::vector<std::pair<std::string, ordered_json>> metrics_of(const ordered_json& entry) {
  std::vector<std::pair<std::string, ordered_json>> metrics;
  for (const auto& [key, value] : entry.items()) {
    const std::string name = key.starts_with("eval_") ? key.substr(5) : key;
    if (key.starts_with("eval_") && !describes_the_run(name)) metrics.emplace_back(name, value);
  }
  return metrics;
}

// "squad", "squad plain_text".
std::string dataset_title(const ModelCard& card) {
  if (card.dataset_title) return *card.dataset_title;
  return fmt::format("{}{}{}", *card.dataset_name, card.dataset_config ? " " : "",
                     card.dataset_config.value_or(""));
}

std::string dataset_text(const ModelCard& card) {
  return card.dataset_name ? fmt::format("the {} dataset.", dataset_title(card))
                           : "an unknown dataset.";
}

// A name on the Hub is a link; a directory would lead nowhere.
std::string base_model_text(const std::string& name) {
  const bool on_the_hub =
      name.find_first_of("./~") > 0 && std::count(name.begin(), name.end(), '/') <= 1;
  return on_the_hub ? fmt::format("[{}](https://huggingface.co/{})", name, name) : name;
}

std::string origin_text(const ModelCard& card) {
  if (card.base_model.empty()) return "was trained from scratch";
  return fmt::format("is {} of {}", card.relation, base_model_text(card.base_model));
}

// The Hub drops a model index whose results lack a task, a data set or metrics.
std::string model_index(const ModelCard& card) {
  std::string text = fmt::format("model-index:\n- name: {}\n", yaml_scalar(card.name));
  const auto metrics = metrics_of(card.eval_metrics);
  if (!card.dataset_name || metrics.empty()) return text + "  results: []\n";
  text += fmt::format(
      "  results:\n  - task:\n      name: {}\n      type: {}\n    dataset:\n      name: {}\n      "
      "type: "
      "{}\n",
      card.task_name, card.task_type, yaml_scalar(dataset_title(card)),
      yaml_scalar(*card.dataset_name));
  if (card.dataset_config)
    text += fmt::format("      args: {}\n", yaml_scalar(*card.dataset_config));
  text += "    metrics:\n";
  for (const auto& [name, value] : metrics) {
    text += fmt::format("    - name: {}\n      type: {}\n      value: {}\n",
                        yaml_scalar(heading(name)), yaml_scalar(name), python_json(value));
  }
  return text;
}

std::string metadata(const ModelCard& card) {
  std::string text = "---\nlibrary_name: transformers\n";
  if (card.language) text += fmt::format("language:\n- {}\n", yaml_scalar(*card.language));
  if (card.license) text += fmt::format("license: {}\n", yaml_scalar(*card.license));
  if (!card.base_model.empty())
    text += fmt::format("base_model: {}\n", yaml_scalar(card.base_model));
  text += "tags:\n- generated_from_trainer\n";
  if (card.dataset_name) text += fmt::format("datasets:\n- {}\n", yaml_scalar(*card.dataset_name));
  std::string listed;
  for (const auto& [name, value] : metrics_of(card.eval_metrics)) {
    if (std::count(card.listed_metrics.begin(), card.listed_metrics.end(), name) > 0)
      listed += fmt::format("- {}\n", name);
  }
  if (!listed.empty()) text += "metrics:\n" + listed;
  return text + model_index(card) + "---\n";
}

std::string table_line(const Row& cells, const std::vector<std::size_t>& widths) {
  std::string line = "|";
  for (std::size_t i = 0; i < cells.size(); ++i)
    line += fmt::format(" {:<{}} |", cells[i], widths[i]);
  return line + "\n";
}

// Training loss, epoch, step and metrics of each evaluation during training.
std::string training_results(const ModelCard& card) {
  if (card.evaluations.empty()) return "";
  std::vector<Row> rows(1, Row{"Training Loss", "Epoch", "Step"});
  for (const auto& [name, value] : metrics_of(card.evaluations.front()))
    rows[0].push_back(heading(name));
  for (const ordered_json& entry : card.evaluations) {
    Row row = {entry.contains("loss") ? rounded(entry["loss"]) : "No log",
               rounded(entry.value("epoch", ordered_json(0))),
               rounded(entry.value("step", ordered_json(0)))};
    for (const auto& [name, value] : metrics_of(entry)) row.push_back(rounded(value));
    row.resize(rows[0].size());
    rows.push_back(std::move(row));
  }
  std::vector<std::size_t> widths(rows[0].size(), 0);
  for (const Row& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text = table_line(rows[0], widths) + "|";
  for (const std::size_t width : widths) text += fmt::format(":{:-<{}}:|", "", width);
  text += "\n";
  for (std::size_t i = 1; i < rows.size(); ++i) text += table_line(rows[i], widths);
  return text;
}

}  // namespace

std::string yaml_scalar(const std::string& text) {
  const auto plain_character = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-' || c == '.' ||
           c == '/' || c == ' ';
  };
  // Numbers, dates, booleans and null would be read as such; a dash begins a list, a dot may begin
  // a number.
  constexpr std::array<std::string_view, 11> kWords = {"true", "false", "yes", "no",  "on", "off",
                                                       "null", "y",     "n",   "nan", "inf"};
  const std::string lower = ascii_lower(text);
  const bool word = std::find(kWords.begin(), kWords.end(), lower) != kWords.end();
  const bool begins_plain =
      !text.empty() && (std::isalpha(static_cast<unsigned char>(text[0])) != 0 || text[0] == '/');
  if (begins_plain && !word && text.back() != ' ' &&
      std::all_of(text.begin(), text.end(), plain_character)) {
    return text;
  }
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!printable) return python_json_string(text);  // JSON is YAML
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? "''" : std::string(1, c);
  return quoted + "'";
}

std::string model_card_markdown(const ModelCard& card) {
  std::string text = metadata(card);
  text += fmt::format(
      "\n<!-- Written by tandem from what it knows of the run. Please complete it, and then remove "
      "this "
      "comment. -->\n\n# {}\n\nThis model {} on {}\n",
      card.name, origin_text(card), dataset_text(card));
  if (const auto metrics = metrics_of(card.eval_metrics); !metrics.empty()) {
    text += "It achieves the following results on the evaluation set:\n";
    for (const auto& [name, value] : metrics)
      text += fmt::format("- {}: {}\n", heading(name), rounded(value));
  }
  for (const char* section :
       {"Model description", "Intended uses & limitations", "Training and evaluation data"})
    text += fmt::format("\n## {}\n\n{}\n", section, kMissing);
  text +=
      "\n## Training procedure\n\n### Training hyperparameters\n\nThe following hyperparameters "
      "were used during training:\n";
  for (const auto& [name, value] : card.hyperparameters)
    text += fmt::format("- {}: {}\n", name, value);
  if (card.trained) text += "\n### Training results\n\n" + training_results(card) + "\n";
  text += "\n### Framework versions\n\n";
  for (const auto& [name, value] : card.frameworks) text += fmt::format("- {} {}\n", name, value);
  return text;
}

}  // namespace tandem::report
