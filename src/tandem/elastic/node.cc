#include "tandem/elastic/node.h"

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

membership::AgentOptions Node::agent_options(const NodeOptions& options) {
  membership::AgentOptions result;
  result.self.id = new_id(options.place ? options.place->host : -1);
  result.self.address = "this host";
  result.founder = true;
  // Evaluations and files follow the last step: the workers report when the job is done.
  result.last_step = std::numeric_limits<std::uint64_t>::max();
  if (!options.place) return result;
  result.self.address = options.place->address;
  result.bounds = options.place->bounds;
  result.contacts = options.place->contacts;
  result.founder = options.place->founder;
  result.external_lock = options.place->lock != nullptr;
  // Workers that compute detect a silent host first and report it. Agents must be slower: they send
  // twice a second and do not probe. After an interruption their messages arrive only when TCP
  // retries, up to as long after it as it has lasted.
  result.limits.quiet = 2 * options.place->host_timeout;
  return result;
}

Node::Node(NodeOptions options)
    : options_(std::move(options)),
      memory_(::memfd_create("tandem-node", MFD_CLOEXEC)),
      num_workers_(options_.workers, options_.place ? options_.place->bounds.max_nodes : 1,
                   options_.place ? static_cast<int>(options_.place->bounds.first_workers) : 0),
      joining_(options_.place ? options_.place->patience : milliseconds(0)) {
  if (!memory_) throw io_error("cannot create a memory file", "memfd", errno);
  seats_.resize(static_cast<std::size_t>(options_.workers));
  agent_ = std::make_unique<membership::Agent>(agent_options(options_), rules_,
                                               membership::Holding{}, now());
  if (!options_.place) return;
  NodePlace& place = *options_.place;
  address_ = place.address;
  if (place.lock) place.lock->join(agent_->options().self.id, place.address);
  links_ = std::make_unique<AgentLinks>(
      std::move(place.listener),
      AgentLinksOptions{agent_->options().self, place.job, place.token, options_.log});
}

std::string Node::key() const { return fmt::format("{:016x}", agent_->options().self.id); }

membership::Time Node::now() const {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - started_);
}

std::size_t Node::count(State state) const {
  return static_cast<std::size_t>(std::count_if(
      seats_.begin(), seats_.end(), [&](const Seat& seat) { return seat.state == state; }));
}

// ---- workers ----

Node::Ticket Node::open_seat(int worker) {
  auto [own, other] = socket_pair();
  Seat& seat = seats_[static_cast<std::size_t>(worker)];
  seat = Seat();
  std::erase(stuck_, worker);  // its process has ended; the next one must not be killed
  seat.state = State::kStarting;
  seat.line = PacketSocket(std::move(own));
  seat.workers_end = std::move(other);
  const SeatCard card{.line = seat.workers_end.get(),
                      .memory = memory_.get(),
                      .worker = worker,
                      .workers = options_.workers,
                      .shards = options_.shards,
                      .speaks = !begun_ && worker == 0 && agent_->options().founder ? 1 : 0};
  return {to_text(card), {card.line, card.memory}};
}

void Node::seat_taken(int worker) {
  seats_[static_cast<std::size_t>(worker)].workers_end = rendezvous::FileDescriptor();
}

void Node::worker_ended(int worker, const std::string& how, bool fault) {
  Seat& seat = seats_[static_cast<std::size_t>(worker)];
  // Its last message may be that it is done.
  read_line(worker);
  if (seat.state == State::kDone) return check_done();
  if (fault) agent_->worker_fault(now(), step_ + 1, how);
  seat.vacate_at = Clock::time_point::max();
  if (seat.state != State::kGone) lose(worker, seat.killed_as.empty() ? how : seat.killed_as);
  obey();
}

void Node::lose(int worker, const std::string& how) {
  why_ = fmt::format("worker {} {}", worker, how);
  vacate(worker);
  obey();
}

