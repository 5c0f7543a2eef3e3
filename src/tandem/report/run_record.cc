#include "tandem/report/run_record.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/trainer/trainer_state.h"

namespace tandem::report {
namespace {

namespace fs = std::filesystem;
using nlohmann::ordered_json;

// A list of pairs: an object would lose one of two entries of the same name.
template <class Value>
ordered_json pairs_to_json(const std::vector<std::pair<std::string, Value>>& pairs) {
  ordered_json list = ordered_json::array();
  for (const auto& [name, value] : pairs) list.push_back({name, value});
  return list;
}

template <class Value>
std::vector<std::pair<std::string, Value>> pairs_from_json(const ordered_json& list) {
  std::vector<std::pair<std::string, Value>> pairs;
  for (const ordered_json& entry : list)
    pairs.emplace_back(entry.at(0).get<std::string>(), entry.at(1).get<Value>());
  return pairs;
}

constexpr const char* kUnits[] = {"fraction", "percent", "number"};  // in the order of MetricUnit

const char* unit_name(tasks::MetricUnit unit) { return kUnits[static_cast<std::size_t>(unit)]; }

// Absent in files of earlier versions.
tasks::LeadingMetrics scores_from_json(const ordered_json& json) {
  tasks::LeadingMetrics scores;
  scores.training_loss = json.value("training_loss", scores.training_loss);
  for (const ordered_json& entry : json.value("scores", ordered_json::array())) {
    const auto* const unit =
        std::find(std::begin(kUnits), std::end(kUnits), entry.at("unit").get<std::string>());
    if (unit == std::end(kUnits)) continue;  // a unit of a later version
    scores.metrics.push_back({entry.at("key"), entry.at("name"),
                              static_cast<tasks::MetricUnit>(unit - std::begin(kUnits)),
                              entry.value("less_is_better", false)});
  }
  return scores;
}

RunRecord parse(const std::string& text, const fs::path& file) {
  try {
    const auto json = parse_ordered_json(text);
    RunRecord run{
        .title = json.at("title"),
        .headline = pairs_from_json<std::string>(json.at("headline")),
        .log_history = json.at("log_history"),
        .steps = trainer::step_points_from_json(json.value("steps", ordered_json::array())),
        .tokens_per_second = {},
        .settings = json.at("settings"),
        .machine = pairs_from_json<std::string>(json.at("machine")),
        .results = pairs_from_json<ordered_json>(json.at("results")),
        .scores = scores_from_json(json),
        .analysis = std::nullopt};
    for (const ordered_json& point : json.at("tokens_per_second")) {
      run.tokens_per_second.push_back(
          {point.at(0).get<double>(), point.at(1).is_number()
                                          ? point.at(1).get<double>()
                                          : std::numeric_limits<double>::quiet_NaN()});
    }
    return run;
  } catch (const ordered_json::exception&) {
    raise<DataError>("'{}' is not the report.json that tandem run_qa writes", file.native());
  }
}

// Null for a number that is not finite, which JSON does not have. A text that cannot be read stays
// as it is, for the reader's message.
std::string standard_json(const std::string& text) {
  try {
    return parse_python_json(text).dump();
  } catch (const ordered_json::exception&) {
    return text;
  }
}

// The metrics of all_results.json whose names begin with "train_", "eval_" and "predict_".
void add_results(const fs::path& file, RunRecord& run) {
  const std::optional<std::string> text = read_file_if_exists(file);
  if (!text) return;
  const auto all = try_parse_ordered_json(standard_json(*text));
  if (!all.is_object()) raise<DataError>("'{}' is not a JSON object", file.native());
  for (const std::string split : {"train", "eval", "predict"}) {
    ordered_json metrics = ordered_json::object();
    for (const auto& [name, value] : all.items()) {
      if (name.starts_with(split + "_")) metrics[name] = value;
    }
    if (!metrics.empty()) run.results.emplace_back(split, std::move(metrics));
  }
}

RunRecord read_files_of_transformers(const fs::path& output_dir) {
  const fs::path state_file = output_dir / "trainer_state.json";
  const std::optional<std::string> state = read_file_if_exists(state_file);
  RunRecord run;
  run.title = fs::weakly_canonical(output_dir).filename().native();
  run.settings = ordered_json::object();
  if (state)
    run.log_history =
        trainer::TrainerState::parse(standard_json(*state), state_file.native()).log_history;
  add_results(output_dir / "all_results.json", run);
  if (!state && run.results.empty()) {
    raise<IoError>(
        "'{}' holds no run: neither report.json nor trainer_state.json nor all_results.json",
        output_dir.native());
  }
  return run;
}

ordered_json scores_to_json(const std::vector<tasks::LeadingMetric>& metrics) {
  ordered_json list = ordered_json::array();
  for (const tasks::LeadingMetric& metric : metrics) {
    list.push_back({{"key", metric.key},
                    {"name", metric.name},
                    {"unit", unit_name(metric.unit)},
                    {"less_is_better", metric.less_is_better}});
  }
  return list;
}

}  // namespace

std::vector<Point> points_of_log(const RunRecord& run, const std::string& key) {
  std::vector<Point> points;
  for (const ordered_json& entry : run.log_history) {
    if (!entry.contains(key) || !entry.contains("step") || !entry[key].is_number()) continue;
    points.push_back({entry["step"].get<double>(), entry[key].get<double>()});
  }
  return points;
}

std::string to_json(const RunRecord& run) {
  ordered_json speeds = ordered_json::array();
  for (const Point& point : run.tokens_per_second) speeds.push_back({point.x, point.y});
  const ordered_json json = {{"title", run.title},
                             {"headline", pairs_to_json(run.headline)},
                             {"results", pairs_to_json(run.results)},
                             {"scores", scores_to_json(run.scores.metrics)},
                             {"training_loss", run.scores.training_loss},
                             {"machine", pairs_to_json(run.machine)},
                             {"settings", run.settings},
                             {"log_history", run.log_history},
                             {"steps", trainer::to_json(run.steps)},
                             {"tokens_per_second", std::move(speeds)}};
  // A path need not be UTF-8.
  return json.dump(1, ' ', false, ordered_json::error_handler_t::replace) + "\n";
}

RunRecord read_run(const fs::path& output_dir) {
  const fs::path file =
      output_dir.filename() == "report.json" ? output_dir : output_dir / "report.json";
  if (const auto text = read_file_if_exists(file)) return parse(*text, file);
  return read_files_of_transformers(output_dir);
}

}  // namespace tandem::report
