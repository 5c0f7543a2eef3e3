// Started by launch_test under real launchers: every rank meets the others, sums, and prints one line.
//   launch_probe [die RANK]: that rank kills itself after the start; the others must end with 200 and its name.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"
#include "tandem/core/error.h"

int main(int argc, char** argv) {
  using tandem::comm::Communicator;
  try {
    const auto identity = tandem::rendezvous::identify(tandem::Environment::from_process());
    tandem::comm::Options options;
    options.timeout = std::chrono::seconds(20);
    options.failure_grace = {};
    options.on_failure = [](const std::string& message) {
      const std::string line = message + "\n";
      [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
      ::_exit(200);
    };
    const auto communicator = Communicator::create(identity, options);
    const int victim = argc == 3 && std::strcmp(argv[1], "die") == 0 ? std::atoi(argv[2]) : -1;
    communicator->barrier();
    if (communicator->rank() == victim) ::raise(SIGKILL);
    std::int64_t sum = communicator->rank();
    do {
      communicator->all_reduce(std::span(&sum, 1), tandem::comm::ReduceOp::kSum);
    } while (victim >= 0);
    const auto memory = communicator->share_node_memory(4096);
    const std::string line =
        fmt::format("rank {} of {} local {} of {} sum {} source {}\n", communicator->rank(),
                    communicator->size(), communicator->local_rank(), communicator->local_size(),
                    sum, identity.source);
    std::fputs(line.c_str(), stdout);
    communicator->close();
  } catch (const tandem::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return error.exit_code();
  }
  return 0;
}
