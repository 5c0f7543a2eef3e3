#include "tandem/elastic/worker/agent_channel.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <chrono>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/net/event_loop.h"

namespace tandem::elastic {
namespace {

constexpr std::chrono::seconds kPrinting{1};

}  // namespace

std::string to_text(const WorkerInfo& info) {
  return fmt::format("{}:{}:{}:{}:{}:{}", info.line, info.memory, info.worker, info.workers,
                     info.shards, info.prints);
}

std::unique_ptr<AgentChannel> AgentChannel::take(const Environment& environment) {
  const auto text = environment.get("TANDEM_AGENT");
  if (!text) return nullptr;
  std::array<int, 6> numbers{};
  const char* at = text->data();
  const char* const end = at + text->size();
  for (int& number : numbers) {
    const auto [next, error] = std::from_chars(at, end, number);
    if (error != std::errc() || number < 0)
      raise<ConfigError>("TANDEM_AGENT is '{}', which only tandem run sets; unset it", *text);
    at = next != end && *next == ':' ? next + 1 : next;
  }
  const WorkerInfo info{numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]};
  if (info.worker >= info.workers || ::fcntl(info.line, F_GETFD) < 0 ||
      ::fcntl(info.memory, F_GETFD) < 0) {
    raise<ConfigError>("TANDEM_AGENT is '{}', but its agent has not started this process; unset it",
                       *text);
  }
  return std::make_unique<AgentChannel>(info, [] { ::_exit(CommError("").exit_code()); });
}

AgentChannel::AgentChannel(const WorkerInfo& info, std::function<void()> agent_gone)
    : info_(info),
      agent_gone_(std::move(agent_gone)),
      socket_(net::FileDescriptor(info.line)),
      end_event_(::eventfd(0, EFD_CLOEXEC)) {
  ::fcntl(info.line, F_SETFD, FD_CLOEXEC);
  ::fcntl(info.memory, F_SETFD, FD_CLOEXEC);
  if (!end_event_) throw io_error("cannot create", "eventfd", errno);
  thread_ = std::thread([this] { listen(); });
}

AgentChannel::~AgentChannel() {
  ::eventfd_write(end_event_.get(), 1);
  thread_.join();
}

void AgentChannel::send(const Packet& packet) {
  const std::lock_guard lock(send_mutex_);
  socket_.send(packet);
}

void AgentChannel::listen() {
  while (true) {
    bool ends = false;
    net::EventLoop loop;
    loop.read(socket_.descriptor());
    loop.read(end_event_, [&ends] { ends = true; });
    loop.run_once(std::chrono::hours(1));
    if (ends) return;
    bool alive = socket_.read();
    try {
      while (auto packet = socket_.take()) handle(std::move(*packet));
    } catch (const CommError&) {
      alive = false;
    }
    if (!alive) return agent_gone_();
  }
}

void AgentChannel::handle(Packet packet) {
  const std::lock_guard lock(mutex_);
  switch (packet.kind) {
    case PacketKind::kDecide:
    case PacketKind::kDecision:
      inbox_.decision = std::move(packet);
      break;
    case PacketKind::kRun:
      orders_.change = false;
      inbox_.run = std::move(packet);
      break;
    case PacketKind::kMeet:
      inbox_.meet = std::move(packet);
      break;
    case PacketKind::kStop:
      stopped_view_ = std::max(stopped_view_, packet.view);
      if (entered_.view != 0 && entered_.view <= stopped_view_) {
        orders_.stop.store(true, std::memory_order_release);
        if (entered_.abort) entered_.abort();
      }
      break;
    case PacketKind::kChange:
      orders_.change = true;
      break;
    case PacketKind::kPrinted:
      if (inbox_.prints > 0) --inbox_.prints;
      break;
    case PacketKind::kEndRequested:
      orders_.end = true;
      break;
    case PacketKind::kLearn:
      inbox_.learn = packet.view;
      break;
    case PacketKind::kServeState:
      if (serve_state_) serve_state_(packet.text);
      break;
    default:
      raise<CommError>("an agent sent a message that only workers send");
  }
  changed_.notify_all();
}

std::string AgentChannel::decision(const std::function<std::string()>& decide) {
  send({.kind = PacketKind::kAsk});
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return inbox_.decision.has_value(); });
    if (inbox_.decision->kind == PacketKind::kDecision) return inbox_.decision->text;
  }
  std::string text = decide();
  send({.kind = PacketKind::kDecided, .text = text});
  return text;
}

