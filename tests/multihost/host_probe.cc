// A rank of a job on several hosts, as small as can be. Prints what a test asks about; every line
// begins with the rank.
//   host_probe meet
//     meets the others, adds, prints "rank R: <Communicator::describe()>"
//   host_probe sum COUNT
//     as meet, and adds COUNT float32 before that: "summed in T", in milliseconds
//   host_probe fault KIND PHASE VICTIM
//     the victim does KIND in PHASE (init, middle, end) and prints "fault at T"; the others print
//     "failed at T: <message>" (T: milliseconds of the clock that all processes of a machine
//     share). KIND: kill, stop, exit; pause (sleeps for a second, while the test does something to
//     its host); compute (does nothing for two minutes, as a rank that computes); count, type, op,
//     order (calls something else than the others, which add 10000 float32; at init as the first
//     operation of all); none
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/communicator.h"
#include "tandem/core/env.h"
#include "tandem/core/error.h"

namespace {

using tandem::comm::Communicator;
using tandem::comm::ReduceOp;

struct Fault {
  std::string kind = "none";
  std::string phase;
  int victim = -1;
};

void print_line(int rank, const std::string& text) {
  const std::string line = fmt::format("rank {}: {}\n", rank, text);
  [[maybe_unused]] const ssize_t written = ::write(STDOUT_FILENO, line.data(), line.size());
}

double now_ms() {
  return std::chrono::duration<double, std::milli>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

bool is_mismatch(const Fault& fault) {
  return fault.kind == "count" || fault.kind == "type" || fault.kind == "op" ||
         fault.kind == "order";
}

void disagree(const std::string& how, Communicator& communicator) {
  std::vector<float> data(10000);
  std::vector<std::int32_t> integers(10000);
  if (how == "count") communicator.all_reduce(std::span(data).first(9999), ReduceOp::kSum);
  if (how == "type") communicator.all_reduce(std::span(integers), ReduceOp::kSum);
  if (how == "op") communicator.all_reduce(std::span(data), ReduceOp::kMax);
  if (how == "order") communicator.broadcast(std::span(data), 0);
}

// `communicator` is null while the ranks are still connecting to each other.
void commit(const Fault& fault, int rank, const std::string& phase, Communicator* communicator) {
  if (fault.victim != rank || fault.phase != phase || fault.kind == "none") return;
  if (is_mismatch(fault) && communicator == nullptr) return;
  print_line(rank, fmt::format("fault at {:.1f}", now_ms()));
  if (fault.kind == "kill") ::raise(SIGKILL);
  if (fault.kind == "stop") ::raise(SIGSTOP);
  if (fault.kind == "exit") ::_exit(0);
  if (fault.kind == "pause") std::this_thread::sleep_for(std::chrono::seconds(1));
  if (fault.kind == "compute") std::this_thread::sleep_for(std::chrono::minutes(2));
  if (communicator != nullptr) disagree(fault.kind, *communicator);
}

void work(Communicator& communicator, const Fault& fault) {
  const int rank = communicator.rank();
  std::vector<float> data(10000, 1.0f);
  if (is_mismatch(fault)) commit(fault, rank, "init", &communicator);
  for (int i = 0; i < 20; ++i) communicator.all_reduce(std::span(data), ReduceOp::kSum);
  print_line(rank, "is in the middle");
  if (fault.phase == "middle") {
    for (int i = 0;; ++i) {
      if (i == 20) commit(fault, rank, "middle", &communicator);
      communicator.all_reduce(std::span(data), ReduceOp::kSum);
    }
  }
  commit(fault, rank, "end", &communicator);
  communicator.all_reduce(std::span(data), ReduceOp::kSum);
  communicator.barrier();
}

void add(std::size_t count, Communicator& communicator) {
  std::vector<float> data(count, 1.0f);
  const double start = now_ms();
  communicator.all_reduce(std::span(data), ReduceOp::kSum);
  const auto expected = static_cast<float>(communicator.size());
  if (std::count(data.begin(), data.end(), expected) == static_cast<std::ptrdiff_t>(count))
    print_line(communicator.rank(), fmt::format("summed in {:.0f}", now_ms() - start));
}

// A rank that stops while it connects is given up at the timeout, because no rank watches it yet.
tandem::comm::Options options_of(const Fault& fault) {
  tandem::comm::Options options;
  const bool stops_at_start = fault.kind == "stop" && fault.phase == "init";
  options.timeout = std::chrono::seconds(stops_at_start ? 4 : fault.kind == "compute" ? 120 : 20);
  options.stall_timeout = std::chrono::seconds(1);
  tandem::comm::read_limits_of_silence(tandem::Environment::from_process(), options);
  options.log = [](const std::string& line) { print_line(-1, line); };
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  Fault fault;
  if (argc == 5) fault = {argv[2], argv[3], std::atoi(argv[4])};
  int rank = -1;
  try {
    const auto identity = tandem::rendezvous::identify(tandem::Environment::from_process());
    rank = identity.rank;
    tandem::rendezvous::BootstrapOptions bootstrap_result;
    bootstrap_result.timeout = std::chrono::seconds(20);
    bootstrap_result.log = options_of(fault).log;
    const auto bootstrap = [&](const std::string& peer_info) {
      auto met = tandem::rendezvous::exchange_peer_info(identity, peer_info, bootstrap_result);
      commit(fault, rank, "init", nullptr);
      return met;
    };
    const auto communicator =
        fault.victim < 0 ? Communicator::create(identity, options_of(fault))
                         : Communicator::create(rank, identity.world_size, bootstrap,
                                                /*loopback_only=*/false, options_of(fault));
    print_line(rank, communicator->describe());
    if (fault.victim >= 0) work(*communicator, fault);
    if (argc == 3) add(static_cast<std::size_t>(std::atol(argv[2])), *communicator);
    std::int64_t sum = communicator->rank();
    communicator->all_reduce(std::span(&sum, 1), ReduceOp::kSum);
    print_line(rank, fmt::format("sum {}", sum));
    communicator->close();
  } catch (const tandem::Error& error) {
    print_line(rank, fmt::format("failed at {:.1f}: {}", now_ms(), error.what()));
    return error.exit_code();
  }
  return 0;
}
