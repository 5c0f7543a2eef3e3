// `tandem bench comm`: the collectives, as nccl-tests tabulates them, compared with the physical
// limit of this machine. Every size is verified before it is timed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <iostream>
#include <memory>
#include <thread>

#include "apps/bench/comm_backends.h"
#include "apps/bench/comm_limits.h"
#include "apps/bench/comm_ranks.h"
#include "apps/bench/comm_report.h"
#include "apps/bench/comm_work.h"
#include "apps/bench/options.h"
#include "apps/bench/report.h"
#include "apps/command/command_line.h"
#include "apps/command/communication_log.h"
#include "tandem/comm/algorithms/tuning.h"
#include "tandem/core/ascii.h"
#include "tandem/core/cores.h"
#include "tandem/core/error.h"

namespace tandem::apps::bench {
namespace {

using comm::Call;
using comm::Communicator;
using comm::DataType;
using comm::Operation;
using comm::ReduceOp;

struct CommBenchOptions {
  int ranks = 2;
  std::string operations = "all_reduce";
  std::string type = "f32";
  std::string reduction = "sum";
  std::string memory = "private";
  std::string backends = "ccl";
  std::size_t min_bytes = 8;
  std::size_t max_bytes = std::size_t{64} << 20;
  std::size_t factor = 4;
  int rounds = 5;
  double seconds_per_round = 0.1;
  int ranks_per_node = 0;
  bool no_limits = false;
  bool table = false;
  bool huge_pages = false;
  bool no_pin = false;
  bool json = false;
};

// ---- what is run ----

constexpr std::pair<const char*, Operation> kOperations[] = {
    {"all_reduce", Operation::kAllReduce},
    {"reduce", Operation::kReduce},
    {"reduce_scatter", Operation::kReduceScatter},
    {"all_gather", Operation::kAllGather},
    {"broadcast", Operation::kBroadcast},
    {"all_to_all", Operation::kAllToAll},
    {"gather", Operation::kGather},
    {"scatter", Operation::kScatter},
    {"send_receive", Operation::kSend},
    {"barrier", Operation::kBarrier}};
constexpr std::pair<const char*, DataType> kTypes[] = {
    {"f32", DataType::kFloat32}, {"bf16", DataType::kBfloat16}, {"f16", DataType::kFloat16},
    {"f64", DataType::kFloat64}, {"i8", DataType::kInt8},       {"u8", DataType::kUint8},
    {"i32", DataType::kInt32},   {"i64", DataType::kInt64},     {"u64", DataType::kUint64}};
constexpr std::pair<const char*, ReduceOp> kReductions[] = {{"sum", ReduceOp::kSum},
                                                            {"avg", ReduceOp::kAverage},
                                                            {"min", ReduceOp::kMin},
                                                            {"max", ReduceOp::kMax},
                                                            {"product", ReduceOp::kProduct}};

template <class Value, std::size_t N>
Value find(const std::pair<const char*, Value> (&table)[N], const std::string& name,
           const char* what) {
  std::vector<std::string> names;
  for (const auto& row : table) {
    if (row.first == name) return row.second;
    names.emplace_back(row.first);
  }
  raise<ConfigError>("unknown {} '{}'; there are {}", what, name, fmt::join(names, ", "));
}

// ---- how it is timed ----

using Clock = std::chrono::steady_clock;

double time_once(Communicator& communicator, StartLine& line, const Call& call) {
  line.wait();
  const auto start = Clock::now();
  perform(communicator, call);
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// The same on all ranks: what fills about the asked time, by rank 0's clock.
int iterations_for(Communicator& communicator, StartLine& line, const Call& call, double seconds) {
  std::vector<double> trials;
  for (int i = 0; i < 5; ++i) trials.push_back(time_once(communicator, line, call));
  std::int64_t iterations =
      std::clamp(static_cast<std::int64_t>(seconds / std::max(statistics(trials).median, 1e-7)),
                 std::int64_t{5}, std::int64_t{2000});
  communicator.broadcast(std::span(&iterations, 1), 0);
  return static_cast<int>(iterations);
}

// Median over the iterations of the slowest rank's time.
double round_of(Communicator& communicator, StartLine& line, const Call& call, int iterations) {
  std::vector<double> seconds(static_cast<std::size_t>(iterations));
  for (double& one : seconds) one = time_once(communicator, line, call);
  communicator.all_reduce(std::span(seconds), ReduceOp::kMax);
  return statistics(std::move(seconds)).median;
}

// Ranks that have met, and what they measure with.
struct Rank {
  CommSides sides;
  std::vector<CommBackend> backends;
  std::vector<StartLine> lines;  // one of each side: a wait on it drives that side
  std::vector<int> cores;
};

// The limits are threads of rank 0 on the cores of all ranks, which sleep meanwhile.
CommLimits limits_of(Communicator& communicator, const std::vector<int>& cores,
                     const CommBenchOptions& options, comm::Operation operation,
                     const CommRow& row) {
  const bool comparable = has_comm_limits(operation) && options.type == "f32" &&
                          communicator.nodes().size() == 1 && communicator.size() > 1 &&
                          static_cast<std::size_t>(communicator.size()) <= cores.size();
  if (options.no_limits || !comparable) return {};
  CommLimits limits;
  if (communicator.rank() == 0) {
    std::thread measuring([&] {
      limits = measure_comm_limits(operation, communicator.size(), cores, row.count,
                                   std::max(5, row.iterations), options.huge_pages);
    });
    measuring.join();
  }
  communicator.barrier();
  return limits;
}

// All backends on the same buffers, except where these must be the communicator's: each verified,
// then their rounds alternately.
std::vector<CommRow> measure_size(Rank& rank, const CommBenchOptions& options,
                                  const std::string& name, const std::string& memory,
                                  std::size_t bytes) {
  const WorkShape shape{find(kOperations, name, "operation"), find(kTypes, options.type, "type"),
                        find(kReductions, options.reduction, "reduction"), bytes};
  std::shared_ptr<Pages> pages;
  if (memory == "private")
    pages = std::make_shared<Pages>(shape.memory_bytes(), options.huge_pages);
  const std::size_t sides = rank.sides.size();
  std::vector<Work> works;
  std::vector<CommRow> rows(sides);
  for (std::size_t i = 0; i < sides; ++i) {
    rank.sides.turn_to(i);
    Communicator& communicator = rank.sides[i];
    Work& work = works.emplace_back(communicator, shape, pages);
    work.verify(communicator);
    rows[i].operation = name;
    rows[i].backend = rank.backends[i].name;
    rows[i].memory = memory;
    rows[i].type = options.type;
    rows[i].reduction = work.call().reduces() ? options.reduction : "-";
    rows[i].count = work.call().count;
    rows[i].bytes = work.bytes();
    rows[i].iterations =
        iterations_for(communicator, rank.lines[i], work.call(), options.seconds_per_round);
  }
  std::vector<std::vector<double>> seconds(sides);
  std::vector<double> direct;
  std::vector<double> staged;
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t i = 0; i < sides; ++i) {
      rank.sides.turn_to(i);
      seconds[i].push_back(
          round_of(rank.sides[i], rank.lines[i], works[i].call(), rows[i].iterations));
    }
    const CommLimits limits =
        limits_of(rank.sides[sides - 1], rank.cores, options, shape.operation, rows[0]);
    direct.push_back(limits.direct);
    staged.push_back(limits.staged);
  }
  for (std::size_t i = 0; i < sides; ++i) {
    rows[i].seconds = statistics(seconds[i]);
    rows[i].limits = {statistics(direct).median, statistics(staged).median};
  }
  return rows;
}

std::vector<std::size_t> sizes_of(const CommBenchOptions& options) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor)
    sizes.push_back(bytes);
  return sizes;
}