// The slot is empty.
void Node::vacate(int worker) {
  Seat& seat = seats_[static_cast<std::size_t>(worker)];
  if (seat.state == State::kGone || seat.state == State::kDone) return;
  lost_since_step_ = lost_since_step_ || seat.state == State::kRunning;
  in_vain_ = 0;
  failed_.reset();
  seat.state = State::kGone;
  if (decider_ == worker && !decision_) {
    decider_ = -1;
    if (!askers_.empty()) {
      const int next = askers_.front();
      askers_.erase(askers_.begin());
      answer_asker(next);
    }
  }
  std::erase(askers_, worker);
  if (worker == learner_) joining_.worker_lost();
  recount();
  check_left();
  check_done();
}

// Before the first view the node waits for all started workers: they arrive at about the same time.
void Node::recount() {
  if ((!begun_ && is_any_awaited()) || keeps_back()) return;
  const std::size_t here = count(State::kReady) + count(State::kRunning) + count(State::kLeft);
  agent_->workers_changed(now(), static_cast<std::uint32_t>(here));
  if (!begun_ && here > 0)
    agent_->nobody_at(now(), "");  // the membership may have waited for this worker
}

bool Node::prepares(int worker) const {
  return seats_[static_cast<std::size_t>(worker)].state == State::kStarting &&
         std::find(askers_.begin(), askers_.end(), worker) == askers_.end();
}

Node::Clock::duration Node::decides_for(int worker) const {
  const bool decides = worker == decider_ && !decision_ && prepares(worker);
  return decides ? Clock::now() - decides_since_ : Clock::duration::zero();
}

bool Node::is_any_awaited() const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [](const Seat& seat) { return seat.state == State::kStarting && !seat.late; });
}

std::optional<Node::Clock::time_point> Node::late_at() const {
  if (begun_ || !first_ready_at_ || !is_any_awaited()) return std::nullopt;
  const auto taken = *first_ready_at_ - started_;
  return *first_ready_at_ + std::max<Clock::duration>(options_.late_limit, 2 * taken);
}

void Node::look_for_late() {
  const auto limit = late_at();
  if (!limit || Clock::now() < *limit) return;
  const auto waited =
      std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - *first_ready_at_);
  for (int worker = 0; worker < options_.workers; ++worker) {
    Seat& seat = seats_[static_cast<std::size_t>(worker)];
    if (seat.state != State::kStarting || std::exchange(seat.late, true)) continue;
    options_.log(fmt::format(
        "worker {} is not ready {} s after the first one of this host, which does not wait for it "
        "any longer; it joins when it is ready. What it says last shows what it is at",
        worker, waited.count()));
  }
  recount();
  obey();
}

// All workers of the view have left it or are dead: the membership waits for this.
void Node::check_left() {
  if (count(State::kRunning) > 0) return;
  if (std::exchange(stopping_, false)) {
    as_agreed_ = false;
    agent_->stopped(now(), step_);
  } else if (std::exchange(as_agreed_, false) && !paused_) {
    agent_->applied(now(), view_, step_, /*boundary=*/true);
  }
}

void Node::check_done() {
  if (!done_code_ || count(State::kRunning) > 0 || end_) return;
  agent_->fail(now(), *done_code_, "");
}

void Node::say(int worker, Packet packet) {
  const Seat& seat = seats_[static_cast<std::size_t>(worker)];
  try {
    seat.line.send(packet);
  } catch (const CommError&) {  // its end is handled in worker_ended()
  }
}

