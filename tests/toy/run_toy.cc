// A program of jobs whose task and family are not tandem's own: what `tandem run_qa` is for
// question answering. One line for the family, in the table that the job gets; one for the task.
#include <fmt/format.h>

#include "apps/job_command.h"
#include "tandem/core/error.h"
#include "toy/toy_family.h"
#include "toy/word_counts.h"

namespace tandem::toy {

constexpr const models::Family* kFamilies[] = {&models::kBert, &kToy};
constexpr apps::JobCommand kCommand = {"run_toy", "counting words", "the example", "",
                                       apps::make_arguments<CommandLine>};

}  // namespace tandem::toy

int main(int argc, char** argv) {
  bool meets = false;
  try {
    return tandem::apps::run_job(tandem::toy::kCommand,
                                 {.words = std::vector<std::string>(argv + 1, argv + argc),
                                  .environment = tandem::Environment::from_process()},
                                 meets, tandem::toy::kFamilies);
  } catch (const tandem::Error& error) {
    fmt::print(stderr, "run_toy: {}\n", error.what());
    return error.exit_code();
  }
}
