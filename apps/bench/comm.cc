// `tandem bench comm`: the collectives, as nccl-tests tabulates them, beside the physical limit of this machine. Every size is
// verified before it is timed.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <thread>

#include "apps/bench/comm_limits.h"
#include "apps/bench/comm_ranks.h"
#include "apps/bench/options.h"
#include "apps/bench/report.h"
#include "tandem/comm/tuning.h"
#include "tandem/core/cores.h"
#include "tandem/core/error.h"
#include "tandem/core/float16.h"

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
  std::string backend = "ccl";
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

std::vector<std::string> split_list(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Buses: bytes that must cross for S bytes, as nccl-tests counts them (its doc/PERFORMANCE.md).
double bus_factor(Operation operation, int ranks) {
  const double n = ranks;
  switch (operation) {
    case Operation::kAllReduce:
      return 2 * (n - 1) / n;
    case Operation::kReduceScatter:
    case Operation::kAllGather:
    case Operation::kAllToAll:
    case Operation::kGather:
    case Operation::kScatter:
      return (n - 1) / n;
    default:
      return 1;
  }
}

bool is_whole(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kBroadcast || operation == Operation::kSend;
}

// send_receive: every rank sends to the next one and receives from the one before.
void perform(Communicator& communicator, const Call& call) {
  if (call.operation != Operation::kSend) return communicator.call(call);
  const int size = communicator.size();
  const int rank = communicator.rank();
  if (size == 1) return;
  const auto receive = communicator.start_receive_bytes({call.out, call.block_bytes()}, call.type,
                                                        call.count, (rank + size - 1) % size);
  const auto send = communicator.start_send_bytes({call.in, call.block_bytes()}, call.type,
                                                  call.count, (rank + 1) % size);
  communicator.wait(receive);
  communicator.wait(send);
}

// The buffers of one operation of `bytes` (the larger of its two buffers) and the call on them.
class Work {
 public:
  Work(Communicator& communicator, Operation operation, DataType type, ReduceOp reduction,
       std::size_t bytes, bool shared, bool huge)
      : size_(communicator.size()), rank_(communicator.rank()) {
    const auto ranks = static_cast<std::size_t>(size_);
    const std::size_t element = comm::size_of(type);
    call_.operation = operation;
    call_.type = type;
    if (call_.reduces()) call_.op = reduction;
    call_.count = bytes / element / (is_whole(operation) ? 1 : ranks);
    if (operation == Operation::kBarrier) return;
    const bool in_place = operation == Operation::kAllReduce || operation == Operation::kBroadcast;
    const std::size_t room = bytes + 64;
    if (shared) {
      memory_ = communicator.mem_alloc(in_place ? room : 2 * room);
      call_.in = memory_.bytes().data();
    } else {
      pages_ = std::make_unique<Pages>(in_place ? room : 2 * room, huge);
      call_.in = pages_->data();
    }
    call_.out = const_cast<std::byte*>(call_.in) + (in_place ? 0 : room / 64 * 64);
  }
  const Call& call() const { return call_; }
  std::size_t bytes() const {
    return call_.block_bytes() * (is_whole(call_.operation) ? 1 : static_cast<std::size_t>(size_));
  }

  // Runs once on bytes that tell who sent them, and checks every byte that arrived. Sums: of rank + position, small enough
  // to be exact in every type.
  void verify(Communicator& communicator) {
    if (call_.operation == Operation::kBarrier) return communicator.call(call_);
    fill();
    perform(communicator, call_);
    const bool takes =
        (call_.operation != Operation::kReduce && call_.operation != Operation::kGather) ||
        rank_ == call_.root;
    for (std::size_t i = 0; takes && i < out_count(); ++i) {
      if (std::abs(value_at(i) - expected(i)) <= 1e-6) continue;
      raise<Error>("{}: rank {} has {} at element {}, expected {}", comm::describe(call_, 0), rank_,
                   value_at(i), i, expected(i));
    }
    communicator.barrier();
    std::memset(const_cast<std::byte*>(call_.in), 0, call_.in_bytes(size_));
    std::memset(call_.out, 0, call_.out_bytes(size_));
  }

 private:
  static double given(int rank, std::size_t i) {
    return static_cast<double>((i + static_cast<std::size_t>(rank)) % 7);
  }
  std::size_t out_count() const { return call_.out_bytes(size_) / comm::size_of(call_.type); }
  void fill() {
    const std::size_t count = call_.in_bytes(size_) / comm::size_of(call_.type);
    for (std::size_t i = 0; i < count; ++i)
      store(const_cast<std::byte*>(call_.in), i, given(rank_, i));
  }
  double expected(std::size_t i) const {
    const auto own = static_cast<std::size_t>(rank_);
    const std::size_t n = call_.count;
    switch (call_.operation) {
      case Operation::kBroadcast:
        return given(call_.root, i);
      case Operation::kSend:
        return given((rank_ + size_ - 1) % size_, i);
      case Operation::kAllGather:
      case Operation::kGather:
        return given(static_cast<int>(i / n), i % n);
      case Operation::kScatter:
        return given(call_.root, own * n + i);
      case Operation::kAllToAll:
        return given(static_cast<int>(i / n), own * n + i % n);
      default:
        return reduced(call_.operation == Operation::kReduceScatter ? own * n + i : i);
    }
  }
  double reduced(std::size_t i) const {
    double result = given(0, i);
    for (int r = 1; r < size_; ++r) {
      const double x = given(r, i);
      if (call_.op == ReduceOp::kMin) result = std::min(result, x);
      if (call_.op == ReduceOp::kMax) result = std::max(result, x);
      if (call_.op == ReduceOp::kProduct) result *= x;
      if (call_.op == ReduceOp::kSum || call_.op == ReduceOp::kAverage) result += x;
    }
    if (call_.op != ReduceOp::kAverage) return rounded(result);
    const bool integer = call_.type != DataType::kFloat32 && call_.type != DataType::kFloat64 &&
                         call_.type != DataType::kBfloat16 && call_.type != DataType::kFloat16;
    return integer ? static_cast<double>(static_cast<long>(result) / size_)
                   : rounded(result / size_);
  }
  // As the type holds it.
  double rounded(double x) const {
    std::byte one[8] = {};
    store(one, 0, x);
    return load(one, 0);
  }
  double value_at(std::size_t i) const { return load(call_.out, i); }
  template <class Visit>
  auto visit_type(Visit visit) const {
    switch (call_.type) {
      case DataType::kFloat64:
        return visit(double());
      case DataType::kInt32:
        return visit(std::int32_t());
      case DataType::kInt64:
        return visit(std::int64_t());
      case DataType::kUint64:
        return visit(std::uint64_t());
      case DataType::kInt8:
        return visit(std::int8_t());
      case DataType::kUint8:
        return visit(std::uint8_t());
      default:
        return visit(float());
    }
  }
  void store(std::byte* to, std::size_t i, double x) const {
    if (call_.type == DataType::kBfloat16) {
      reinterpret_cast<bfloat16*>(to)[i] = to_bfloat16(static_cast<float>(x));
    } else if (call_.type == DataType::kFloat16) {
      reinterpret_cast<float16*>(to)[i] = to_float16(static_cast<float>(x));
    } else {
      visit_type([&](auto zero) {
        using T = decltype(zero);
        reinterpret_cast<T*>(to)[i] = static_cast<T>(x);
      });
    }
  }
  double load(const std::byte* from, std::size_t i) const {
    if (call_.type == DataType::kBfloat16)
      return static_cast<double>(to_float(reinterpret_cast<const bfloat16*>(from)[i]));
    if (call_.type == DataType::kFloat16)
      return static_cast<double>(to_float(reinterpret_cast<const float16*>(from)[i]));
    return visit_type([&](auto zero) {
      return static_cast<double>(reinterpret_cast<const decltype(zero)*>(from)[i]);
    });
  }

  int size_;
  int rank_;
  Call call_;
  comm::CommunicatorMemory memory_;
  std::unique_ptr<Pages> pages_;
};

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

struct Row {
  std::string operation;
  std::string memory;
  std::size_t bytes = 0;
  std::size_t count = 0;
  int iterations = 0;
  Statistics seconds;
  CommLimits limits;
};

void report_row(Report& report, const CommBenchOptions& options, const Row& row, double bus) {
  const double algorithm_rate = static_cast<double>(row.bytes) / row.seconds.median * 1e-9;
  report.line(fmt::format(
      "{:<15} {:<12} {:>11} {:>10} {:>5} {:>8} {:>10.2f} {:>9.2f} – {:<9.2f} {:>7.2f} {:>7.2f}{}",
      row.operation, row.memory, row.bytes, row.count, options.type,
      row.operation == "all_reduce" || row.operation.starts_with("reduce") ? options.reduction
                                                                           : "-",
      row.seconds.median * 1e6, row.seconds.min * 1e6, row.seconds.max * 1e6, algorithm_rate,
      algorithm_rate * bus,
      row.limits.direct > 0
          ? fmt::format(" {:>10.2f} {:>10.2f}", row.limits.direct * 1e6, row.limits.staged * 1e6)
          : ""));
  nlohmann::ordered_json entry = {
      {"name", fmt::format("{} {} {} {}", row.operation, row.memory, options.type, row.bytes)},
      {"operation", row.operation},
      {"memory", row.memory},
      {"type", options.type},
      {"bytes", row.bytes},
      {"count", row.count},
      {"iterations", row.iterations},
      {"microseconds",
       {{"median", row.seconds.median * 1e6},
        {"min", row.seconds.min * 1e6},
        {"max", row.seconds.max * 1e6}}},
      {"algbw_GBps", algorithm_rate},
      {"busbw_GBps", algorithm_rate * bus}};
  if (row.limits.direct > 0) {
    entry["limit_direct_microseconds"] = row.limits.direct * 1e6;
    entry["limit_staged_microseconds"] = row.limits.staged * 1e6;
  }
  report.add(std::move(entry));
}

// The limits are threads of rank 0 on the cores of all ranks, which sleep meanwhile.
CommLimits limits_of(Communicator& communicator, const std::vector<int>& cores,
                     const CommBenchOptions& options, const Row& row) {
  const bool comparable = row.operation == "all_reduce" && options.type == "f32" &&
                          communicator.nodes().size() == 1 && communicator.size() > 1 &&
                          static_cast<std::size_t>(communicator.size()) <= cores.size();
  if (options.no_limits || !comparable) return {};
  CommLimits limits;
  if (communicator.rank() == 0) {
    std::thread measuring([&] {
      limits = measure_comm_limits(communicator.size(), cores, row.count,
                                   std::max(5, row.iterations), options.huge_pages);
    });
    measuring.join();
  }
  communicator.barrier();
  return limits;
}

Row measure_size(Communicator& communicator, StartLine& line, const std::vector<int>& cores,
                 const CommBenchOptions& options, const std::string& name,
                 const std::string& memory, std::size_t bytes) {
  Work work(communicator, find(kOperations, name, "operation"), find(kTypes, options.type, "type"),
            find(kReductions, options.reduction, "reduction"), bytes, memory == "communicator",
            options.huge_pages);
  work.verify(communicator);
  Row row;
  row.operation = name;
  row.memory = memory;
  row.count = work.call().count;
  row.bytes = work.bytes();
  row.iterations = iterations_for(communicator, line, work.call(), options.seconds_per_round);
  std::vector<double> rounds;
  std::vector<double> direct;
  std::vector<double> staged;
  for (int round = 0; round < options.rounds; ++round) {
    rounds.push_back(round_of(communicator, line, work.call(), row.iterations));
    const CommLimits limits = limits_of(communicator, cores, options, row);
    direct.push_back(limits.direct);
    staged.push_back(limits.staged);
  }
  row.seconds = statistics(rounds);
  row.limits = {statistics(direct).median, statistics(staged).median};
  return row;
}

std::vector<std::size_t> sizes_of(const CommBenchOptions& options) {
  std::vector<std::size_t> sizes;
  for (std::size_t bytes = options.min_bytes; bytes <= options.max_bytes; bytes *= options.factor)
    sizes.push_back(bytes);
  return sizes;
}

int run_rank(const CommBenchOptions& options, const rendezvous::Identity& identity,
             const Environment& environment) {
  const std::vector<int> cores = allowed_cores();
  comm::Options comm_options;
  comm_options.timeout = std::chrono::minutes(5);
  comm_options.selection = comm::Selection::from_environment(environment);
  comm_options.worker = comm::WorkerOptions::from_environment(environment, 1);
  comm_options.tuning = comm::tuning_from_environment(environment);
  if (options.ranks_per_node > 0)
    comm_options.node_id = std::to_string(identity.rank / options.ranks_per_node);
  const auto communicator = Communicator::create(identity, comm_options);
  // The launcher's number on this machine: what counts as several nodes here may share its cores.
  if (!options.no_pin) pin_to_core(cores, identity.local_rank);
  StartLine line(*communicator);
  std::ostream silent(nullptr);
  Report report(communicator->rank() == 0 ? std::cout : silent, options.json, "comm",
                {{"backend", options.backend},
                 {"ranks", communicator->describe()},
                 {"cores", cores.size()},
                 {"pages", options.huge_pages ? "huge where the system gives them" : "4 KiB"}});
  if (options.table) report.line(communicator->describe_selection());
  report.line(fmt::format("{:<15} {:<12} {:>11} {:>10} {:>5} {:>8} {:>10} {:>21} {:>7} {:>7}{}", "",
                          "memory", "size (B)", "count", "type", "op", "time (us)", "min – max  ",
                          "algbw", "busbw",
                          options.no_limits ? "" : "     direct     staged (limits, us)"));
  const std::vector<std::string> memories =
      options.memory == "both" ? std::vector<std::string>{"private", "communicator"}
                               : std::vector<std::string>{options.memory};
  for (const std::string& name : split_list(options.operations)) {
    const Operation operation = find(kOperations, name, "operation");
    for (const std::string& memory : memories) {
      for (const std::size_t bytes : sizes_of(options)) {
        const Row row = measure_size(*communicator, line, cores, options, name, memory, bytes);
        report_row(report, options, row, bus_factor(operation, communicator->size()));
        if (operation == Operation::kBarrier) break;
      }
    }
  }
  if (communicator->rank() == 0) report.finish();
  communicator->close();
  return 0;
}

int run(const CommBenchOptions& options, const Environment& environment) {
  if (options.backend != "ccl") {
    raise<ConfigError>("--backend {}: this build has no such backend; it has ccl", options.backend);
  }
  // Before there are ranks that would all say it.
  for (const std::string& name : split_list(options.operations))
    find(kOperations, name, "operation");
  find(kTypes, options.type, "type");
  find(kReductions, options.reduction, "reduction");
  const rendezvous::Identity identity = rendezvous::identify(environment);
  if (identity.distributed()) return run_rank(options, identity, environment);
  return run_forked(options.ranks, [&](const rendezvous::Identity& forked) {
    return run_rank(options, forked, environment);
  });
}

}  // namespace

