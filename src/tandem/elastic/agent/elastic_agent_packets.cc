// Messages of the workers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tandem/core/disagreement.h"
#include "tandem/core/error.h"
#include "tandem/elastic/agent/elastic_agent.h"

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;

// A running job connects to the agent at its endpoint within this time. So the first node at the
// endpoint waits for it before it decides that no job exists.
constexpr milliseconds kExistingJob{1500};
// Longest text of an address (elastic/transfer makes none that is longer).

}  // namespace

void ElasticAgent::handle(int worker, const Packet& packet) {
  WorkerChannel& channel = workers_.at(worker);
  switch (packet.kind) {
    case PacketKind::kAsk:
      return answer_requester(worker);
    case PacketKind::kDecided:
      decision_.make(packet.text);
      return answer_requesters();
    case PacketKind::kReady:
      return handle_ready(worker, packet);
    case PacketKind::kProgress:
      return keep(worker, packet);
    case PacketKind::kMeasured:
      if (worker == view_.keeping_worker()) progress_.set_measured(packet.text);
      return;
    case PacketKind::kLeft:
      if (channel.state != State::kRunning) return;
      channel.state = State::kLeft;
      progress_.note_reachable(packet.first);
      if (packet.second != 0) state_.left_as_agreed();
      return check_left();
    case PacketKind::kLearnsAt:
    case PacketKind::kLearned:
      return handle_learner(worker, packet);
    case PacketKind::kDone:
      channel.state = State::kDone;
      state_.done(static_cast<int>(packet.first));
      return check_done();
    default:
      return handle_in_view(worker, packet);
  }
}

// Messages that count only in the newest view.
void ElasticAgent::handle_in_view(int worker, const Packet& packet) {
  const bool current = packet.view == view_.serial();
  switch (packet.kind) {
    case PacketKind::kAddress:
      if (!current) return;
      workers_.send_to_running(
          {.kind = PacketKind::kMeet, .view = view_.serial(), .text = packet.text}, worker);
      return share_address(packet.text);
    case PacketKind::kApplied:
      if (current) handle_applied(packet);
      return;
    case PacketKind::kArrives:
      if (current) progress_.note_arrived(training_progress_from(packet.text));
      return;
    case PacketKind::kFailed:
      if (current) handle_failed(worker, packet);
      return;
    default:
      raise<CommError>("a worker sent a message that only agents send");
  }
}

void ElasticAgent::handle_ready(int worker, const Packet& packet) {
  if (workers_.note_ready(worker) && begun())
    view_.set_reason(fmt::format("worker {} is back", worker));
  progress_.note_reachable(packet.first);
  identify(worker, packet);
  recount();
  check_left();
}

// A joining node receives steps that others have applied: they are not evidence for it.
void ElasticAgent::handle_applied(const Packet& packet) {
  const std::uint64_t step = packet.first;
  const JobProgress::Applied applied = progress_.apply(step, view_.serial() > 1);
  if (applied.pause)
    log(fmt::format("view {}: step {} is applied, {:.2f} s after step {}", view_number(), step,
                    applied.pause->seconds, applied.pause->after_step));
  if (applied.is_new) {
    failures_.note_progress();
    if (step > view_.step()) {
      failures_.prove();
      workers_.note_help();
    }
  }
  progress_.add_record(record_from(packet.text));
  membership_->applied(now(), view_.number(), step, /*boundary=*/false);
}

void ElasticAgent::handle_failed(int worker, const Packet& packet) {
  failures_.report(worker, packet.text);
  if (packet.first > 0 && packet.second > 0)
    note_damage(static_cast<int>(packet.first - 1), static_cast<int>(packet.second - 1),
                packet.text);
  membership_->step_failed(now(), view_.number(), {}, {});
}

