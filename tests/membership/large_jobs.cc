// Cost of a change of the view in jobs of this many nodes, and duration of a learner's transfer:
//   membership_large_jobs --nodes 16,256,4096
//   --json FILE: what was found, as bench/record.py wants it.
// Every agent is production's; the network is a model of 10 Gbit/s a node and 50 us (scale.h). Exit
// code 1 if an invariant was broken.
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>
#include <vector>

#include "membership/crowd.h"

namespace {

using namespace tandem::simulation;

std::string text_after(int argc, char** argv, const char* flag, const char* otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], flag) == 0) return argv[i + 1];
  }
  return otherwise;
}

class Report {
 public:
  void add(std::size_t nodes, const char* event, const ViewChange& change, double processor) {
    std::cout << fmt::format(
        "{:6} nodes  {:22} {:3} rounds {:10} messages {:10.1f} MB {:9.3f} s  ({:.1f} s of this "
        "processor for all agents)\n",
        nodes, event, change.rounds, change.messages, 1e-6 * static_cast<double>(change.bytes),
        change.seconds, processor);
    rows_.push_back(fmt::format(
        R"({{"nodes": {}, "event": "{}", "rounds": {}, "messages": {}, "megabytes": {:.3f}, )"
        R"("seconds": {:.4f}}})",
        nodes, event, change.rounds, change.messages, 1e-6 * static_cast<double>(change.bytes),
        change.seconds));
  }
  std::string json() const { return fmt::format(R"({{"rows": [{}]}})", fmt::join(rows_, ", ")); }

 private:
  std::vector<std::string> rows_;
};

template <class Change>
void reply_to(Report& report, std::size_t nodes, const char* event, Change&& change) {
  const auto begin = std::chrono::steady_clock::now();
  const ViewChange cost = change();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  report.add(nodes, event, cost, took.count());
}

// The violated invariant, or empty.
std::string live(Report& report, std::size_t nodes) {
  Crowd crowd(nodes, {});
  reply_to(report, nodes, "rendezvous", [&] { return crowd.meet(); });
  reply_to(report, nodes, "a node is killed", [&] { return crowd.lose(nodes / 2); });
  reply_to(report, nodes, "the first is killed", [&] { return crowd.lose(0); });
  reply_to(report, nodes, "a host falls silent", [&] { return crowd.silence(nodes / 3); });
  reply_to(report, nodes, "a node joins", [&] { return crowd.join(); });
  reply_to(report, nodes, "the job ends", [&] { return crowd.finish(); });
  return crowd.violation();
}

void transfer(Report& report, std::size_t nodes) {
  // The state of BERT-base: weights and both moments in f32, and a step of half a second.
  const std::uint64_t state = 1'300'000'000;
  const Transfer transfer = learn(state, state / 3, 0.5, {});
  ViewChange cost;
  cost.messages = transfer.chunks;
  cost.bytes = transfer.chunks << 22;
  cost.seconds = transfer.seconds;
  report.add(nodes, "BERT-base is learned", cost, 0);
}

}  // namespace

int main(int argc, char** argv) {
  Report report;
  std::istringstream sizes(text_after(argc, argv, "--nodes", "16,256,4096"));
  std::string broken;
  for (std::string size; std::getline(sizes, size, ',');) {
    const std::size_t nodes = std::strtoull(size.c_str(), nullptr, 10);
    broken += live(report, nodes);
    transfer(report, nodes);
  }
  if (const std::string file = text_after(argc, argv, "--json", ""); !file.empty())
    std::ofstream(file) << report.json() << "\n";
  if (!broken.empty()) std::cout << "an invariant is broken: " << broken << "\n";
  return broken.empty() ? 0 : 1;
}
