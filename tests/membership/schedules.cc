// Runs schedules of the simulation and stops at the first that breaks an invariant:
//   membership_schedules --from 1 --count 1000000
//   membership_schedules --seed 4711 --trace      tells one schedule event by event
// Exit code 1 if an invariant was broken; the last line says what was run.
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <string>

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

int tell_one(Schedule schedule) {
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
    return tell_one(schedule);
  }
  const std::uint64_t from = number_after(argc, argv, "--from", 1);
  const std::uint64_t count = number_after(argc, argv, "--count", 10000);
  const bool all = has(argc, argv, "--keep-going");
  const auto begin = std::chrono::steady_clock::now();
  std::uint64_t events = 0, views = 0, deaths = 0, broken = 0, longest = 0;
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    schedule.seed = seed;
    schedule.wire = seed % 16 == 0;
    schedule.alarms = seed % 4 == 1;
    const Outcome outcome = run(schedule);
    events += outcome.events;
    views += outcome.views;
    deaths += outcome.deaths;
    const auto after = outcome.ended_ms - std::min(outcome.ended_ms, outcome.healed_ms);
    longest = std::max(longest, static_cast<std::uint64_t>(after));
    if (outcome.violation.empty()) continue;
    ++broken;
    std::cout << "seed " << seed << ": " << outcome.violation << "\n";
    if (!all) break;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << count << " schedules from seed " << from << ": " << events << " events, " << views
            << " views, " << deaths << " deaths, longest end after healing " << longest << " ms, "
            << broken << " broken, " << took.count() << " s\n";
  return broken == 0 ? 0 : 1;
}
