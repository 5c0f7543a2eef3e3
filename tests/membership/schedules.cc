// Runs schedules of the simulation and stops at the first that breaks an invariant:
//   membership_schedules --from 1 --count 1000000
//   membership_schedules --seed 4711              tells one schedule event by event
//   --json FILE: what was run, as bench/record.py wants it.
// Exit code 1 if an invariant was broken; the last line says what was run.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
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
  return fmt::format(
      R"({{"rows": [{{"rules": "both", "from": {}, "schedules": {}, "events": {}, "views": {}, )"
      R"("deaths": {}, "learned": {}, "longest_ms": {}, "broken": {}}}]}})",
      from, count, totals.events, totals.views, totals.deaths, totals.learned, totals.longest,
      totals.broken);
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
  Totals totals;
  for (std::uint64_t seed = from; seed < from + count; ++seed) {
    schedule.seed = seed;
    schedule.wire = seed % 16 == 0;
    schedule.alarms = seed % 4 == 1;
    const Outcome outcome = run(schedule);
    totals.events += outcome.events;
    totals.views += outcome.views;
    totals.deaths += outcome.deaths;
    totals.learned += outcome.learned;
    const auto after = outcome.ended_ms - std::min(outcome.ended_ms, outcome.healed_ms);
    totals.longest = std::max(totals.longest, static_cast<std::uint64_t>(after));
    if (outcome.violation.empty()) continue;
    ++totals.broken;
    std::cout << "seed " << seed << ": " << outcome.violation << "\n";
    if (!all) break;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  std::cout << fmt::format(
      "{} schedules from seed {}: {} events, {} views, {} deaths, {} learned, longest end after "
      "healing {} ms, {} broken, {:.1f} s\n",
      count, from, totals.events, totals.views, totals.deaths, totals.learned, totals.longest,
      totals.broken, took.count());
  if (const char* file = text_after(argc, argv, "--json"))
    std::ofstream(file) << to_json(from, count, totals) << "\n";
  return totals.broken == 0 ? 0 : 1;
}
