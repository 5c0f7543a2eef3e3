#include "tandem/elastic/agent/elastic_agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <random>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;

// Delay before the exit once the whole job is known to be done, for nodes that are about to learn
// it.
constexpr milliseconds kLastWork{10000};

// A unique id. A first view is in the order of these numbers, so hosts with an order begin their
// numbers with it.
membership::NodeId new_id(int host) {
  std::random_device random;
  membership::NodeId id = 0;
  while (id == 0) id = (static_cast<std::uint64_t>(random()) << 32) | random();
  constexpr int kRandomBits = 48;
  if (host < 0) return id;
  return (static_cast<std::uint64_t>(host) + 1) << kRandomBits | id >> (64 - kRandomBits);
}

membership::MembershipOptions membership_options(const ElasticAgentOptions& options) {
  membership::MembershipOptions result;
  result.self.id = new_id(options.endpoint ? options.endpoint->host : -1);
  result.self.address = "this host";
  result.bootstrap_node = true;
  // Evaluations and files follow the last step: the workers report when the job is done.
  result.last_step = std::numeric_limits<std::uint64_t>::max();
  if (!options.endpoint) return result;
  result.self.address = options.endpoint->address;
  result.bounds = options.endpoint->bounds;
  result.contacts = options.endpoint->contacts;
  result.bootstrap_node = options.endpoint->bootstrap_node;
  result.external_lock = options.endpoint->lock != nullptr;
  // Workers that compute detect a silent host first and report it. Agents must be slower: they send
  // twice a second and do not probe. After an interruption their messages arrive only when TCP
  // retries, up to as long after it as it has lasted.
  result.limits.quiet = 2 * options.endpoint->host_timeout;
  return result;
}

WorkerCount num_workers_of(const ElasticAgentOptions& options) {
  if (!options.endpoint) return {options.workers, 1, 0};
  return {options.workers, options.endpoint->bounds.max_nodes,
          static_cast<int>(options.endpoint->bounds.first_workers)};
}

}  // namespace

ElasticAgent::ElasticAgent(ElasticAgentOptions options)
    : options_(std::move(options)),
      membership_(std::make_unique<membership::Membership>(
          membership_options(options_), rules_, membership::NodeState{}, membership::Time{})),
      workers_(options_.workers),
      view_(self(), num_workers_of(options_)),
      learning_(options_.endpoint ? options_.endpoint->timeout : milliseconds(0)) {
  if (!options_.endpoint) return;
  ElasticEndpoint& endpoint = *options_.endpoint;
  if (endpoint.lock) endpoint.lock->join(self(), endpoint.address);
  links_ = std::make_unique<AgentLinks>(
      std::move(endpoint.listener),
      AgentLinksOptions{membership_->options().self, endpoint.job, endpoint.token, options_.log});
}

std::string ElasticAgent::key() const { return fmt::format("{:016x}", self()); }

// ---- workers ----

ElasticAgent::Ticket ElasticAgent::open_channel(int worker) {
  return workers_.open(worker, options_.shards,
                       !begun() && worker == 0 && membership_->options().bootstrap_node);
}

void ElasticAgent::worker_ended(int worker, const std::string& how, bool fault) {
  // Its last message may be that it is done.
  read_line(worker);
  WorkerChannel& channel = workers_.at(worker);
  if (channel.state == State::kDone) return check_done();
  if (fault) membership_->worker_fault(now(), progress_.step() + 1, how);
  channel.vacate_at = Clock::time_point::max();
  if (channel.state != State::kGone)
    lose(worker, channel.killed_as.empty() ? how : channel.killed_as);
  obey();
}

void ElasticAgent::lose(int worker, const std::string& how) {
  view_.set_reason(fmt::format("worker {} {}", worker, how));
  vacate(worker);
  obey();
}

// The slot is empty.
void ElasticAgent::vacate(int worker) {
  WorkerChannel& channel = workers_.at(worker);
  if (channel.state == State::kGone || channel.state == State::kDone) return;
  if (channel.state == State::kRunning) progress_.note_loss();
  failures_.explain();
  channel.state = State::kGone;
  if (const auto next = decision_.worker_lost(worker)) answer_requester(*next);
  learning_.worker_lost(worker);
  recount();
  check_left();
  check_done();
}

// Before the first view the node waits for all started workers: they arrive at about the same time.
// Workers of a node without state are not reported while one of them learns it.
void ElasticAgent::recount() {
  if (!begun() && workers_.is_any_awaited()) return;
  const bool may_learn = !begun() && links_ && workers_.count(State::kReady) > 0;
  if (may_learn && learning_.keeps_back(now(), *membership_)) return;
  const std::size_t here = workers_.num_present();
  membership_->workers_changed(now(), static_cast<std::uint32_t>(here));
  if (!begun() && here > 0)
    membership_->nobody_at(now(), "");  // the membership may have waited for this worker
}

void ElasticAgent::report_workers() {
  recount();
  obey();
}

bool ElasticAgent::prepares(int worker) const {
  return workers_.at(worker).state == State::kStarting && !decision_.is_waiting(worker);
}

ElasticAgent::Clock::duration ElasticAgent::decides_for(int worker) const {
  return prepares(worker) ? decision_.decides_for(worker) : Clock::duration::zero();
}

void ElasticAgent::look_for_late() {
  const auto limit = workers_.late_at(options_.late_limit);
  if (begun() || !limit || Clock::now() < *limit) return;
  const auto waited =
      std::chrono::duration_cast<std::chrono::seconds>(workers_.since_first_ready());
  for (const int worker : workers_.take_late()) {
    log(fmt::format(
        "worker {} is not ready {} s after the first one of this host, which does not wait for it "
        "any longer; it joins when it is ready. Its last log line shows its current work",
        worker, waited.count()));
  }
  report_workers();
}

