#include "tandem/elastic/agent/elastic_agent.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <random>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::elastic {
using std::chrono::milliseconds;

namespace {

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

}  // namespace

membership::MembershipOptions ElasticAgent::agent_options(const ElasticAgentOptions& options) {
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

ElasticAgent::ElasticAgent(ElasticAgentOptions options)
    : options_(std::move(options)),
      memory_(::memfd_create("tandem-node", MFD_CLOEXEC)),
      num_workers_(
          options_.workers, options_.endpoint ? options_.endpoint->bounds.max_nodes : 1,
          options_.endpoint ? static_cast<int>(options_.endpoint->bounds.first_workers) : 0),
      joining_(options_.endpoint ? options_.endpoint->timeout : milliseconds(0)) {
  if (!memory_) throw io_error("cannot create a memory file", "memfd", errno);
  channels_.resize(static_cast<std::size_t>(options_.workers));
  membership_ = std::make_unique<membership::Membership>(agent_options(options_), rules_,
                                                         membership::NodeState{}, now());
  if (!options_.endpoint) return;
  ElasticEndpoint& endpoint = *options_.endpoint;
  address_ = endpoint.address;
  if (endpoint.lock) endpoint.lock->join(membership_->options().self.id, endpoint.address);
  links_ = std::make_unique<AgentLinks>(
      std::move(endpoint.listener),
      AgentLinksOptions{membership_->options().self, endpoint.job, endpoint.token, options_.log});
}

std::string ElasticAgent::key() const {
  return fmt::format("{:016x}", membership_->options().self.id);
}

membership::Time ElasticAgent::now() const {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - started_);
}

std::size_t ElasticAgent::count(State state) const {
  return static_cast<std::size_t>(
      std::count_if(channels_.begin(), channels_.end(),
                    [&](const WorkerChannel& channel) { return channel.state == state; }));
}

// ---- workers ----

ElasticAgent::Ticket ElasticAgent::open_channel(int worker) {
  auto [own, other] = socket_pair();
  WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
  channel = WorkerChannel();
  std::erase(stuck_, worker);  // its process has ended; the next one must not be killed
  channel.state = State::kStarting;
  channel.line = PacketSocket(std::move(own));
  channel.workers_end = std::move(other);
  const WorkerInfo info{
      .line = channel.workers_end.get(),
      .memory = memory_.get(),
      .worker = worker,
      .workers = options_.workers,
      .shards = options_.shards,
      .speaks = !begun_ && worker == 0 && membership_->options().bootstrap_node ? 1 : 0};
  return {to_text(info), {info.line, info.memory}};
}

void ElasticAgent::channel_taken(int worker) {
  channels_[static_cast<std::size_t>(worker)].workers_end = rendezvous::FileDescriptor();
}

void ElasticAgent::worker_ended(int worker, const std::string& how, bool fault) {
  WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
  // Its last message may be that it is done.
  read_line(worker);
  if (channel.state == State::kDone) return check_done();
  if (fault) membership_->worker_fault(now(), step_ + 1, how);
  channel.vacate_at = Clock::time_point::max();
  if (channel.state != State::kGone)
    lose(worker, channel.killed_as.empty() ? how : channel.killed_as);
  obey();
}

void ElasticAgent::lose(int worker, const std::string& how) {
  why_ = fmt::format("worker {} {}", worker, how);
  vacate(worker);
  obey();
}

// The slot is empty.
void ElasticAgent::vacate(int worker) {
  WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
  if (channel.state == State::kGone || channel.state == State::kDone) return;
  lost_since_step_ = lost_since_step_ || channel.state == State::kRunning;
  in_vain_ = 0;
  failed_.reset();
  channel.state = State::kGone;
  if (decider_ == worker && !decision_) {
    decider_ = -1;
    if (!requesters_.empty()) {
      const int next = requesters_.front();
      requesters_.erase(requesters_.begin());
      answer_requester(next);
    }
  }
  std::erase(requesters_, worker);
  if (worker == learner_) joining_.worker_lost();
  recount();
  check_left();
  check_done();
}