Assignment AgentChannel::next_view(const Ready& ready, const std::function<void()>& learn) {
  send({.kind = PacketKind::kReady,
        .first = ready.step,
        .second = static_cast<std::uint64_t>(ready.shards),
        .text = ready_text(ready.computes)});
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [&] { return inbox_.run || inbox_.learn; });
    if (inbox_.run) break;
    learns_ = *std::exchange(inbox_.learn, std::nullopt);
    lock.unlock();
    learn();
    lock.lock();
  }
  inbox_.learn.reset();
  const Packet packet = *std::exchange(inbox_.run, std::nullopt);
  return {packet.view, static_cast<int>(packet.first), static_cast<int>(packet.second),
          briefing_from(packet.text)};
}

bool AgentChannel::transfer_is_over() {
  const std::lock_guard lock(mutex_);
  return inbox_.run || inbox_.learn;
}

void AgentChannel::learns_at(const std::string& address) {
  send({.kind = PacketKind::kLearnsAt, .view = learns_, .text = address});
}

void AgentChannel::learned(Learned what, std::uint64_t step, const std::string& why) {
  send({.kind = PacketKind::kLearned,
        .view = learns_,
        .first = static_cast<std::uint64_t>(what),
        .second = step,
        .text = why});
}

void AgentChannel::on_learner(std::function<void(const std::string& address)> serve_state) {
  const std::lock_guard lock(mutex_);
  serve_state_ = std::move(serve_state);
}

void AgentChannel::send_address(std::uint64_t view, const std::string& address) {
  send({.kind = PacketKind::kAddress, .view = view, .text = address});
}

std::optional<std::string> AgentChannel::address(std::uint64_t view) {
  std::unique_lock lock(mutex_);
  changed_.wait(
      lock, [&] { return stopped_view_ >= view || (inbox_.meet && inbox_.meet->view == view); });
  if (stopped_view_ >= view) return std::nullopt;
  return std::exchange(inbox_.meet, std::nullopt)->text;
}

void AgentChannel::enter(std::uint64_t view, std::function<void()> abort) {
  const std::lock_guard lock(mutex_);
  entered_.view = view;
  entered_.abort = std::move(abort);
  if (stopped_view_ < view) return;
  orders_.stop = true;
  entered_.abort();
}

bool AgentChannel::is_stopped(std::uint64_t view) {
  const std::lock_guard lock(mutex_);
  return stopped_view_ >= view;
}

void AgentChannel::leave() {
  const std::lock_guard lock(mutex_);
  entered_.view = 0;
  entered_.abort = nullptr;
  orders_.stop = false;
}

void AgentChannel::applied(std::uint64_t view, std::uint64_t step,
                           const std::vector<double>& record) {
  send({.kind = PacketKind::kApplied, .view = view, .first = step, .text = record_text(record)});
}

void AgentChannel::progress(std::uint64_t view, std::string text, const std::string& lines,
                            bool advanced) {
  if (!lines.empty()) {
    const std::lock_guard lock(mutex_);
    ++inbox_.prints;
  }
  send({.kind = PacketKind::kProgress,
        .view = view,
        .first = lines.size(),
        .second = advanced ? 1u : 0u,
        .text = std::move(text) + lines});
  if (lines.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kPrinting, [&] { return inbox_.prints == 0; });
}

void AgentChannel::arrives(std::uint64_t view, const std::string& training_progress) {
  send({.kind = PacketKind::kArrives, .view = view, .text = training_progress});
}

void AgentChannel::measured(std::string text) {
  send({.kind = PacketKind::kMeasured, .text = std::move(text)});
}

void AgentChannel::failed(std::uint64_t view, const std::string& why,
                          std::optional<std::pair<int, int>> damaged) {
  Packet packet{.kind = PacketKind::kFailed, .view = view, .text = why};
  if (damaged) {
    packet.first = static_cast<std::uint64_t>(damaged->first) + 1;
    packet.second = static_cast<std::uint64_t>(damaged->second) + 1;
  }
  send(packet);
}

void AgentChannel::left(std::uint64_t view, std::uint64_t step, bool as_agreed) {
  send({.kind = PacketKind::kLeft, .view = view, .first = step, .second = as_agreed ? 1u : 0u});
}

void AgentChannel::done(int code) {
  send({.kind = PacketKind::kDone, .first = static_cast<std::uint64_t>(code)});
}

}  // namespace tandem::elastic