// All workers of the view have left it or are dead: the membership waits for this.
void ElasticAgent::check_left() {
  if (workers_.any_running()) return;
  switch (state_.all_left()) {
    case AgentState::Report::kStopped:
      return membership_->stopped(now(), progress_.step());
    case AgentState::Report::kReconfigurationPoint:
      if (!view_.paused())
        membership_->applied(now(), view_.number(), progress_.step(), /*boundary=*/true);
      return;
    case AgentState::Report::kNothing:
      return;
  }
}

void ElasticAgent::check_done() {
  if (!state_.done_code() || workers_.any_running() || end() != nullptr) return;
  membership_->fail(now(), *state_.done_code(), "");
}

std::string_view ElasticAgent::doing(int worker) const {
  switch (workers_.at(worker).state) {
    case State::kGone:
      return "is not running";
    case State::kStarting:
      return "starts";
    case State::kReady:
      return learns() && worker == learning_.worker() ? "takes the job's state" : "waits";
    case State::kLeft:
      return "waits";
    case State::kRunning:
      return "computes";
    case State::kDone:
      return "is done";
  }
  return "";
}

int ElasticAgent::rank_now(int worker) const {
  const WorkerChannel& channel = workers_.at(worker);
  return channel.state == State::kRunning ? channel.rank : -1;
}

// ---- the job ----

void ElasticAgent::leave() {
  membership_->leave(now());
  obey();
}

void ElasticAgent::fail(int code, const std::string& message) {
  if (!begun() && links_ && options_.endpoint->bounds.first_workers > 0)
    report_cannot_begin(code, message);
  membership_->fail(now(), code, message);
  obey();
}

// ---- the loop ----

void ElasticAgent::add_to(net::EventLoop& loop) const {
  workers_.add_to(loop);
  loop.until(state_.stop_limit(options_.leave_limit));
  if (const auto late = workers_.late_at(options_.late_limit); late && !begun()) loop.until(*late);
  if (const auto due = membership_->next_wake(); due != membership::kNever)
    loop.within(due - now());
  if (links_) {
    links_->add_to(loop);
    loop.within(milliseconds(500));
  }
  if (options_.endpoint && options_.endpoint->lock)
    loop.within(options_.endpoint->lock->interval());
}

// The kernel closes a process's descriptors before it reports how the process has ended.
void ElasticAgent::read_line(int worker) {
  WorkerChannel& channel = workers_.at(worker);
  if (!channel.line.descriptor()) return;
  bool alive = channel.line.read();
  try {
    while (auto packet = channel.line.take()) handle(worker, *packet);
  } catch (const CommError& error) {
    log(fmt::format("worker {}: {}", worker, error.what()));
    workers_.kill(worker, "sent an invalid message");
    alive = false;
  }
  if (!alive) {
    channel.line = PacketSocket();
    channel.vacate_at = Clock::now() + options_.leave_limit;
  }
  obey();
}

void ElasticAgent::kill_late() {
  const auto now = Clock::now();
  if (now < state_.stop_limit(options_.leave_limit)) return;
  for (int worker = 0; worker < workers_.size(); ++worker) {
    if (workers_.at(worker).state != State::kRunning) continue;
    log(fmt::format("worker {} has not left view {} within {} ms: it is killed", worker,
                    view_number(), options_.leave_limit.count()));
    workers_.kill(worker, "was stopped or stuck");
  }
  state_.remind(now);
}

void ElasticAgent::watch_learner() {
  const auto ended = learning_.wake(now(), *membership_);
  if (!ended) return;
  log(ended->log);
  if (ended->joins) report_workers();
}

// Ready workers do not wait forever for a view.
void ElasticAgent::watch_timeout() {
  if (!links_ || state_.job() != AgentState::Job::kGoing) return;
  const bool computes =
      membership_->phase() == membership::Membership::Phase::kRunning && !view_.paused();
  const bool prepares = (workers_.is_any_awaited() && !decision_.is_any_waiting()) || learns();
  if (computes || prepares) return idle_.reset();
  const auto now = Clock::now();
  const IdleWatch::Due due = idle_.look(now, options_.endpoint->timeout);
  if (due == IdleWatch::Due::kNothing) return;
  const std::string what = decision_.text() ? membership_->waiting_for()
                                            : "the agent of the endpoint, where the job begins";
  if (due == IdleWatch::Due::kNotice) return log(fmt::format("waiting for {}", what));
  std::string why = options_.endpoint->advice;
  for (const auto& [name, reason] : membership_->refused())
    why += fmt::format("\n{} was refused: {}", name, reason);
  const std::string& driven_out = failures_.driven_out();
  if (!driven_out.empty()) why += "\na node has left because " + driven_out;
  const int code = driven_out.empty() ? 1 : CommError("").exit_code();
  state_.end({code, fmt::format("waited {} s for {}; {}", idle_.waited(now).count(), what, why)});
}

void ElasticAgent::serve() {
  handle_others();
  handle_lock();
  for (int worker = 0; worker < workers_.size(); ++worker) read_line(worker);
  membership_->wake(now());
  obey();
  watch_learner();
  watch_timeout();
  state_.finish(!workers_.any_running(), Clock::now(), kLastWork);
  for (const int worker : workers_.take_cut_off()) lose(worker, "has ended its line");
  kill_late();
  look_for_late();
}

}  // namespace tandem::elastic
