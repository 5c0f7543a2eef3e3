// kernel_bench NAME: the parts of a step and of preprocessing, for people who change them. Each
// bench verifies first, then times, and gives a share of the limit of the machine.
#include <fmt/format.h>

#include <algorithm>

#include "apps/bench/options.h"
#include "apps/command/command_line.h"
#include "tandem/core/error.h"

namespace tandem::apps::bench {
namespace {

int run(const Invocation& invocation) {
  CLI::App app("Measures tandem's kernels, tokenizers and answers: verifies, then times.",
               "kernel_bench");
  const Bench benches[] = {add_gemm(app),      add_attention(app), add_elementwise(app),
                           add_optimizer(app), add_tokenize(app),  add_answers(app),
                           add_tune(app)};
  return run_chosen(app, benches, invocation);
}

}  // namespace
}  // namespace tandem::apps::bench

int main(int argc, char** argv) {
  try {
    return tandem::apps::bench::run(
        {std::vector<std::string>(argv + std::min(argc, 1), argv + argc),
         tandem::Environment::from_process()});
  } catch (const tandem::Error& error) {
    fmt::print(stderr, "kernel_bench: {}\n", error.what());
    return error.exit_code();
  }
}