// Before the first view the node waits for all started workers: they arrive at about the same time.
void ElasticAgent::recount() {
  if ((!begun_ && is_any_awaited()) || keeps_back()) return;
  const std::size_t here = count(State::kReady) + count(State::kRunning) + count(State::kLeft);
  membership_->workers_changed(now(), static_cast<std::uint32_t>(here));
  if (!begun_ && here > 0)
    membership_->nobody_at(now(), "");  // the membership may have waited for this worker
}

bool ElasticAgent::prepares(int worker) const {
  return channels_[static_cast<std::size_t>(worker)].state == State::kStarting &&
         std::find(requesters_.begin(), requesters_.end(), worker) == requesters_.end();
}

ElasticAgent::Clock::duration ElasticAgent::decides_for(int worker) const {
  const bool decides = worker == decider_ && !decision_ && prepares(worker);
  return decides ? Clock::now() - decides_since_ : Clock::duration::zero();
}

bool ElasticAgent::is_any_awaited() const {
  return std::any_of(channels_.begin(), channels_.end(), [](const WorkerChannel& channel) {
    return channel.state == State::kStarting && !channel.late;
  });
}

std::optional<ElasticAgent::Clock::time_point> ElasticAgent::late_at() const {
  if (begun_ || !first_ready_at_ || !is_any_awaited()) return std::nullopt;
  const auto taken = *first_ready_at_ - started_;
  return *first_ready_at_ + std::max<Clock::duration>(options_.late_limit, 2 * taken);
}

void ElasticAgent::look_for_late() {
  const auto limit = late_at();
  if (!limit || Clock::now() < *limit) return;
  const auto waited =
      std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - *first_ready_at_);
  for (int worker = 0; worker < options_.workers; ++worker) {
    WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
    if (channel.state != State::kStarting || std::exchange(channel.late, true)) continue;
    options_.log(fmt::format(
        "worker {} is not ready {} s after the first one of this host, which does not wait for it "
        "any longer; it joins when it is ready. What it says last shows what it is at",
        worker, waited.count()));
  }
  recount();
  obey();
}

// All workers of the view have left it or are dead: the membership waits for this.
void ElasticAgent::check_left() {
  if (count(State::kRunning) > 0) return;
  if (std::exchange(stopping_, false)) {
    as_agreed_ = false;
    membership_->stopped(now(), step_);
  } else if (std::exchange(as_agreed_, false) && !paused_) {
    membership_->applied(now(), view_, step_, /*boundary=*/true);
  }
}

void ElasticAgent::check_done() {
  if (!done_code_ || count(State::kRunning) > 0 || end_) return;
  membership_->fail(now(), *done_code_, "");
}

void ElasticAgent::send_to_worker(int worker, Packet packet) {
  const WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
  try {
    channel.line.send(packet);
  } catch (const CommError&) {  // its end is handled in worker_ended()
  }
}

