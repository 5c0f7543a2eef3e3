#include "apps/bench/comm_report.h"

#include <fmt/format.h>

namespace tandem::apps::bench {
namespace {

// Buses: bytes that must cross for S bytes, as nccl-tests counts them (its doc/PERFORMANCE.md).
double bus_factor(const std::string& operation, int ranks) {
  const double n = ranks;
  if (operation == "all_reduce") return 2 * (n - 1) / n;
  const bool in_blocks = operation == "reduce_scatter" || operation == "all_gather" ||
                         operation == "all_to_all" || operation == "gather" ||
                         operation == "scatter";
  return in_blocks ? (n - 1) / n : 1;
}

}  // namespace

void report_heading(Report& report, bool limits) {
  report.line(fmt::format(
      "{:<15} {:<8} {:<12} {:>11} {:>10} {:>5} {:>8} {:>10} {:>21} {:>7} {:>7}{}", "", "backend",
      "memory", "size (B)", "count", "type", "op", "time (us)", "min – max  ", "algbw", "busbw",
      limits ? "     direct     staged (limits, us)" : ""));
}

void report_row(Report& report, const CommRow& row, int ranks) {
  const double algorithm_rate = static_cast<double>(row.bytes) / row.seconds.median * 1e-9;
  const double bus_rate = algorithm_rate * bus_factor(row.operation, ranks);
  report.line(fmt::format(
      "{:<15} {:<8} {:<12} {:>11} {:>10} {:>5} {:>8} {:>10.2f} {:>9.2f} – {:<9.2f} {:>7.2f} "
      "{:>7.2f}{}",
      row.operation, row.backend, row.memory, row.bytes, row.count, row.type, row.reduction,
      row.seconds.median * 1e6, row.seconds.min * 1e6, row.seconds.max * 1e6, algorithm_rate,
      bus_rate,
      row.limits.direct > 0
          ? fmt::format(" {:>10.2f} {:>10.2f}", row.limits.direct * 1e6, row.limits.staged * 1e6)
          : ""));
  nlohmann::ordered_json entry = {
      {"name", fmt::format("{} {} {} {}", row.operation, row.memory, row.type, row.bytes)},
      {"operation", row.operation},
      {"backend", row.backend},
      {"memory", row.memory},
      {"type", row.type},
      {"bytes", row.bytes},
      {"count", row.count},
      {"iterations", row.iterations},
      {"microseconds",
       {{"median", row.seconds.median * 1e6},
        {"min", row.seconds.min * 1e6},
        {"max", row.seconds.max * 1e6}}},
      {"algbw_GBps", algorithm_rate},
      {"busbw_GBps", bus_rate}};
  if (row.limits.direct > 0) {
    entry["limit_direct_microseconds"] = row.limits.direct * 1e6;
    entry["limit_staged_microseconds"] = row.limits.staged * 1e6;
  }
  report.add(std::move(entry));
}

}  // namespace tandem::apps::bench
