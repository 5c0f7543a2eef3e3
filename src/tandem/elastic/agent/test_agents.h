// For tests: nodes of a job on several hosts; the test acts as their workers.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "tandem/elastic/agent/elastic_agent.h"

namespace tandem::elastic::testing {

inline constexpr char kToken[] = "of this test";

inline Packet ready() {
  return {.kind = PacketKind::kReady,
          .second = 2,
          .text = ready_text({"kernels", std::string(32, 'f')})};
}

// A node. The test acts as its first worker, which leaves views on request; other workers are ready
// when that one is, and stand by.
class Lone {
 public:
  explicit Lone(const Lone* bootstrap_node, int workers = 1)
      : lines_(static_cast<std::size_t>(workers)),
        agent_({.workers = workers,
                .shards = 2,
                .log = [this](const std::string& line) { log.push_back(line); },
                .endpoint = endpoint(bootstrap_node)}) {
    for (int worker = 0; worker < workers; ++worker) start(worker);
  }
  void start(int worker = 0) {
    const ElasticAgent::Ticket ticket = agent_.open_channel(worker);
    line(worker) = PacketSocket(net::FileDescriptor(::dup(ticket.inherited[0])));
    agent_.channel_taken(worker);
    ranks = 0;
  }
  void be_ready() {
    if (decides_) send_packet({.kind = PacketKind::kDecided});
    Packet packet = ready();
    packet.first = step_;
    for (const PacketSocket& line : lines_) line.send(packet);
  }
  void apply(std::uint64_t step) {
    step_ = step;
    send_packet({PacketKind::kApplied, view, step, 0, record_text({})});
  }
  // A view that cannot continue.
  void fail() {
    send_packet({.kind = PacketKind::kFailed, .view = view, .text = "the state arrived damaged"});
    leave(false);
  }
  void send_packet(const Packet& packet, int worker = 0) { line(worker).send(packet); }
  void serve() {
    agent_.serve();
    lines_[0].read();
    while (const auto packet = lines_[0].take()) receive(*packet);
  }

  std::uint64_t view = 0;             // the newest of the node's views
  int ranks = 0;                      // its size; 0: it was left
  std::vector<std::uint64_t> learns;  // numbers of the kLearn orders to the worker
  std::vector<std::string> taught;    // addresses of nodes that it was ordered to send the state to
  std::vector<std::string> log;
  ElasticAgent& node() { return agent_; }
  const ElasticAgent& node() const { return agent_; }

 private:
  PacketSocket& line(int worker) { return lines_[static_cast<std::size_t>(worker)]; }
  void receive(const Packet& packet) {
    if (packet.kind == PacketKind::kRun) {
      view = packet.view;
      ranks = static_cast<int>(packet.second);
    } else if (packet.kind == PacketKind::kLearn) {
      learns.push_back(packet.view);
    } else if (packet.kind == PacketKind::kServeState) {
      taught.push_back(packet.text);
    } else if (packet.view == view && ranks > 0) {
      leave(packet.kind == PacketKind::kChange);
    }
  }
  void leave(bool as_agreed) {
    ranks = 0;
    send_packet({PacketKind::kLeft, view, step_, as_agreed ? 1u : 0u, ""});
    be_ready();
  }
  ElasticEndpoint endpoint(const Lone* bootstrap_node) {
    ElasticEndpoint endpoint;
    endpoint.listener = net::listen_tcp(/*loopback_only=*/true, 0);
    endpoint.address = fmt::format("127.0.0.1:{}", net::local_port(endpoint.listener));
    endpoint.token = kToken;
    endpoint.bootstrap_node = decides_ = bootstrap_node == nullptr;
    if (bootstrap_node != nullptr) endpoint.contacts = {bootstrap_node->agent_.address()};
    endpoint.bounds = {1, 2};
    return endpoint;
  }

  bool decides_ = false;
  std::uint64_t step_ = 0;
  std::vector<PacketSocket> lines_;
  ElasticAgent agent_;
};

// The second node asks the first one for the job.
class TwoNodes : public ::testing::Test {
 protected:
  explicit TwoNodes(int workers_of_second = 1) : second(&first, workers_of_second) {}
  void serve() {
    for (Lone* lone : {&first, &second}) lone->serve();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  template <typename Condition>
  void until(Condition condition) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      ASSERT_LT(std::chrono::steady_clock::now(), limit);
      serve();
    }
  }
  // For events that must not happen.
  void serve_for(std::chrono::milliseconds time) {
    const auto end = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < end) serve();
  }
  void until_both_compute() {
    until([&] { return first.ranks == 2 && second.ranks == 2; });
  }

  Lone first{nullptr};
  Lone second;
};

}  // namespace tandem::elastic::testing
