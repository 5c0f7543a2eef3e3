// State and progress of a job move together: after any loss during the transfer, a node has both or
// its previous ones.
#include "tandem/job/elastic.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <mutex>
#include <optional>
#include <thread>

#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/core/error.h"
#include "tandem/elastic/agent/elastic_agent.h"
#include "tandem/kernels/kernel_set.h"
#include "tandem/kernels/scratch.h"

namespace tandem::job {
namespace {

using comm::Communicator;
using nlohmann::ordered_json;

constexpr std::size_t kElements = 3 * dist::ModelState::kChunk + 5;
constexpr std::uint64_t kOldStep = 7;
constexpr std::uint64_t kNewStep = 12;

void require(bool condition, std::string_view what) {
  if (!condition) throw DataError(std::string(what));
}

// An agent with one worker, which is a thread of this process. The agent's records survive a
// restart of the worker.
class Host {
 public:
  Host() : elastic_agent_({.log = [](const std::string&) {}}) {
    start_worker();
    thread_ = std::thread([this] {
      while (!over_) {
        {
          const std::lock_guard lock(mutex_);
          elastic_agent_.serve();
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    });
  }
  ~Host() {
    over_ = true;
    thread_.join();
  }
  void restart_worker() {
    const std::lock_guard lock(mutex_);
    model_.reset();
    channel_.reset();
    elastic_agent_.worker_ended(0, "was killed by SIGKILL", false);
    start_worker();
  }
  elastic::Assignment next_view() {
    return channel_->next_view(
        {.step = model_->reachable_step(), .shards = 2, .computes = {"kernels", "fingerprint"}},
        [] {});
  }
  elastic::AgentChannel& channel() { return *channel_; }
  dist::ModelState& model() { return *model_; }

 private:
  void start_worker() {
    const elastic::ElasticAgent::Ticket ticket = elastic_agent_.open_channel(0);
    const elastic::WorkerInfo info{.line = ::dup(ticket.inherited[0]),
                                   .memory = ticket.inherited[1]};
    elastic_agent_.channel_taken(0);
    channel_.emplace(info, [] {});
    model_.emplace(
        dist::KeptMemory{.descriptor = info.memory},
        dist::ModelStateOptions{
            .elements = kElements, .optimizer_state_elements = 2 * kElements, .record_values = 2});
  }

  std::mutex mutex_;  // guards elastic_agent_
  elastic::ElasticAgent elastic_agent_;
  std::optional<elastic::AgentChannel> channel_;
  std::optional<dist::ModelState> model_;
  std::atomic<bool> over_{false};
  std::thread thread_;
};

struct Machine {
  ThreadPool threads{1};
  kernels::KernelSet kernels = kernels::select_kernels(kernels::CpuFeatures::detect(), "");
  kernels::Scratch scratch{1};
  kernels::Context context{threads, kernels, scratch};
};

// The job's progress after `step`, without the last two records.
std::string progress_at(std::uint64_t step) {
  const ordered_json state = {{"global_step", step - 2}};
  const ordered_json trainer = {{"state", state.dump()}, {"resume", "{}"}};
  return trainer.dump();
}

void put_state(dist::ModelState& model, std::uint64_t step) {
  std::fill(model.weights().begin(), model.weights().end(), float(step));
  std::fill(model.optimizer_state().begin(), model.optimizer_state().end(), 0.5f);
  model.set_step(step, std::vector<double>(2, double(step)));
  model.set_filled();
}

// This host has computed up to `step`.
void compute_to(Host& host, std::uint64_t step) {
  const elastic::Assignment view = host.next_view();
  put_state(host.model(), step);
  ViewCallbacks callbacks(host.channel(), view, {});
  callbacks.progress(progress_at(step));
  for (const std::uint64_t applied : {step - 1, step})
    callbacks.step_applied(applied, std::vector<double>(2, double(applied)));
}

// The view of a host with step `has`, or without state, that is to receive more.
elastic::Assignment receiver_with(std::uint64_t has, Host& host) {
  if (has > 0) {
    compute_to(host, has);
    host.restart_worker();
  }
  return host.next_view();
}

void require_at(std::uint64_t step, const Progress& progress, dist::ModelState& model) {
  require(model.filled() && model.step() == step, "the step of the weights");
  const auto is = [](float value) { return [=](float other) { return other == value; }; };
  require(std::all_of(model.weights().begin(), model.weights().end(), is(float(step))), "weights");
  require(progress.trainer == progress_at(step), "where the job was");
  const std::vector<std::vector<double>> records = {std::vector<double>(2, double(step - 1)),
                                                    std::vector<double>(2, double(step))};
  require(progress.records == records, "the records since");
}

Progress level_in(Host& host, const elastic::Assignment& view, Communicator& communicator) {
  Machine machine;
  dist::GradientEngine gradients(communicator, machine.context, host.model(),
                                 {.logical_shards = 2});
  return synchronize_state(host.channel(), view, host.model(), gradients, communicator, nullptr)
      .progress;
}

// Alone, after a restart of its worker.
Progress continue_alone(Host& host) {
  host.restart_worker();
  const elastic::Assignment view = host.next_view();
  const auto alone = Communicator::create(0, 1, {}, /*loopback_only=*/true, {});
  return level_in(host, view, *alone);
}

// Rank 0 has the newest state, rank 1 gets it.
void run_transfer(const comm::testing::Body& source, const comm::testing::Body& receiver,
                  bool source_dies) {
  const auto ended = comm::testing::run_processes(
      2,
      [&](Communicator& communicator) {
        (communicator.rank() == 0 ? source : receiver)(communicator);
      },
      [](int rank) {
        comm::Options options = comm::testing::test_options(rank);
        options.node_id = rank == 0 ? "a" : "b";
        return options;
      });
  EXPECT_EQ(WIFSIGNALED(ended[0].status), source_dies) << ended[0].output;
  EXPECT_TRUE(ended[1].exited_with(0)) << ended[1].output;
}

class MovesTogether : public ::testing::TestWithParam<std::uint64_t> {};

// The receiver has no state, or an older step. All others die when the state has moved, before any
// further message.
TEST_P(MovesTogether, TheSourceDiesBehindTheWeights) {
  const std::uint64_t has = GetParam();
  int moved[2];  // by the receiver, when the weights become valid
  ASSERT_EQ(::pipe(moved), 0);
  run_transfer(
      [&](Communicator& communicator) {
        Host host;
        compute_to(host, kNewStep);
        host.restart_worker();
        const elastic::Assignment view = host.next_view();
        Machine machine;
        dist::GradientEngine gradients(communicator, machine.context, host.model(), {});
        gradients.synchronize_state(
            {.training_progress = elastic::to_text(view.briefing.training_progress)});
        char byte;
        require(::read(moved[0], &byte, 1) == 1, "the receiver signals");
        ::raise(SIGKILL);
      },
      [&](Communicator& communicator) {
        Host host;
        const elastic::Assignment view = receiver_with(has, host);
        std::jthread watcher([&](const std::stop_token& over) {
          while (!over.stop_requested() && host.model().step() != kNewStep)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
          require(::write(moved[1], "", 1) == 1, "the source receives the signal");
        });
        try {
          level_in(host, view, communicator);
          throw DataError("no rank noticed that the source is lost");
        } catch (const CommError&) {
        }
        watcher.join();
        require_at(kNewStep, continue_alone(host), host.model());
      },
      true);
  for (const int end : moved) ::close(end);
}

// The progress has been sent, and the weights never become valid.
TEST_P(MovesTogether, TheReceiverIsInterruptedBeforeTheyCount) {
  const std::uint64_t has = GetParam();
  run_transfer(
      [](Communicator& communicator) {
        Host host;
        compute_to(host, kNewStep);
        host.restart_worker();
        try {
          level_in(host, host.next_view(), communicator);
        } catch (const CommError&) {
        }
      },
      [&](Communicator& communicator) {
        Host host;
        const elastic::Assignment view = receiver_with(has, host);
        Machine machine;
        dist::GradientEngine gradients(communicator, machine.context, host.model(), {});
        struct Death {};
        try {
          gradients.synchronize_state({.arrives = [&](const std::string& training_progress) {
            host.channel().arrives(view.view, training_progress);
            throw Death();
          }});
        } catch (const Death&) {
          communicator.life().abort("the view changes");
        }
        const Progress progress = continue_alone(host);
        if (has > 0) return require_at(has, progress, host.model());
        require(host.model().step() == 0 && !host.model().filled(), "a state in pieces counts");
        require(progress.trainer.empty(), "an account without its weights");
      },
      false);
}

INSTANTIATE_TEST_SUITE_P(Has, MovesTogether, ::testing::Values(0, kOldStep));

}  // namespace
}  // namespace tandem::job