comm::Options comm_options(const CommBenchOptions& options, const rendezvous::Identity& identity,
                           const Environment& environment) {
  comm::Options result;
  result.timeout = std::chrono::minutes(5);
  result.selection = comm::Selection::from_environment(environment);
  result.worker = comm::WorkerOptions::from_environment(environment, 1);
  result.tuning = comm::tuning_from_environment(environment);
  result.node_id = options.ranks_per_node > 0
                       ? std::to_string(identity.rank / options.ranks_per_node)
                       : environment.get("TANDEM_NODE_ID").value_or("");
  result.log = log_printer(communication_log(environment));
  return result;
}

Rank meet(const CommBenchOptions& options, const std::vector<CommBackend>& backends,
          const rendezvous::Identity& identity, const Environment& environment) {
  Rank rank{CommSides(identity, backends, comm_options(options, identity, environment)),
            backends,
            {},
            allowed_cores()};
  for (std::size_t i = 0; i < backends.size(); ++i) {
    rank.sides.turn_to(i);
    rank.lines.emplace_back(rank.sides[i]);
    if (communication_log(environment) == CommunicationLog::kInfo) {
      fmt::print(stderr, "tandem: {}; {}: {}\n", rendezvous::describe(identity), backends[i].name,
                 rank.sides[i].describe());
    }
  }
  return rank;
}

