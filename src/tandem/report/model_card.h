// README.md of a trained model: the card that Trainer.create_model_card writes, with its metadata
// for the Hub.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/json.h"

namespace tandem::report {

struct ModelCard {
  std::string name;                               // basename of output_dir
  std::string base_model;                         // as given on the command line; empty: none
  std::string relation = "a fine-tuned version";  // what the model is of base_model
  // How the Hub names the task, and which metrics the card's list may name.
  std::string task_name, task_type;
  std::vector<std::string> listed_metrics;
  std::optional<std::string> dataset_name, dataset_config;  // --dataset_name and its configuration
  std::optional<std::string> dataset_title;                 // for people; nothing: both of these
  std::optional<std::string> language, license;
  // With the prefix eval_; empty: not evaluated.
  nlohmann::ordered_json eval_metrics = nlohmann::ordered_json::object();
  std::vector<std::pair<std::string, std::string>> hyperparameters;
  bool trained = true;  // false: only evaluated, so there is no section of training results
  // Evaluations during training, in order: the log entries, with the training loss that was logged
  // before each.
  std::vector<nlohmann::ordered_json> evaluations;
  std::vector<std::pair<std::string, std::string>> frameworks;  // ("tandem", "0.1.0")
};

// The Markdown text: YAML metadata between ---, then headings as transformers has them. Differs
// from it where its card for question answering stays empty: the metrics are in the text, in the
// metadata (with a data set's name, which the Hub demands) and in the table.
std::string model_card_markdown(const ModelCard& card);

// A YAML scalar: plain where that is unambiguous, otherwise in single or double quotes.
std::string yaml_scalar(const std::string& text);

}  // namespace tandem::report
