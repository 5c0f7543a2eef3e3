// Orders of the membership.
#include <fmt/format.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "tandem/core/error.h"
#include "tandem/elastic/agent/elastic_agent.h"

namespace tandem::elastic {

using std::chrono::seconds;

void ElasticAgent::stop_workers() {
  state_.stop(Clock::now());
  workers_.send_to_running({.kind = PacketKind::kStop, .view = view_.serial()});
  check_left();
}

void ElasticAgent::obey() {
  while (true) {
    const std::vector<membership::Order> orders = membership_->take_orders();
    if (orders.empty()) return;
    const auto includes = [&](auto wanted) {
      return std::any_of(orders.begin(), orders.end(), wanted);
    };
    const bool done = includes([](const membership::Order& order) {
      const auto* end = std::get_if<membership::End>(&order);
      return end != nullptr && end->code == 0;
    });
    const bool saves = includes([](const membership::Order& order) {
      return std::holds_alternative<membership::SaveCheckpoint>(order);
    });
    for (const membership::Order& order : orders) {
      std::visit(
          [&](const auto& o) {
            using O = std::decay_t<decltype(o)>;
            if constexpr (std::is_same_v<O, membership::Send>) {
              if (links_) links_->send(o.to, *o.message);
            } else if constexpr (std::is_same_v<O, membership::StopWorkers>) {
              if (!done) stop_workers();  // otherwise they are about to end
            } else if constexpr (std::is_same_v<O, membership::RunView> ||
                                 std::is_same_v<O, membership::Learn>) {
              obey(o);
            } else if constexpr (std::is_same_v<O, membership::AskReconfigurationPoint>) {
              workers_.send_to_running({.kind = PacketKind::kChange, .view = view_.serial()});
            } else if constexpr (std::is_same_v<O, membership::End>) {
              obey(o, saves);
            } else if constexpr (std::is_same_v<O, membership::Refused>) {
              log(fmt::format("{} was refused: {}", o.name, o.reason));
            } else if constexpr (std::is_same_v<O, membership::TakeLock> ||
                                 std::is_same_v<O, membership::DropLock>) {
              options_.endpoint->lock->want(std::is_same_v<O, membership::TakeLock>);
            }
          },
          order);
    }
  }
}

void ElasticAgent::obey(const membership::End& order, bool saves) {
  const End end{order.code, order.message};
  if (order.code != 0 && !saves) return state_.end(end);
  state_.begin_end(end, saves && order.code != 0, Clock::now());
  if (state_.job() != AgentState::Job::kClosing) return;
  // The last node of a job that all nodes have to leave.
  const std::vector<int> workers = workers_.choose(view_.most_ranks());
  const int size = static_cast<int>(workers.size());
  view_.begin_closing();
  run(workers, {.before = 0, .own = size, .all = size},
      {.why = "the job is to stop", .paused = true});
}

// One of the workers of a node without state learns the job's state.
void ElasticAgent::obey(const membership::Learn& order) {
  if (workers_.count(State::kReady) == 0 || !learning_.begin(now(), self(), order.view)) return;
  const int worker = workers_.choose(1).front();  // it leads this node in its first view
  log(fmt::format("worker {} takes the job's state from the node at {}, while the others train",
                  worker, learning_.source().address));
  workers_.send(worker, learning_.start(worker));
}

void ElasticAgent::give_up_after_failed_views() {
  const int code = CommError("").exit_code();
  const std::string message = failures_.message();
  if (failures_.ends_job()) return membership_->fail(now(), code, message);
  state_.end({code, message});
}

void ElasticAgent::obey(const membership::RunView& order) {
  const membership::View& view = order.view;
  if (failures_.too_many(view_.has_members_of(view))) return give_up_after_failed_views();
  failures_.begin_view(/*is_level=*/progress_.step() + 1 >= view.step);
  const std::string changes = view_.changes_to(view);
  progress_.begin_view(view_.loses_member(view));
  state_.run();
  const CurrentView::Ranks ranks = view_.install(view);
  const std::vector<int> chosen = workers_.choose(static_cast<std::size_t>(ranks.own));
  // A worker of this node has died since: another view follows, whose line names what has changed.
  view_.set_reason(changes);
  if (static_cast<int>(chosen.size()) < ranks.own) return;
  log_view(view, changes);
  view_.set_reason("");
  run(chosen, ranks, {.why = changes, .paused = view.paused, .one_node = view.members.size() == 1});
  if (const std::string* address = view_.address())
    workers_.send_to_running({.kind = PacketKind::kMeet, .view = view_.serial(), .text = *address});
}

void ElasticAgent::log_view(const membership::View& view, const std::string& changes) const {
  if (view.paused) {
    log(fmt::format(
        "view {}: {} of at least {} nodes are left after step {}: {}; the job waits for more, up "
        "to {} s",
        view_number(), view.members.size(), membership_->options().bounds.min_nodes, step(),
        changes, std::chrono::duration_cast<seconds>(options_.endpoint->timeout).count()));
  } else if (links_ || view_.serial() > 1 || num_ranks() < view_.num_workers()) {
    log(fmt::format("view {}: {} of {} workers continue after step {}{}{}", view_number(),
                    num_ranks(), view_.num_workers(), step(), changes.empty() ? "" : ": ",
                    changes));
  }
}

void ElasticAgent::run(const std::vector<int>& workers, const CurrentView::Ranks& ranks,
                       const Briefing& briefing) {
  state_.run();
  for (std::size_t i = 0; i < workers.size(); ++i) {
    WorkerChannel& channel = workers_.at(workers[i]);
    channel.state = State::kRunning;
    channel.has_computed = channel.has_computed || !briefing.paused;
    channel.rank = ranks.before + static_cast<int>(i);
    Briefing own = briefing;
    own.keeps = i == 0;
    if (own.keeps) {
      view_.set_keeping_worker(workers[i]);
      own.training_progress = progress_.training_progress();
      own.arrived = progress_.arrived();
    }
    workers_.send(workers[i],
                  {PacketKind::kRun, view_.serial(), static_cast<std::uint64_t>(channel.rank),
                   static_cast<std::uint64_t>(ranks.all), to_text(own)});
  }
}

}  // namespace tandem::elastic