std::string_view ElasticAgent::doing(int worker) const {
  switch (channels_[static_cast<std::size_t>(worker)].state) {
    case State::kGone:
      return "is not running";
    case State::kStarting:
      return "starts";
    case State::kReady:
      return learns() && worker == learner_ ? "takes the job's state" : "waits";
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
  const WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
  return channel.state == State::kRunning ? channel.rank : -1;
}

// ---- messages of the workers ----

void ElasticAgent::answer_requester(int worker) {
  if (decision_) return send_to_worker(worker, {.kind = PacketKind::kDecision, .text = *decision_});
  if (decider_ >= 0 || !may_decide()) return requesters_.push_back(worker);
  decider_ = worker;
  decides_since_ = Clock::now();
  send_to_worker(worker, {.kind = PacketKind::kDecide});
}

void ElasticAgent::handle(int worker, const Packet& packet) {
  WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
  const bool current = packet.view == serial_;
  switch (packet.kind) {
    case PacketKind::kAsk:
      return answer_requester(worker);
    case PacketKind::kDecided:
      decision_ = packet.text;
      for (const int requester : std::exchange(requesters_, {})) answer_requester(requester);
      for (const auto& [id, requester] : std::exchange(known_requesters_, {}))
        share_decision(requester);
      return;
    case PacketKind::kReady:
      if (channel.state != State::kRunning)
        channel.state = State::kReady;  // or a view has started first
      if (!std::exchange(channel.was_ready, true)) {
        channel.since = ++arrivals_;
        if (!first_ready_at_) first_ready_at_ = Clock::now();
        if (begun_) why_ = fmt::format("worker {} is back", worker);
      }
      step_ = std::max(step_, packet.first);
      identify(worker, packet);
      recount();
      return check_left();
    case PacketKind::kAddress:
      if (!current) return;
      send_address(packet.text, worker);
      return share_address(packet.text);
    case PacketKind::kApplied:
      if (!current) return;
      step_ = packet.first;
      note_progress(step_);
      training_progress_.records.push_back(record_from(packet.text));
      return membership_->applied(now(), view_, step_, /*boundary=*/false);
    case PacketKind::kProgress:
      return keep(worker, packet);
    case PacketKind::kArrives:
      if (current) arrived_ = training_progress_from(packet.text);
      return;
    case PacketKind::kMeasured:
      if (worker == keeping_worker_) measured_ = packet.text;
      return;
    case PacketKind::kFailed:
      if (!current) return;
      if (!failed_) failed_ = fmt::format("worker {} said: {}", worker, packet.text);
      if (packet.first > 0 && packet.second > 0)
        note_damage(static_cast<int>(packet.first - 1), static_cast<int>(packet.second - 1),
                    packet.text);
      return membership_->step_failed(now(), view_, {}, {});
    case PacketKind::kLeft:
      if (channel.state != State::kRunning) return;
      channel.state = State::kLeft;
      step_ = std::max(step_, packet.first);
      as_agreed_ = as_agreed_ || packet.second != 0;
      return check_left();
    case PacketKind::kLearnsAt:
    case PacketKind::kLearned:
      return handle_learner(worker, packet);
    case PacketKind::kDone:
      channel.state = State::kDone;
      done_code_ = static_cast<int>(packet.first);
      return check_done();
    default:
      raise<CommError>("a worker said what only agents say");
  }
}

// Lines that arrive with it are printed if it is kept, and otherwise not. After a worker that died
// before, the next worker sends them again; after one that died later, no worker does.
void ElasticAgent::keep(int worker, const Packet& progress) {
  if (progress.first > progress.text.size())
    raise<CommError>("{} bytes of lines in a text of {}", progress.first, progress.text.size());
  if (progress.view == serial_) {
    const std::size_t own = progress.text.size() - progress.first;
    if (progress.second != 0) in_vain_ = 0;
    training_progress_ = {.progress = progress.text.substr(0, own)};
    arrived_ = {};
    if (progress.first > 0 && options_.print) options_.print(worker, progress.text.substr(own));
  }
  if (progress.first > 0)
    send_to_worker(worker, {.kind = PacketKind::kPrinted, .view = progress.view});
}

// The cost of a view is the time between two steps.
void ElasticAgent::note_progress(std::uint64_t step) {
  if (step <= newest_applied_) return;
  const auto now = Clock::now();
  const double pause = std::chrono::duration<double>(now - applied_at_).count();
  const bool first = std::exchange(first_of_view_, false);
  if (first && serial_ > 1 && newest_applied_ > 0) {
    options_.log(fmt::format("view {}: step {} is applied, {:.2f} s after step {}", view_number(),
                             step, pause, newest_applied_));
    if (lost_since_step_) seconds_lost_ += std::max(0.0, pause - step_time_.usual());
  }
  if (!first) step_time_.add(pause);
  lost_since_step_ = false;
  in_vain_ = 0;
  newest_applied_ = step;
  applied_at_ = now;
  if (step > step_of_view_) note_help();
}

// A joining node receives steps that others have applied: they are no evidence for it.
void ElasticAgent::note_help() {
  proven_ = true;
  for (WorkerChannel& channel : channels_)
    channel.has_helped = channel.has_helped || channel.state == State::kRunning;
}

std::optional<double> ElasticAgent::seconds_since_step() const {
  if (newest_applied_ == 0) return std::nullopt;
  return std::chrono::duration<double>(Clock::now() - applied_at_).count();
}

void ElasticAgent::send_address(const std::string& endpoint, int except) {
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (worker == except || channels_[static_cast<std::size_t>(worker)].state != State::kRunning)
      continue;
    send_to_worker(worker, {.kind = PacketKind::kMeet, .view = serial_, .text = endpoint});
  }
}

