// For tests: several ranks on one machine, as threads of this process or as separate processes.
#pragma once

#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/ports.h"
#include "tandem/comm/communicator.h"
#include "tandem/core/error.h"

namespace tandem::comm::testing {

using std::chrono::milliseconds;
using Body = std::function<void(Communicator&)>;
// Options of a rank; tests change timeout and node_id.
using OptionsOf = std::function<Options(int rank)>;

// The transport of the tests: transport_main_test.cc sets it from --transport=NAME.
inline TransportOptions& test_transport() {
  static TransportOptions options;
  return options;
}

inline Options test_options(int /*rank*/) {
  Options options;
  options.timeout = milliseconds(60000);
  options.transport = test_transport();
  return options;
}

// Every rank adds its peer info and returns with that of all.
class PeerInfoBoard {
 public:
  explicit PeerInfoBoard(int world_size) : met_(static_cast<std::size_t>(world_size)) {}
  rendezvous::Bootstrap exchange_of(int rank) {
    return [this, rank](const std::string& peer_info) {
      std::unique_lock lock(mutex_);
      met_[static_cast<std::size_t>(rank)].peer_info = peer_info;
      ++arrived_;
      changed_.notify_all();
      changed_.wait(lock, [this] { return arrived_ == met_.size(); });
      return met_;
    };
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<rendezvous::Met> met_;
  std::size_t arrived_ = 0;
};

// Runs `body` on `world_size` threads, each with a separate communicator, which is closed in order
// unless the body throws. Returns the message of each rank's exception, empty without one.
inline std::vector<std::string> run_threads(int world_size, const Body& body,
                                            const OptionsOf& options_of = test_options) {
  PeerInfoBoard board(world_size);
  std::vector<std::string> errors(static_cast<std::size_t>(world_size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < world_size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto communicator = Communicator::create(rank, world_size, board.exchange_of(rank),
                                                       /*loopback_only=*/true, options_of(rank));
        body(*communicator);
        communicator->close();
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// The end of a rank that ran as a process.
struct Ended {
  int status = 0;      // status from waitpid
  std::string output;  // message of the body's exception
  double seconds = 0;  // since the start of run_processes
  bool exited_with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
};

// Runs `body` in `world_size` child processes that bootstrap at a free port. An Error ends the
// child with its exit code.
inline std::vector<Ended> run_processes(int world_size, const Body& body,
                                        const OptionsOf& options_of = test_options) {
  const int port = tandem::testing::free_port();
  const auto start = std::chrono::steady_clock::now();
  std::fflush(nullptr);
  std::vector<pid_t> children;
  std::vector<int> pipes;
  for (int rank = 0; rank < world_size; ++rank) {
    int ends[2];
    if (::pipe(ends) != 0) std::abort();
    const pid_t child = ::fork();
    if (child == 0) {
      for (const int inherited : pipes) ::close(inherited);
      ::close(ends[0]);
      rendezvous::Identity identity;
      identity.rank = identity.local_rank = rank;
      identity.world_size = identity.local_size = world_size;
      identity.master_port = port;
      identity.master_port_given = true;
      int code = 0;
      std::string text;
      try {
        const auto communicator = Communicator::create(identity, options_of(rank));
        body(*communicator);
        communicator->close();
      } catch (const Error& error) {
        text = error.what();
        code = error.exit_code();
      } catch (const std::exception& error) {
        text = error.what();
        code = 1;
      }
      [[maybe_unused]] const ssize_t written = ::write(ends[1], text.data(), text.size());
      ::_exit(code);
    }
    ::close(ends[1]);
    children.push_back(child);
    pipes.push_back(ends[0]);
  }
  std::vector<Ended> ended(children.size());
  std::vector<std::thread> waiters;
  for (std::size_t i = 0; i < children.size(); ++i) {
    waiters.emplace_back([&, i] {
      char bytes[4096];
      for (ssize_t count = 0; (count = ::read(pipes[i], bytes, sizeof bytes)) > 0;) {
        ended[i].output.append(bytes, static_cast<std::size_t>(count));
      }
      ::close(pipes[i]);
      ::waitpid(children[i], &ended[i].status, 0);
      ended[i].seconds =
          std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    });
  }
  for (std::thread& waiter : waiters) waiter.join();
  return ended;
}

inline std::size_t open_descriptors() {
  const std::filesystem::directory_iterator list("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(list), end(list)));
}

}  // namespace tandem::comm::testing