// A damaged frame of the workers' view.
void ElasticAgent::note_damage(int from, int to, const std::string& message) {
  const membership::Member* sender = view_.member_of_rank(from);
  const membership::Member* receiver = view_.member_of_rank(to);
  if (sender == nullptr || receiver == nullptr || sender->peer.id == receiver->peer.id) return;
  if (!failures_.is_news(view_.serial())) return;
  log(fmt::format("view {}: {}", view_number(), message));
  const FailedViews::Damage damage = failures_.damage(*sender, *receiver, view_.members(), message);
  view_.set_reason(damage.link);
  if (damage.leaves != self()) return;
  state_.end({CommError("").exit_code(),
              failures_.driven_out() +
                  ". This node leaves the job; repair the link, then start the node again"});
}

// Lines that arrive with it are printed if it is kept, and otherwise not. After a worker that died
// before, the next worker sends them again; after one that died later, no worker does.
void ElasticAgent::keep(int worker, const Packet& packet) {
  if (packet.first > packet.text.size())
    raise<CommError>("{} bytes of lines in a text of {}", packet.first, packet.text.size());
  if (packet.view == view_.serial()) {
    const std::size_t own = packet.text.size() - packet.first;
    if (packet.second != 0) failures_.note_progress();
    progress_.keep(packet.text.substr(0, own));
    if (packet.first > 0 && options_.print) options_.print(worker, packet.text.substr(own));
  }
  if (packet.first > 0) workers_.send(worker, {.kind = PacketKind::kPrinted, .view = packet.view});
}

void ElasticAgent::handle_learner(int worker, const Packet& packet) {
  if (!learning_.expects(worker, packet)) return;
  if (packet.kind == PacketKind::kLearnsAt) {
    if (packet.text.size() > kMostAddress)
      raise<CommError>("an address of {} bytes", packet.text.size());
    const membership::AppMessage app_message{membership::AppMessageKind::kLearner, {}, packet.text};
    return links_->send(learning_.source(), app_message);
  }
  const StateLearning::Ended ended = learning_.handle_learned(packet, now());
  log(ended.log);
  if (ended.joins) report_workers();
}

// ---- where the job begins ----

void ElasticAgent::answer_requester(int worker) {
  if (const auto answer = decision_.request(worker, may_decide())) workers_.send(worker, *answer);
}

void ElasticAgent::answer_requesters() {
  for (const int worker : decision_.take_waiting()) answer_requester(worker);
  for (const auto& [id, peer] : decision_.take_peers()) share_decision(peer);
}

// A worker of the bootstrap node decides. But that node may have returned to a running job.
bool ElasticAgent::may_decide() const {
  if (!links_) return true;
  if (!membership_->options().bootstrap_node || membership_->view().exists()) return false;
  return Clock::now() >= workers_.started() + kExistingJob ||
         decision_.num_peers() + 1 >= membership_->options().bounds.max_nodes;
}

// All workers of a job compute with the same kernels on the same data.
void ElasticAgent::identify(int worker, const Packet& packet) {
  Computes computes = computes_from(packet.text);
  view_.limit_ranks(std::max<std::size_t>(1, packet.second));
  if (computes_ &&
      (computes_->kernels != computes.kernels || computes_->fingerprint != computes.fingerprint)) {
    const std::array<std::string, 2> inputs = {
        lines_of_list(computes_->kernels) + "\n" + computes_->inputs,
        lines_of_list(computes.kernels) + "\n" + computes.inputs};
    return fail(1,
                fmt::format("worker {} found other data, configuration or kernels than the "
                            "workers before it: leave the job's files alone while it runs:\n  {}",
                            worker, describe_disagreement(inputs, [&](int which) {
                              return which == 0 ? std::string("the workers before it")
                                                : fmt::format("worker {}", worker);
                            })));
  }
  if (computes_) return;
  membership::JobIdentity job{.kernels = computes.kernels,
                              .inputs = computes.inputs.substr(0, membership::kMostText)};
  std::copy_n(computes.fingerprint.begin(), std::min(computes.fingerprint.size(), job.files.size()),
              job.files.begin());
  const std::string name = options_.endpoint ? options_.endpoint->host_name : "this host";
  membership_->identify(
      job, {.name = name, .kernels = {computes.kernels}, .files = job.files, .inputs = job.inputs});
  computes_ = std::move(computes);
}

}  // namespace tandem::elastic
