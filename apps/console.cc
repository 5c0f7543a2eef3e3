#include "apps/console.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "apps/command/progress_line.h"
#include "apps/command/terminal.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/core/text_layout.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;

// Progress on something that is not a terminal: a line at the first and last step, and whenever
// this much time has passed.
constexpr auto kSparseInterval = std::chrono::seconds(30);
constexpr auto kRedrawInterval = std::chrono::milliseconds(100);

std::tm local_time(std::time_t seconds) {
  std::tm parts{};
  localtime_r(&seconds, &parts);
  return parts;
}

void print(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
  std::fflush(stream);
}

std::string group_thousands(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text += ',';
    text += digits[i];
  }
  return text;
}

// A log entry as Python prints a dict: {'loss': 1.2345, 'epoch': 0.07}. As transformers 4.46 does,
// epoch is rounded to 2 digits here only.
std::string python_dict(const ordered_json& entry) {
  std::string text = "{";
  for (const auto& [key, value] : entry.items()) {
    if (text.size() > 1) text += ", ";
    std::string shown;
    if (value.is_number_float()) {  // repr() writes nan where JSON has NaN
      const double number = value.get<double>();
      shown = python_repr(key == "epoch" ? std::round(number * 100) / 100 : number);
    } else {
      shown = python_json(value);
    }
    text += fmt::format("'{}': {}", key, shown);
  }
  return text + "}";
}

std::string format_rate(double per_second, std::string_view unit) {
  if (per_second >= 1e6) return fmt::format("{:.2f}M {}/s", per_second / 1e6, unit);
  if (per_second >= 1e4) return fmt::format("{:.1f}k {}/s", per_second / 1e3, unit);
  return fmt::format("{:.0f} {}/s", per_second, unit);
}

// A text of several lines has their beginnings laid out already.
void print_behind(std::FILE* to, const std::string& prefix, std::string_view text) {
  constexpr std::size_t kIndent = 4;
  const std::size_t columns = fold_columns(::fileno(to));
  std::string lines = prefix;
  for (std::size_t begin = 0, column = prefix.size(); begin <= text.size(); column = 0) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    lines += wrapped(text.substr(begin, end - begin), column, kIndent, columns) + "\n";
    begin = end + 1;
  }
  print(to, lines);
}

}  // namespace

std::string format_duration(double seconds) {
  const auto total = static_cast<std::int64_t>(std::max(0.0, seconds) + 0.5);
  if (total >= 3600)
    return fmt::format("{}:{:02}:{:02}", total / 3600, total / 60 % 60, total % 60);
  return fmt::format("{:02}:{:02}", total / 60, total % 60);
}

std::string format_metric(std::string_view key, const ordered_json& value) {
  if (key == "total_flos")
    return fmt::format("{}GF", static_cast<std::int64_t>(value.get<double>()) >> 30);
  if (key.find("_mem_") != std::string_view::npos)
    return fmt::format("{}MB", value.get<std::int64_t>() >> 20);
  if (key.ends_with("_runtime")) {
    const double seconds = value.get<double>();
    const auto whole = static_cast<std::int64_t>(seconds);
    const auto hundredths = static_cast<std::int64_t>((seconds - static_cast<double>(whole)) * 100);
    return fmt::format("{}:{:02}:{:02}.{:02}", whole / 3600, whole / 60 % 60, whole % 60,
                       hundredths);
  }
  if (value.is_number_float()) return python_repr(std::round(value.get<double>() * 1e4) / 1e4);
  if (value.is_string()) return value.get<std::string>();
  return value.dump();
}

Console::Console(const job::ConsoleOptions& options)
    : options_(options),
      terminal_(takes_escapes(STDERR_FILENO) && !json()),
      train_start_(Clock::now()) {}

Console::~Console() { erase_bar(); }

void Console::script_line(std::string_view level, std::string_view text) {
  if (!options_.main_process && level == "INFO") return;
  last_topic_.clear();
  if (json()) return json_line(stdout, level, "script", text);
  erase_bar();
  print_behind(
      stdout,
      fmt::format("{:%m/%d/%Y %H:%M:%S} - {} - __main__ - ", local_time(std::time(nullptr)), level),
      text);
}

