// The table of `tandem bench comm`, in nccl-tests' columns.
#pragma once

#include <cstddef>
#include <string>

#include "apps/bench/comm_limits.h"
#include "apps/bench/measure.h"
#include "apps/bench/report.h"

namespace tandem::apps::bench {

// One backend at one size.
struct CommRow {
  std::string operation;
  std::string backend;
  std::string memory;
  std::string type;
  std::string reduction;  // "-" where nothing is reduced
  std::size_t bytes = 0;
  std::size_t count = 0;
  int iterations = 0;
  Statistics seconds;
  CommLimits limits;
};

// `limits`: with columns for the machine's limits.
void report_heading(Report& report, bool limits);
void report_row(Report& report, const CommRow& row, int ranks);

}  // namespace tandem::apps::bench
