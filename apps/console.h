// Console output of a run in Hugging Face's format (docs: run_qa.py under transformers 4.46). Log
// lines of the script, log dicts and metric tables go to stdout; lines of the library, warnings and
// progress go to stderr. On a terminal progress is a bar that is redrawn in place; elsewhere (a
// file, a pipe, mpirun) it is a line now and then. With --log_format json each line is a JSON
// object, and the values that it shows are members of it.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "tandem/job/console.h"

namespace tandem::apps {

class Console final : public job::Console {
 public:
  explicit Console(const job::ConsoleOptions& options);
  ~Console() override;

  // "11/21/2026 14:08:00 - INFO - __main__ - text" on stdout. INFO is the main process's.
  void script_line(std::string_view level, std::string_view text) override;
  // "  memory:      39 MiB …" on stdout, in lines of at most 100 columns: what a person would act
  // on before the run has begun. The same topic twice in a row is shown once.
  void fact(std::string_view topic, std::string_view text) override;
  // The same without folding, so that a shell takes it as one line.
  void command(std::string_view topic, std::string_view text) override;
  // A fact for --log_level debug.
  void detail(std::string_view topic, std::string_view text) override;
  // "[INFO|trainer] 2026-11-21 14:08:00,123 >> text" on stderr.
  void library_line(std::string_view level, std::string_view source,
                    std::string_view text) override;
  // "***** train metrics *****" and the aligned values, on stdout.
  void metrics_table(std::string_view split, const nlohmann::ordered_json& metrics) override;
  void set_peak_flops(double flops) override { options_.peak_flops = flops; }
  void set_main_process(bool main) override { options_.main_process = main; }

  void train_begin(const trainer::TrainBegin& begin) override;
  void step_end(const trainer::StepProgress& progress) override;
  void log(const nlohmann::ordered_json& entry) override;
  void divert_log(std::function<void(std::string)> to) override { log_to_ = std::move(to); }
  void train_end() override;
  void evaluation_begin(std::string_view description, std::size_t num_features,
                        int batch_size) override;
  void evaluation_progress(std::size_t features_done, std::size_t num_features) override;
  void evaluation_end() override;
  void saving(const std::filesystem::path& directory) override;
  void note(std::string_view text) override;
  // A warning about the job. All ranks know it, and the main process logs it.
  void warning(std::string_view text) override;
  // A warning about one host, which the text names.
  void warning_of_host(std::string_view text) override;

 private:
  using Clock = std::chrono::steady_clock;
  void show_progress(const std::string& line, bool first, bool last,
                     const nlohmann::ordered_json& values);
  std::optional<int> columns() const;
  bool json() const { return options_.format == LogFormat::kJson; }
  void json_line(std::FILE* to, std::string_view severity, std::string_view logger,
                 std::string_view text) const;
  void json_line(std::FILE* to, std::string_view logger, std::string_view text,
                 const nlohmann::ordered_json& more) const;
  void erase_bar();

  job::ConsoleOptions options_;
  std::string last_topic_;
  bool terminal_ = false;  // stderr is one
  std::function<void(std::string)> log_to_;
  bool bar_visible_ = false;
  bool training_ = false;
  Clock::time_point last_progress_;
  Clock::time_point train_start_;
  std::int64_t first_step_ = 0;
  Clock::time_point evaluation_start_;
};

// A metric as the table shows it: floats rounded to 4 digits, *_runtime as H:MM:SS.cc, total_flos
// in GF.
std::string format_metric(std::string_view key, const nlohmann::ordered_json& value);
// 75.4 -> "01:15", 4000 -> "1:06:40".
std::string format_duration(double seconds);

}  // namespace tandem::apps