void Console::fact(std::string_view topic, std::string_view text) {
  if (!options_.main_process) return;
  if (json()) return json_line(stdout, "INFO", topic, text);
  erase_bar();
  constexpr std::size_t kIndent = 16;
  std::string heading = topic == last_topic_ ? "" : fmt::format("{}:", topic);
  if (heading.size() >= kIndent - 2) heading += ' ';
  last_topic_ = topic;
  print(stdout, fmt::format("  {:<{}}{}\n", heading, kIndent - 2,
                            wrapped(text, std::max(kIndent, heading.size() + 2), kIndent,
                                    fold_columns(STDOUT_FILENO))));
}

void Console::command(std::string_view topic, std::string_view text) {
  if (!options_.main_process) return;
  if (json()) return json_line(stdout, "INFO", topic, text);
  erase_bar();
  last_topic_ = topic;
  print(stdout, fmt::format("  {:<14}{}\n", fmt::format("{}:", topic), text));
}

void Console::detail(std::string_view topic, std::string_view text) {
  if (options_.details) fact(topic, text);
}

void Console::library_line(std::string_view level, std::string_view source, std::string_view text) {
  const bool others = options_.only_main_process && !options_.main_process;
  if ((!options_.library_lines || others) && level == "INFO") return;
  if (json()) return json_line(stderr, level, source, text);
  erase_bar();
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
  print_behind(
      stderr,
      fmt::format("[{}|{}] {:%Y-%m-%d %H:%M:%S},{:03} >> ", level, source,
                  local_time(static_cast<std::time_t>(milliseconds / 1000)), milliseconds % 1000),
      text);
}

void Console::metrics_table(std::string_view split, const ordered_json& metrics) {
  if (!options_.main_process) return;
  if (json())
    return json_line(stdout, "trainer", fmt::format("{} metrics", split), {{"metrics", metrics}});
  erase_bar();
  std::vector<std::pair<std::string, std::string>> rows;
  for (const auto& [key, value] : metrics.items())
    rows.emplace_back(key, format_metric(key, value));
  std::sort(rows.begin(), rows.end());
  std::size_t key_width = 0;
  std::size_t value_width = 0;
  for (const auto& [key, value] : rows) {
    key_width = std::max(key_width, key.size());
    value_width = std::max(value_width, value.size());
  }
  std::string text = fmt::format("***** {} metrics *****\n", split);
  for (const auto& [key, value] : rows)
    text += fmt::format("  {:<{}} = {:>{}}\n", key, key_width, value, value_width);
  print(stdout, text);
}

void Console::train_begin(const trainer::TrainBegin& begin) {
  training_ = true;
  train_start_ = Clock::now();
  last_progress_ = {};
  first_step_ = begin.first_step;
  if (begin.continued) return;
  const trainer::TrainingPlan& plan = begin.plan;
  std::string text = "***** Running training *****";
  const auto line = [&](std::string_view name, std::int64_t value) {
    text += fmt::format("\n  {} = {}", name, group_thousands(value));
  };
  line("Num examples", plan.num_features);
  line("Num Epochs", plan.num_epochs);
  line("Instantaneous batch size per device", plan.per_device_batch_size);
  line("Total train batch size (w. parallel, distributed & accumulation)",
       plan.total_train_batch_size());
  line("Gradient Accumulation steps", plan.accumulation_steps);
  line("Total optimization steps", plan.total_steps);
  line("Number of trainable parameters", static_cast<std::int64_t>(begin.num_parameters));
  if (begin.first_step > 0)
    text += fmt::format("\n  Continuing training from global step {}", begin.first_step);
  library_line("INFO", "trainer", text);
}

void Console::step_end(const trainer::StepProgress& progress) {
  const double elapsed = std::chrono::duration<double>(Clock::now() - train_start_).count();
  const std::int64_t steps_here = progress.step - first_step_;
  const double rate = elapsed > 0 ? static_cast<double>(steps_here) / elapsed : 0;
  ProgressLine line{
      .fraction = static_cast<double>(progress.step) / static_cast<double>(progress.max_steps),
      .count = fmt::format("{}/{}", progress.step, progress.max_steps),
      .details = {fmt::format("{}<{}", format_duration(elapsed),
                              format_duration(progress.seconds_left)),
                  rate < 1 && rate > 0 ? fmt::format("{:.2f}s/it", 1 / rate)
                                       : fmt::format("{:.2f}it/s", rate),
                  fmt::format("loss {:.4f}", progress.loss),
                  format_rate(progress.real_tokens_per_second, "tok")},
      .optional_details = 1};
  if (options_.peak_flops > 0) {
    line.details.push_back(
        fmt::format("{:.0f}% of peak", 100 * progress.flops_per_second / options_.peak_flops));
    ++line.optional_details;
  }
  show_progress(format_progress(line, columns()), steps_here == 1,
                progress.step == progress.max_steps,
                {{"step", progress.step},
                 {"max_steps", progress.max_steps},
                 {"epoch", progress.epoch},
                 {"loss", progress.loss},
                 {"learning_rate", progress.learning_rate},
                 {"tokens_per_second", progress.real_tokens_per_second},
                 {"seconds_left", progress.seconds_left}});
}