void report_start(Report& report, const CommBenchOptions& options, Rank& rank) {
  nlohmann::ordered_json ranks;
  for (std::size_t i = 0; i < rank.sides.size(); ++i) {
    const std::string text = rank.sides[i].describe();
    ranks[rank.backends[i].name] = text;
    report.line(fmt::format("{}: {}", rank.backends[i].name, text));
  }
  report.set("ranks", std::move(ranks));
  Communicator& first = rank.sides[0];
  if (options.table) {
    report.line(first.describe_selection());
  } else {
    for (const std::string& note : first.options().selection.notes) report.line(note);
  }
  report_heading(report, !options.no_limits);
}

int run_rank(const CommBenchOptions& options, const std::vector<CommBackend>& backends,
             const rendezvous::Identity& identity, const Environment& environment) {
  Rank rank = meet(options, backends, identity, environment);
  // The launcher's number on this machine: what counts as several nodes here may share its cores.
  if (!options.no_pin) pin_to_core(rank.cores, identity.local_rank);
  std::ostream silent(nullptr);
  Report report(identity.rank == 0 ? std::cout : silent, options.json, "comm",
                {{"backends", options.backends},
                 {"cores", rank.cores.size()},
                 {"pages", options.huge_pages ? "huge where the system gives them" : "4 KiB"}});
  report_start(report, options, rank);
  const std::vector<std::string> memories =
      options.memory == "both" ? std::vector<std::string>{"private", "communicator"}
                               : std::vector<std::string>{options.memory};
  for (const std::string& name : names_of_list(options.operations)) {
    const Operation operation = find(kOperations, name, "operation");
    for (const std::string& memory : memories) {
      for (const std::size_t bytes : sizes_of(options)) {
        for (const CommRow& row : measure_size(rank, options, name, memory, bytes))
          report_row(report, row, identity.world_size);
        if (operation == Operation::kBarrier) break;
      }
    }
  }
  if (identity.rank == 0) report.finish();
  rank.sides.close();
  return 0;
}

int run(const CommBenchOptions& options, const Environment& environment) {
  // Checked before there are ranks, which would all report it.
  for (const std::string& name : names_of_list(options.operations))
    find(kOperations, name, "operation");
  find(kTypes, options.type, "type");
  find(kReductions, options.reduction, "reduction");
  communication_log(environment);
  comm::Selection::from_environment(environment);
  const rendezvous::Identity identity = rendezvous::identify(environment);
  const bool launched = identity.distributed();
  const std::vector<CommBackend> backends =
      choose_backends(options.backends, environment, launched || options.ranks > 1);
  if (launched) return run_rank(options, backends, identity, environment);
  const int found = run_forked(1, [&](const rendezvous::Identity&) {
    for (const CommBackend& backend : backends) try_library(backend);
    return 0;
  });
  if (found != 0) return found;
  return run_forked(options.ranks, [&](const rendezvous::Identity& forked) {
    return run_rank(options, backends, forked, environment);
  });
}

}  // namespace

Bench add_comm(CLI::App& parent) {
  Flags flags(parent, "comm", "collectives: time and bandwidth by size");
  auto options = std::make_shared<CommBenchOptions>();
  flags.number("--ranks", options->ranks, "ranks to start; a launcher's number wins", 1, 512);
  flags.text("--op", options->operations, "operations, separated by commas");
  flags.text("--dtype", options->type, "f32, bf16, f16, f64, i8, u8, i32, i64 or u64");
  flags.text("--reduction", options->reduction, "sum, avg, min, max or product");
  flags.choice("--memory", options->memory, "whose memory the buffers are",
               {"private", "communicator", "both"});
  flags.text("--backend", options->backends,
             "what carries messages between ranks, as run_qa's --ddp_backend: ccl, mpi or gloo; "
             "several, separated by commas, are timed alternately");
  flags.bytes("--min", options->min_bytes, "smallest buffer, e.g. 8 or 4K");
  flags.bytes("--max", options->max_bytes, "largest buffer, e.g. 256M");
  flags.number("--factor", options->factor, "from one size to the next", 2, 1024);
  flags.number("--rounds", options->rounds, "how often each size is timed", 1, 100000);
  flags.number("--seconds", options->seconds_per_round, "time of a round", 0.001, 60.0);
  flags.number("--ranks-per-node", options->ranks_per_node,
               "ranks that share memory, the others are reached through the network; default: "
               "those of a host",
               1, 512);
  flags.boolean("--no-limits", options->no_limits, "do not measure the machine's limit as well");
  flags.boolean("--table", options->table, "print which algorithm runs at which size");
  flags.boolean("--huge-pages", options->huge_pages, "ask for huge pages for private buffers");
  flags.boolean("--no-pin", options->no_pin, "do not bind ranks to cores");
  flags.boolean("--json", options->json, "print one JSON object instead of a table");
  return Bench::of(flags, options, run);
}

}  // namespace tandem::apps::bench
