// Started by launch_test under real launchers: every rank bootstraps, sums, and prints one line.
//   launch_probe [BACKEND] [die RANK | stop RANK | differ RANK]
// With BACKEND ccl (default), mpi or gloo as the transport, whole collectives are compared with the
// expected values. A rank that dies kills itself after the start, one that stops stops itself: the
// others must end with 200 and its name. One that differs calls with another count.
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tandem/comm/communicator.h"
#include "tandem/comm/memory.h"
#include "tandem/core/env.h"
#include "tandem/core/error.h"

namespace {

using tandem::comm::Communicator;
using tandem::comm::ReduceOp;

float value_of(int rank, std::size_t i) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 101);
}

void require(bool condition, const std::string& what) {
  if (!condition) tandem::raise<tandem::DataError>("wrong result: {}", what);
}

void check_sizes(Communicator& comm) {
  for (const std::size_t count : {0, 1, 1014, 1015, 32771, 1 << 20}) {
    std::vector<float> data(count);
    for (std::size_t i = 0; i < count; ++i) data[i] = value_of(comm.rank(), i);
    const std::vector<float> own = data;
    comm.all_reduce(std::span(data), ReduceOp::kSum);
    for (std::size_t i = 0; i < count; ++i) {
      float sum = 0;
      for (int r = 0; r < comm.size(); ++r) sum += value_of(r, i);
      require(data[i] == sum, fmt::format("all_reduce of {}", count));
    }
    std::vector<float> all(count * static_cast<std::size_t>(comm.size()));
    comm.all_gather(std::span<const float>(own), std::span(all));
    for (std::size_t i = 0; i < all.size(); ++i)
      require(all[i] == value_of(static_cast<int>(i / count), i % count), "all_gather");
    // Around the ring in both directions at once, sent before it is received.
    const int next = (comm.rank() + 1) % comm.size();
    const int previous = (comm.rank() + comm.size() - 1) % comm.size();
    if (next == comm.rank()) continue;
    std::vector<float> received(count);
    const auto sent = comm.start_send(std::span<const float>(own), next, 1);
    comm.receive(std::span(received), previous, 1);
    comm.wait(sent);
    for (std::size_t i = 0; i < count; ++i)
      require(received[i] == value_of(previous, i), "the message around the ring");
  }
}

constexpr int kExitFailed = 200;

void run(int argc, char** argv, const tandem::Environment& environment) {
  const auto identity = tandem::rendezvous::identify(environment);
  const bool has_backend = argc == 2 || argc == 4;
  tandem::comm::Options options;
  options.timeout = std::chrono::seconds(20);
  options.failure_grace = {};
  options.node_id = environment.get("TANDEM_NODE_ID").value_or("");
  options.transport = tandem::comm::choose_transport(has_backend ? argv[1] : "ccl", environment,
                                                     identity.distributed());
  options.stall_timeout = std::chrono::seconds(1);
  options.on_failure = [&environment](const std::string& message) {
    const std::string line = message + "\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
    tandem::rendezvous::end_job(environment, kExitFailed);
    ::_exit(kExitFailed);
  };
  const auto communicator = Communicator::create(identity, options);
  const std::string deed = argc >= 3 ? argv[argc - 2] : "";
  const int chosen = argc >= 3 ? std::atoi(argv[argc - 1]) : -1;
  communicator->barrier();
  if (deed == "die" && communicator->rank() == chosen) ::raise(SIGKILL);
  if (deed == "stop" && communicator->rank() == chosen) ::raise(SIGSTOP);
  std::int64_t sum = communicator->rank();
  do {
    communicator->all_reduce(std::span(&sum, 1), ReduceOp::kSum);
  } while (deed == "die" || deed == "stop");
  if (deed == "differ") {
    std::vector<float> data(communicator->rank() == chosen ? 100001 : 100000);
    communicator->all_reduce(std::span(data), ReduceOp::kSum);
  }
  if (has_backend) check_sizes(*communicator);
  const auto memory = share_node_memory(*communicator, 4096);
  std::string line = fmt::format(
      "rank {} of {} local {} of {} sum {} source {}\n", communicator->rank(), communicator->size(),
      communicator->local_rank(), communicator->local_size(), sum, identity.source);
  if (has_backend) line += communicator->describe() + "\n";
  std::fputs(line.c_str(), stdout);
  communicator->close();
}

}  // namespace

int main(int argc, char** argv) {
  const tandem::Environment environment = tandem::Environment::from_process();
  try {
    run(argc, argv, environment);
  } catch (const tandem::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    tandem::rendezvous::end_job(environment, error.exit_code());
    return error.exit_code();
  }
  return 0;
}