// ---- the loop ----

void ElasticAgent::add_to(std::vector<pollfd>& waits) const {
  for (const WorkerChannel& channel : channels_) {
    if (channel.state != State::kGone && channel.line.descriptor())
      waits.push_back({channel.line.descriptor().get(), POLLIN, 0});
  }
  if (links_) links_->add_to(waits);
}

milliseconds ElasticAgent::poll_timeout() const {
  const membership::Time due = membership_->next_wake();
  milliseconds poll_timeout =
      due == membership::kNever ? std::chrono::minutes(1) : std::max(milliseconds(0), due - now());
  Clock::time_point limit =
      stopping_ ? stop_since_ + options_.leave_limit : Clock::time_point::max();
  for (const WorkerChannel& channel : channels_) limit = std::min(limit, channel.vacate_at);
  limit = std::min(limit, late_at().value_or(limit));
  if (limit != Clock::time_point::max())
    poll_timeout = std::min(poll_timeout, std::chrono::ceil<milliseconds>(limit - Clock::now()));
  if (links_) poll_timeout = std::min({poll_timeout, links_->poll_timeout(), milliseconds(500)});
  if (options_.endpoint && options_.endpoint->lock)
    poll_timeout = std::min(poll_timeout, options_.endpoint->lock->poll_timeout());
  return std::max(poll_timeout, milliseconds(0));
}

// The kernel closes a process's descriptors before it reports how the process has ended.
void ElasticAgent::read_line(int worker) {
  WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
  if (!channel.line.descriptor()) return;
  bool alive = channel.line.read();
  try {
    while (auto packet = channel.line.take()) handle(worker, *packet);
  } catch (const CommError& error) {
    options_.log(fmt::format("worker {}: {}", worker, error.what()));
    kill(worker, "said what makes no sense");
    alive = false;
  }
  if (!alive) {
    channel.line = PacketSocket();
    channel.vacate_at = Clock::now() + options_.leave_limit;
  }
  obey();
}

// worker_ended() follows.
void ElasticAgent::kill(int worker, std::string as) {
  stuck_.push_back(worker);
  channels_[static_cast<std::size_t>(worker)].killed_as = std::move(as);
}

void ElasticAgent::vacate_cut_off() {
  for (int worker = 0; worker < options_.workers; ++worker) {
    WorkerChannel& channel = channels_[static_cast<std::size_t>(worker)];
    if (Clock::now() < channel.vacate_at) continue;
    channel.vacate_at = Clock::time_point::max();
    if (channel.state != State::kDone) lose(worker, "has ended its line");
  }
}

void ElasticAgent::kill_late() {
  const auto now = Clock::now();
  if (!stopping_ || now < stop_since_ + options_.leave_limit) return;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (channels_[static_cast<std::size_t>(worker)].state != State::kRunning) continue;
    options_.log(fmt::format("worker {} has not left view {} within {} ms: it is killed", worker,
                             view_number(), options_.leave_limit.count()));
    kill(worker, "was stopped or stuck");
  }
  stop_since_ = now;
}

void ElasticAgent::serve() {
  handle_others();
  handle_lock();
  for (int worker = 0; worker < options_.workers; ++worker) read_line(worker);
  membership_->wake(now());
  obey();
  watch_learner();
  watch_timeout();
  const bool through = count(State::kRunning) == 0 || Clock::now() > ending_since_ + kLastWork;
  if (ending_ && through) end_ = std::exchange(ending_, std::nullopt);
  vacate_cut_off();
  kill_late();
  look_for_late();
}

}  // namespace tandem::elastic
