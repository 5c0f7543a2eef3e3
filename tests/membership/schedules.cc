// Runs schedules of the simulation and stops at the first that breaks an invariant:
//   membership_schedules --from 1 --count 1000000
//   membership_schedules --seed 4711              prints one schedule event by event
//   --threads N: so many at a time; --minutes M: begins no more after M minutes
//   --json FILE: what was run, as bench/record.py wants it.
// Exit code 1 if an invariant was broken; the last line states what was run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "membership/simulation.h"

namespace {

using namespace tandem::simulation;

std::uint64_t number_after(int argc, char** argv, const char* flag, std::uint64_t otherwise) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], flag) == 0) return std::strtoull(argv[i + 1], nullptr, 10);
  }
  return otherwise;
}

bool has(int argc, char** argv, const char* flag) {
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], flag) == 0) return true;
  }
  return false;
}

const char* text_after(int argc, char** argv, const char* flag) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (std::strcmp(argv[i], flag) == 0) return argv[i + 1];
  }
  return nullptr;
}

struct Totals {
  std::uint64_t events = 0, views = 0, deaths = 0, learned = 0, broken = 0, longest = 0;
};

std::string to_json(std::uint64_t from, std::uint64_t count, const Totals& totals) {
  return fmt::format(R"({{"rows": [{{"from": {}, "schedules": {}, "events": {}, "views": {}, )"
                     R"("deaths": {}, "learned": {}, "longest_ms": {}, "broken": {}}}]}})",
                     from, count, totals.events, totals.views, totals.deaths, totals.learned,
                     totals.longest, totals.broken);
}

// Seeds one after another, by several threads. A seed that has begun is completed, so all seeds
// from the first to next() have been run.
class Runs {
 public:
  using Clock = std::chrono::steady_clock;
  Runs(std::uint64_t from, std::uint64_t count, std::uint64_t minutes, bool all)
      : next_(from), end_(from + count), all_(all), until_(Clock::time_point::max()) {
    if (minutes > 0) until_ = Clock::now() + std::chrono::minutes(minutes);
  }
  void run_all(std::uint64_t threads) {
    std::vector<std::thread> others;
    for (std::uint64_t i = 1; i < threads; ++i) others.emplace_back([this] { run_some(); });
    run_some();
    for (std::thread& other : others) other.join();
  }
  std::uint64_t next() const { return next_; }
  const Totals& totals() const { return totals_; }

 private:
  void run_some() {
    std::unique_lock lock(mutex_);
    while (next_ < end_ && (all_ || totals_.broken == 0) && Clock::now() < until_) {
      Schedule schedule;
      schedule.seed = next_++;
      schedule.wire = schedule.seed % 16 == 0;
      schedule.alarms = schedule.seed % 4 == 1;
      lock.unlock();
      const Outcome outcome = tandem::simulation::run(schedule);
      lock.lock();
      add(schedule.seed, outcome);
    }
  }
  void add(std::uint64_t seed, const Outcome& outcome) {
    totals_.events += outcome.events;
    totals_.views += outcome.views;
    totals_.deaths += outcome.deaths;
    totals_.learned += outcome.learned;
    const auto after = outcome.ended_ms - std::min(outcome.ended_ms, outcome.healed_ms);
    totals_.longest = std::max(totals_.longest, static_cast<std::uint64_t>(after));
    if (outcome.violation.empty()) return;
    ++totals_.broken;
    std::cout << "seed " << seed << ": " << outcome.violation << std::endl;
  }

  std::mutex mutex_;
  std::uint64_t next_, end_;
  bool all_;
  Clock::time_point until_;
  Totals totals_;
};

int notify_one(Schedule schedule) {
  schedule.trace = true;
  const Outcome outcome = run(schedule);
  for (const std::string& line : outcome.trace) std::cout << line << "\n";
  std::cout << (outcome.violation.empty() ? "all invariants hold" : outcome.violation) << "\n";
  return outcome.violation.empty() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  Schedule schedule;
  if (const std::uint64_t seed = number_after(argc, argv, "--seed", 0); seed != 0) {
    schedule.seed = seed;
    schedule.alarms = seed % 4 == 1;
    return notify_one(schedule);
  }
  const std::uint64_t from = number_after(argc, argv, "--from", 1);
  const std::uint64_t count = number_after(argc, argv, "--count", 10000);
  const auto begin = std::chrono::steady_clock::now();
  Runs runs(from, count, number_after(argc, argv, "--minutes", 0), has(argc, argv, "--keep-going"));
  runs.run_all(number_after(argc, argv, "--threads", 1));
  const Totals& totals = runs.totals();
  const std::uint64_t done = runs.next() - from;
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << fmt::format(
      "{} schedules from seed {}: {} events, {} views, {} deaths, {} learned, longest end after "
      "healing {} ms, {} broken, {:.1f} s\n",
      done, from, totals.events, totals.views, totals.deaths, totals.learned, totals.longest,
      totals.broken, took.count());
  if (const char* file = text_after(argc, argv, "--json"))
    std::ofstream(file) << to_json(from, done, totals) << "\n";
  return totals.broken == 0 ? 0 : 1;
}