std::string_view Node::doing(int worker) const {
  switch (seats_[static_cast<std::size_t>(worker)].state) {
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

int Node::rank_now(int worker) const {
  const Seat& seat = seats_[static_cast<std::size_t>(worker)];
  return seat.state == State::kRunning ? seat.rank : -1;
}

// ---- messages of the workers ----

void Node::answer_asker(int worker) {
  if (decision_) return say(worker, {.kind = PacketKind::kDecision, .text = *decision_});
  if (decider_ >= 0 || !may_decide()) return askers_.push_back(worker);
  decider_ = worker;
  decides_since_ = Clock::now();
  say(worker, {.kind = PacketKind::kDecide});
}

void Node::hear(int worker, const Packet& packet) {
  Seat& seat = seats_[static_cast<std::size_t>(worker)];
  const bool current = packet.view == serial_;
  switch (packet.kind) {
    case PacketKind::kAsk:
      return answer_asker(worker);
    case PacketKind::kDecided:
      decision_ = packet.text;
      for (const int asker : std::exchange(askers_, {})) answer_asker(asker);
      for (const auto& [id, asker] : std::exchange(heard_askers_, {})) share_decision(asker);
      return;
    case PacketKind::kReady:
      if (seat.state != State::kRunning) seat.state = State::kReady;  // or a view has started first
      if (!std::exchange(seat.was_ready, true)) {
        seat.since = ++arrivals_;
        if (!first_ready_at_) first_ready_at_ = Clock::now();
        if (begun_) why_ = fmt::format("worker {} is back", worker);
      }
      step_ = std::max(step_, packet.first);
      identify(worker, packet);
      recount();
      return check_left();
    case PacketKind::kPlace:
      if (!current) return;
      tell_place(packet.text, worker);
      return send_place(packet.text);
    case PacketKind::kApplied:
      if (!current) return;
      step_ = packet.first;
      note_progress(step_);
      account_.records.push_back(record_from(packet.text));
      return agent_->applied(now(), view_, step_, /*boundary=*/false);
    case PacketKind::kProgress:
      return keep(worker, packet);
    case PacketKind::kArrives:
      if (current) arrived_ = account_from(packet.text);
      return;
    case PacketKind::kMeasured:
      if (worker == keeper_) measured_ = packet.text;
      return;
    case PacketKind::kFailed:
      if (!current) return;
      if (!failed_) failed_ = fmt::format("worker {} said: {}", worker, packet.text);
      if (packet.first > 0 && packet.second > 0)
        note_damage(static_cast<int>(packet.first - 1), static_cast<int>(packet.second - 1),
                    packet.text);
      return agent_->step_failed(now(), view_, {}, {});
    case PacketKind::kLeft:
      if (seat.state != State::kRunning) return;
      seat.state = State::kLeft;
      step_ = std::max(step_, packet.first);
      as_agreed_ = as_agreed_ || packet.second != 0;
      return check_left();
    case PacketKind::kLearnsAt:
    case PacketKind::kLearned:
      return hear_learner(worker, packet);
    case PacketKind::kDone:
      seat.state = State::kDone;
      done_code_ = static_cast<int>(packet.first);
      return check_done();
    default:
      raise<CommError>("a worker said what only agents say");
  }
}

// Lines that arrive with it are printed if it is kept, and otherwise not. After a worker that died
// before, the next worker sends them again; after one that died later, no worker does.
void Node::keep(int worker, const Packet& progress) {
  if (progress.first > progress.text.size())
    raise<CommError>("{} bytes of lines in a text of {}", progress.first, progress.text.size());
  if (progress.view == serial_) {
    const std::size_t own = progress.text.size() - progress.first;
    if (progress.second != 0) in_vain_ = 0;
    account_ = {.progress = progress.text.substr(0, own)};
    arrived_ = {};
    if (progress.first > 0 && options_.print) options_.print(worker, progress.text.substr(own));
  }
  if (progress.first > 0) say(worker, {.kind = PacketKind::kPrinted, .view = progress.view});
}

// The cost of a view is the time between two steps.
void Node::note_progress(std::uint64_t step) {
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
void Node::note_help() {
  proven_ = true;
  for (Seat& seat : seats_) seat.has_helped = seat.has_helped || seat.state == State::kRunning;
}

std::optional<double> Node::seconds_since_step() const {
  if (newest_applied_ == 0) return std::nullopt;
  return std::chrono::duration<double>(Clock::now() - applied_at_).count();
}

void Node::tell_place(const std::string& place, int except) {
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (worker == except || seats_[static_cast<std::size_t>(worker)].state != State::kRunning)
      continue;
    say(worker, {.kind = PacketKind::kMeet, .view = serial_, .text = place});
  }
}

// ---- the loop ----

void Node::add_to(std::vector<pollfd>& waits) const {
  for (const Seat& seat : seats_) {
    if (seat.state != State::kGone && seat.line.descriptor())
      waits.push_back({seat.line.descriptor().get(), POLLIN, 0});
  }
  if (links_) links_->add_to(waits);
}

milliseconds Node::nap() const {
  const membership::Time due = agent_->next_wake();
  milliseconds nap =
      due == membership::kNever ? std::chrono::minutes(1) : std::max(milliseconds(0), due - now());
  Clock::time_point limit =
      stopping_ ? stop_since_ + options_.leave_limit : Clock::time_point::max();
  for (const Seat& seat : seats_) limit = std::min(limit, seat.vacate_at);
  limit = std::min(limit, late_at().value_or(limit));
  if (limit != Clock::time_point::max())
    nap = std::min(nap, std::chrono::ceil<milliseconds>(limit - Clock::now()));
  if (links_) nap = std::min({nap, links_->nap(), milliseconds(500)});
  if (options_.place && options_.place->lock) nap = std::min(nap, options_.place->lock->nap());
  return std::max(nap, milliseconds(0));
}

// The kernel closes a process's descriptors before it reports how the process has ended.
void Node::read_line(int worker) {
  Seat& seat = seats_[static_cast<std::size_t>(worker)];
  if (!seat.line.descriptor()) return;
  bool alive = seat.line.read();
  try {
    while (auto packet = seat.line.take()) hear(worker, *packet);
  } catch (const CommError& error) {
    options_.log(fmt::format("worker {}: {}", worker, error.what()));
    kill(worker, "said what makes no sense");
    alive = false;
  }
  if (!alive) {
    seat.line = PacketSocket();
    seat.vacate_at = Clock::now() + options_.leave_limit;
  }
  obey();
}

// worker_ended() follows.
void Node::kill(int worker, std::string as) {
  stuck_.push_back(worker);
  seats_[static_cast<std::size_t>(worker)].killed_as = std::move(as);
}

void Node::vacate_cut_off() {
  for (int worker = 0; worker < options_.workers; ++worker) {
    Seat& seat = seats_[static_cast<std::size_t>(worker)];
    if (Clock::now() < seat.vacate_at) continue;
    seat.vacate_at = Clock::time_point::max();
    if (seat.state != State::kDone) lose(worker, "has ended its line");
  }
}

void Node::kill_late() {
  const auto now = Clock::now();
  if (!stopping_ || now < stop_since_ + options_.leave_limit) return;
  for (int worker = 0; worker < options_.workers; ++worker) {
    if (seats_[static_cast<std::size_t>(worker)].state != State::kRunning) continue;
    options_.log(fmt::format("worker {} has not left view {} within {} ms: it is killed", worker,
                             view_number(), options_.leave_limit.count()));
    kill(worker, "was stopped or stuck");
  }
  stop_since_ = now;
}

void Node::serve() {
  hear_others();
  hear_lock();
  for (int worker = 0; worker < options_.workers; ++worker) read_line(worker);
  agent_->wake(now());
  obey();
  watch_learner();
  watch_patience();
  const bool through = count(State::kRunning) == 0 || Clock::now() > ending_since_ + kLastWork;
  if (ending_ && through) end_ = std::exchange(ending_, std::nullopt);
  vacate_cut_off();
  kill_late();
  look_for_late();
}

}  // namespace tandem::elastic
