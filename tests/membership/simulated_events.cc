#include <fmt/format.h>

#include <algorithm>

#include "membership/simulated_world.h"
#include "tandem/elastic/protocol/wire.h"

namespace tandem::simulation {
namespace {

constexpr Time kSimulatedTransfer{4000};

}  // namespace

void World::happen(Host& host, Packet& packet) {
  if (!host.power) return;
  if (!host.membership || (packet.to.id != 0 && packet.to.id != host.self.id)) {
    return refuse(packet, host);
  }
  deliver(host, packet);
}

// A packet for a missing process is returned: by its kernel, or by the process that is there now.
void World::refuse(const Packet& packet, const Host& by) {
  const std::size_t from = static_cast<std::size_t>(packet.from.address[1] - '0');
  if (!reach_[by.index][from] || chance(loss_)) return;
  const Time when = now_ + delay();
  if (packet.to.id != 0) return at(when, from, DeathReport{packet.from.id, packet.to.id});
  at(when, from, NoAnswer{packet.from.id, by.self.address});
}

void World::deliver(Host& host, const Packet& packet) {
  if (const auto* message = std::get_if<Message>(&packet.payload)) {
    if (const auto* app_message = std::get_if<AppMessage>(message))
      return begin_to_serve_state(host, packet.from, app_message->number.counter);
    host.membership->receive(now_, packet.from, *message);
  } else if (host.ended) {
    return;
  } else if (const auto* frame = std::get_if<Frame>(&packet.payload)) {
    host.workers->receive(now_, packet.from, *frame);
  } else {
    take(host, packet.from, std::get<TransferMessage>(packet.payload));
  }
}

void World::happen(Host& host, WakeAgent& wake) {
  if (!host.membership || wake.id != host.self.id) return;
  host.wakes_at = kNever;
  host.membership->wake(now_);
  if (!host.joining->wake(now_, *host.membership)) return;
  host.learner.reset();
  if (host.joining->is_over()) report_workers(host);
}

void World::happen(Host& host, WakeWorkers& wake) {
  if (host.membership && wake.id == host.self.id && !host.ended) host.workers->wake(now_);
}

void World::happen(Host& host, Stopped& stopped) {
  if (!host.membership || stopped.id != host.self.id) return;
  const std::uint64_t step = host.workers->stop();
  outcome_.last_step = std::max(outcome_.last_step, step);
  host.membership->stopped(now_, step);
}

void World::happen(Host& host, DeathReport& news) {
  if (!host.membership || news.id != host.self.id) return;
  note(&host, fmt::format("learns that {} is dead", news.dead % 1000));
  host.membership->peer_dead(now_, news.dead);
}

void World::happen(Host& host, NoAnswer& news) {
  if (host.membership && news.id == host.self.id) host.membership->nobody_at(now_, news.address);
}

void World::happen(Host& host, WorkersBack& back) {
  if (!host.membership || back.id != host.self.id || host.ended) return;
  host.ready = true;
  report_workers(host);
}

void World::happen(Host& host, Start&) {
  if (host.membership || host.gone) return;
  host.power = true;
  host.self = {random_() | 1, fmt::format("n{}", host.index)};
  MembershipOptions options;
  options.self = host.self;
  options.job = {"amx", {}, kShards};
  options.who = {host.self.address, {"avx2", "amx"}, {}, kShards};
  options.job.inputs = options.who.inputs = "flags=equal\nfiles=right\n";
  if (host.foreign) {
    options.who.files[0] = options.job.files[0] = 1;
    options.who.inputs = options.job.inputs = "flags=equal\nfiles=wrong\n";
  }
  options.bounds = bounds_;
  options.last_step = steps_;
  options.bootstrap_node = host.index == 0;
  options.external_lock = lock_;
  if (schedule_.seed % 3 == 0) options.limits.broadcast_fan_out = 2;
  if (schedule_.seed % 2 == 0) options.limits.quiet = 2 * options.limits.silent;
  for (std::size_t i = 0; i < hosts_.size(); ++i) {
    if (i != host.index) options.contacts.push_back(fmt::format("n{}", i));
  }
  host.membership = std::make_unique<Membership>(options, rules_, NodeState(), now_);
  host.workers =
      std::make_unique<Workers>(host.self, reference_[0], 0, host.foreign ? 7 : 0, breaks_, host);
  host.joining = std::make_unique<Joining>(kSimulatedTransfer);
  host.learner.reset();
  host.ready = host.begun = host.teaches = false;
  host.wakes_at = kNever;
  host.ended.reset();
  at(now_ + Time(random(300)), host.index, WorkersBack{host.self.id});
  note(&host, "starts");
}

namespace {

// The message as received, after it was sent as bytes.
Message through_bytes(const membership::Frame& frame) {
  const Prove prove = [](auto) { return WireProof{}; };
  Channel channel{.job = 1, .own_nonce = {}, .other_nonce = {}, .prove = prove};
  Channel back = channel;
  const std::string bytes = encode(channel, frame);
  return decode(back, net::decode_frame(membership::kAgentProtocol, bytes).value()).message;
}

}  // namespace

void World::send(Host& from, const Peer& to, const Message& message) {
  if (!schedule_.wire) return post(from, to, message);
  post(from, to, through_bytes({from.self, to.id, message}));
}

void World::post(Host& from, const Peer& to, const Payload& payload) {
  const std::size_t index = static_cast<std::size_t>(to.address[1] - '0');
  if (!reach_[from.index][index]) return;
  const int copies = (chance(loss_) ? 0 : 1) + (chance(twice_) ? 1 : 0);
  for (int i = 0; i < copies; ++i) at(now_ + delay(), index, Packet{from.self, to, payload});
}

// The lease: lost by a host that does not reach the service for a second.
void World::happen(Host&, LockCheck&) {
  at(now_ + Time(100), lock_side_, LockCheck{});
  Host* holder = nullptr;
  for (const auto& host : hosts_) {
    if (host->membership && host->self.id == lock_holder_) holder = host.get();
  }
  if (lock_holder_ == 0 || (holder && reach_[holder->index][lock_side_])) {
    lock_lost_ = kNever;
    return;
  }
  if (lock_lost_ == kNever) lock_lost_ = now_ + Time(1000);
  if (now_ < lock_lost_) return;
  lock_holder_ = 0;
  lock_lost_ = kNever;
  if (!holder) return;
  holder->membership->lock(now_, false);
  obey(*holder);
}

}  // namespace tandem::simulation