Bench add_comm(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand("comm", "collectives: time and bandwidth by size");
  auto options = std::make_shared<CommBenchOptions>();
  app->add_option("--ranks", options->ranks, "ranks to start; a launcher's number wins")
      ->check(CLI::Range(1, 512));
  app->add_option("--op", options->operations, "operations, separated by commas");
  app->add_option("--dtype", options->type, "f32, bf16, f16, f64, i8, u8, i32, i64 or u64");
  app->add_option("--reduction", options->reduction, "sum, avg, min, max or product");
  app->add_option("--memory", options->memory, "whose memory the buffers are")
      ->check(CLI::IsMember({"private", "communicator", "both"}));
  app->add_option("--backend", options->backend, "whose collectives");
  const auto size = CLI::AsSizeValue(/*kb_is_1000=*/false);
  app->add_option("--min", options->min_bytes, "smallest buffer, e.g. 8 or 4K")->transform(size);
  app->add_option("--max", options->max_bytes, "largest buffer, e.g. 256M")->transform(size);
  app->add_option("--factor", options->factor, "from one size to the next")
      ->check(CLI::Range(2, 1024));
  app->add_option("--rounds", options->rounds, "how often each size is timed")
      ->check(CLI::Range(1, 100000));
  app->add_option("--seconds", options->seconds_per_round, "time of a round")
      ->check(CLI::Range(0.001, 60.0));
  app->add_option("--ranks-per-node", options->ranks_per_node,
                  "ranks that share memory, the others are reached through the network; default: "
                  "those of a host")
      ->check(CLI::Range(1, 512));
  app->add_flag("--no-limits", options->no_limits, "do not measure the machine's limit beside it");
  app->add_flag("--table", options->table, "print which algorithm runs at which size");
  app->add_flag("--huge-pages", options->huge_pages, "ask for huge pages for private buffers");
  app->add_flag("--no-pin", options->no_pin, "do not bind ranks to cores");
  app->add_flag("--json", options->json, "print one JSON object instead of a table");
  return {app, [options](const Environment& environment) { return run(*options, environment); }};
}

}  // namespace tandem::apps::bench
