// A program of jobs whose task and family are not tandem's own: what `tandem run_qa` is for
// question answering. One line for the family, in the table that the job gets; one for the task.
#include <fmt/format.h>

#include <filesystem>

#include "apps/arguments/job_command_line.h"
#include "apps/job_command.h"
#include "toy/toy_family.h"
#include "toy/word_counts.h"

namespace tandem::toy {

constexpr const models::Family* kFamilies[] = {&models::kBert, &kToy};

int run(std::span<const std::string> words) {
  const Environment environment = Environment::from_process();
  tasks::DataSource data;
  CommandLine command_line(data);
  const job::Request request =
      apps::parse_request(words, std::filesystem::current_path(), environment, command_line);
  Job task(std::move(data));
  return apps::run_job(request, task, environment, kFamilies);
}

}  // namespace tandem::toy

int main(int argc, char** argv) {
  try {
    return tandem::toy::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const tandem::Error& error) {
    fmt::print(stderr, "run_toy: {}\n", error.what());
    return error.exit_code();
  }
}