void Console::log(const ordered_json& entry) {
  if (!options_.main_process || !training_)
    return;  // as in HF: dicts while the training bar lives, then tables
  erase_bar();
  std::string line = python_dict(entry);
  if (json()) {
    line = json_log_line({"INFO", "trainer", line, options_.rank}, {{"metrics", entry}});
  } else {
    line += "\n";
  }
  if (log_to_) return log_to_(std::move(line));
  print(stdout, line);
}

void Console::train_end() {
  erase_bar();
  training_ = false;
  library_line("INFO", "trainer", "Training completed.");
}

void Console::evaluation_begin(std::string_view description, std::size_t num_features,
                               int batch_size) {
  evaluation_start_ = Clock::now();
  last_progress_ = {};
  library_line("INFO", "trainer",
               fmt::format("***** Running {} *****\n  Num examples = {}\n  Batch size = {}",
                           description, num_features, batch_size));
}

void Console::evaluation_progress(std::size_t features_done, std::size_t num_features) {
  const double elapsed = std::chrono::duration<double>(Clock::now() - evaluation_start_).count();
  const double fraction = static_cast<double>(features_done) /
                          static_cast<double>(std::max<std::size_t>(1, num_features));
  const double left = fraction > 0 ? elapsed * (1 - fraction) / fraction : 0;
  const ProgressLine line{
      .fraction = fraction,
      .count = fmt::format("{}/{} features", features_done, num_features),
      .details = {fmt::format("{}<{}", format_duration(elapsed), format_duration(left))}};
  show_progress(format_progress(line, columns()), false, features_done == num_features,
                {{"features", features_done}, {"num_features", num_features}});
}

void Console::evaluation_end() { erase_bar(); }

void Console::saving(const std::filesystem::path& directory) {
  library_line("INFO", "trainer", fmt::format("Saving model checkpoint to {}", directory.native()));
}

void Console::note(std::string_view text) { script_line("INFO", text); }

void Console::warning(std::string_view text) {
  if (options_.main_process) warning_of_host(text);
}

void Console::warning_of_host(std::string_view text) { library_line("WARNING", "tandem", text); }

// A JSON line is as long as it is.
std::optional<int> Console::columns() const {
  return terminal_ ? terminal_columns(STDERR_FILENO) : std::nullopt;
}

void Console::json_line(std::FILE* to, std::string_view severity, std::string_view logger,
                        std::string_view text) const {
  print(to, json_log_line({severity, logger, text, options_.rank}));
}

void Console::json_line(std::FILE* to, std::string_view logger, std::string_view text,
                        const ordered_json& more) const {
  print(to, json_log_line({"INFO", logger, text, options_.rank}, more));
}

void Console::show_progress(const std::string& line, bool first, bool last,
                            const ordered_json& values) {
  if (!options_.main_process || !options_.progress_bars) return;
  const auto now = Clock::now();
  const auto interval =
      terminal_ ? Clock::duration(kRedrawInterval) : Clock::duration(kSparseInterval);
  if (last_progress_ == Clock::time_point{} && !terminal_ && !first)
    last_progress_ = now;  // an evaluation: wait for the first interval
  if (!first && !last && now - last_progress_ < interval) return;
  last_progress_ = now;
  if (terminal_) {
    print(stderr, "\r\033[K" + line);
    bar_visible_ = true;
    if (last) {
      print(stderr, "\n");
      bar_visible_ = false;
    }
  } else if (json()) {
    json_line(stderr, "trainer", line, {{"progress", values}});
  } else {
    print(stderr, line + "\n");
  }
}

void Console::erase_bar() {
  if (!bar_visible_) return;
  print(stderr, "\r\033[K");
  bar_visible_ = false;
}

}  // namespace tandem::apps
