// `tandem report RUN…`: several runs on one page.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "tandem/core/file.h"
#include "tandem/report/html_report.h"

namespace tandem::apps {
namespace {

namespace fs = std::filesystem;

// Titles distinguish the runs; where two have the same, all get the folders that were
// given.
void make_names_distinct(const std::vector<std::string>& folders,
                         std::vector<report::RunRecord>& runs) {
  std::vector<std::string> titles;
  titles.reserve(runs.size());
  for (const report::RunRecord& run : runs) titles.push_back(run.title);
  std::sort(titles.begin(), titles.end());
  if (std::adjacent_find(titles.begin(), titles.end()) == titles.end()) return;
  for (std::size_t i = 0; i < runs.size(); ++i) runs[i].title = folders[i];
}

}  // namespace

int compare_runs(const Invocation& invocation) {
  CLI::App app(
      "Shows one or more runs on one page: charts with a line per run, headlines and results "
      "side by side, and what differs in settings and machine. Reads the report.json that tandem "
      "run_qa leaves in its output_dir, or the trainer_state.json and all_results.json of "
      "transformers.",
      "tandem report");
  std::vector<std::string> folders;
  std::string output = "comparison.html";
  app.add_option("runs", folders, "output_dir of each run")->required();
  app.add_option("--output", output, "the page to write")->capture_default_str();
  if (!parse_command(app, invocation.words)) return 0;

  std::vector<report::RunRecord> runs;
  runs.reserve(folders.size());
  for (const std::string& folder : folders) runs.push_back(report::read_run(folder));
  make_names_distinct(folders, runs);
  write_file(output, report::html_comparison(runs));
  fmt::print("{}\n", fs::absolute(output).native());
  return 0;
}

}  // namespace tandem::apps
