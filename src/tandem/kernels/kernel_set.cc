#include "tandem/kernels/kernel_set.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <span>

#include "tandem/core/error.h"
#include "tandem/kernels/context.h"
#include "tandem/kernels/kernel_tables.h"
#include "tandem/kernels/machine_kernels.h"

namespace tandem::kernels {
namespace {

// Requirements of a table row on the processor; the strings end up in refusals.
enum class Needs {
  kNothing,
  kAvx2,
  kAvx512,
  kAvx512Bf16,
  kAvx512Vnni,
  kAmxBf16,
  kAmxBf16AndAvx512Bf16,
  kAmxInt8,
  kOneDnnBf16
};

std::string refusal(Needs needs, const CpuFeatures& cpu) {
  const auto unless = [](bool present, std::string_view text) {
    return present ? std::string() : std::string(text);
  };
  switch (needs) {
    case Needs::kNothing:
      return {};
    case Needs::kAvx2:
      return unless(cpu.avx2, "this CPU has no AVX2 with FMA");
    case Needs::kAvx512:
      return unless(cpu.avx512, "this CPU has no AVX-512 (F, BW, DQ, VL)");
    case Needs::kAvx512Bf16:
      return unless(cpu.avx512_bf16, "this CPU has no AVX512_BF16");
    case Needs::kAvx512Vnni:
      return unless(cpu.avx512_vnni, "this CPU has no AVX512_VNNI");
    case Needs::kAmxBf16:
      return unless(cpu.amx_bf16,
                    cpu.amx_obstacle.empty() ? "this CPU has no AMX-BF16" : cpu.amx_obstacle);
    case Needs::kAmxBf16AndAvx512Bf16: {
      const std::string reason = refusal(Needs::kAmxBf16, cpu);
      return reason.empty() ? refusal(Needs::kAvx512Bf16, cpu) : reason;
    }
    case Needs::kAmxInt8:
      return unless(cpu.amx_int8,
                    cpu.amx_obstacle.empty() ? "this CPU has no AMX-INT8" : cpu.amx_obstacle);
    case Needs::kOneDnnBf16:
      return unless(cpu.avx512,
                    "oneDNN has no bf16 products for a CPU without AVX-512 (F, BW, DQ, VL)");
  }
  return {};
}

// One implementation of one operation: its name, what it needs, and how it enters a set.
struct Row {
  std::string_view implementation;
  Needs needs;
  void (*install)(KernelSet&);
  Needs bf16_needs = Needs::kNothing;  // what bf16 needs beyond that
};

// Why `cpu` cannot run the row in `precision`; empty: it can.
std::string refusal(const Row& row, const CpuFeatures& cpu, Precision precision) {
  const std::string reason = refusal(row.needs, cpu);
  if (!reason.empty() || precision == Precision::kFloat32) return reason;
  return refusal(row.bf16_needs, cpu);
}

// Implementations with one name here compute the same bits. Vectors of 8 and 16 lanes do
// (simd/sixteen_lanes.h); what is not listed has bits of its own.
std::string_view arithmetic_of(std::string_view implementation, Precision precision) {
  struct Names {
    std::string_view implementation, f32, bf16;
  };
  static constexpr std::array<Names, 5> kShared = {{
      {"avx2", "vector", "vector"},
      {"avx512", "vector", "vector"},
      {"avx512vnni", "vector", "vector"},
      {"avx512bf16", "vector", "avx512bf16"},
      {"amx", "vector", "amx"},
  }};
  for (const Names& names : kShared) {
    if (names.implementation == implementation)
      return precision == Precision::kFloat32 ? names.f32 : names.bf16;
  }
  return implementation;
}

struct Table {
  std::string_view operation;
  std::vector<Row> rows;  // preferred first, the reference last
};

// The tables. docs/extending/kernel.md describes how to add a row.
const std::vector<Table>& tables() {
  static const std::vector<Table> all = {
      {"gemm",
       {
#if defined(__x86_64__)
           {"amx", Needs::kAmxBf16, [](KernelSet& set) { set.gemm = machine_kernels().amx.gemm; }},
           {"onednn_amx", Needs::kAmxBf16,
            [](KernelSet& set) { set.gemm = machine_kernels().onednn.gemm; }},
           {"avx512bf16", Needs::kAvx512Bf16,
            [](KernelSet& set) { set.gemm = machine_kernels().avx512bf16.gemm; }},
           {"avx512", Needs::kAvx512,
            [](KernelSet& set) { set.gemm = machine_kernels().avx512.gemm; }},
           {"avx2", Needs::kAvx2, [](KernelSet& set) { set.gemm = machine_kernels().avx2.gemm; }},
#endif
           {.implementation = "onednn",
            .needs = Needs::kNothing,
            .install = [](KernelSet& set) { set.gemm = machine_kernels().onednn.gemm; },
            .bf16_needs = Needs::kOneDnnBf16},
           {"reference", Needs::kNothing, [](KernelSet& set) { set.gemm = &kGemmReference; }},
       }},
      {"attention",
       {
#if defined(__x86_64__)
           {"amx", Needs::kAmxBf16AndAvx512Bf16,
            [](KernelSet& set) { set.attention = machine_kernels().amx.attention; }},
           {"avx512bf16", Needs::kAvx512Bf16,
            [](KernelSet& set) { set.attention = machine_kernels().avx512bf16.attention; }},
           {"avx512", Needs::kAvx512,
            [](KernelSet& set) { set.attention = machine_kernels().avx512.attention; }},
           {"avx2", Needs::kAvx2,
            [](KernelSet& set) { set.attention = machine_kernels().avx2.attention; }},
#endif
           {"reference", Needs::kNothing,
            [](KernelSet& set) { set.attention = &kAttentionReference; }},
       }},
      {"rotary",
       {
#if defined(__x86_64__)
           {"avx512", Needs::kAvx512,
            [](KernelSet& set) { set.rotary = machine_kernels().avx512.rotary; }},
           {"avx2", Needs::kAvx2,
            [](KernelSet& set) { set.rotary = machine_kernels().avx2.rotary; }},
#endif
           {"reference", Needs::kNothing, [](KernelSet& set) { set.rotary = &kRotaryReference; }},
       }},
      {"layer_norm",
       {
#if defined(__x86_64__)
           {"avx512", Needs::kAvx512,
            [](KernelSet& set) { set.layer_norm = machine_kernels().avx512.layer_norm; }},
           {"avx2", Needs::kAvx2,
            [](KernelSet& set) { set.layer_norm = machine_kernels().avx2.layer_norm; }},
#endif
           {"reference", Needs::kNothing,
            [](KernelSet& set) { set.layer_norm = &kLayerNormReference; }},
       }},
      {"activation",
       {
#if defined(__x86_64__)
           {"avx512", Needs::kAvx512,
            [](KernelSet& set) { set.activation = machine_kernels().avx512.activation; }},
           {"avx2", Needs::kAvx2,
            [](KernelSet& set) { set.activation = machine_kernels().avx2.activation; }},
#endif
           {"reference", Needs::kNothing,
            [](KernelSet& set) { set.activation = &kActivationReference; }},
       }},
      {"dropout",
       {
#if defined(__x86_64__)
           {"avx512", Needs::kAvx512,
            [](KernelSet& set) { set.dropout = machine_kernels().avx512.dropout; }},
           {"avx2", Needs::kAvx2,
            [](KernelSet& set) { set.dropout = machine_kernels().avx2.dropout; }},
#endif
           {"reference", Needs::kNothing, [](KernelSet& set) { set.dropout = &kDropoutReference; }},
       }},
      {"optimizer",
       {
#if defined(__x86_64__)
           {"avx512", Needs::kAvx512,
            [](KernelSet& set) { set.optimizer = machine_kernels().avx512.optimizer; }},
           {"avx2", Needs::kAvx2,
            [](KernelSet& set) { set.optimizer = machine_kernels().avx2.optimizer; }},
#endif
           {"reference", Needs::kNothing,
            [](KernelSet& set) { set.optimizer = &kOptimizerReference; }},
       }},
      {"reduce",
       {
#if defined(__x86_64__)
           {"avx512", Needs::kAvx512,
            [](KernelSet& set) { set.reduce = machine_kernels().avx512.reduce; }},
           {"avx2", Needs::kAvx2,
            [](KernelSet& set) { set.reduce = machine_kernels().avx2.reduce; }},
#endif
           {"reference", Needs::kNothing, [](KernelSet& set) { set.reduce = &kReduceReference; }},
       }},
      {"int8",
       {
#if defined(__x86_64__)
           {"amx", Needs::kAmxInt8, [](KernelSet& set) { set.int8 = machine_kernels().amx.int8; }},
           {"avx512vnni", Needs::kAvx512Vnni,
            [](KernelSet& set) { set.int8 = machine_kernels().avx512vnni.int8; }},
           {"avx2", Needs::kAvx2, [](KernelSet& set) { set.int8 = machine_kernels().avx2.int8; }},
#endif
           {"reference", Needs::kNothing, [](KernelSet& set) { set.int8 = &kInt8Reference; }},
       }},
  };
  return all;
}

const Table* find_table(std::string_view operation) {
  for (const Table& table : tables()) {
    if (table.operation == operation) return &table;
  }
  return nullptr;
}

const Row* find_row(const Table& table, std::string_view implementation) {
  for (const Row& row : table.rows) {
    if (row.implementation == implementation) return &row;
  }
  return nullptr;
}

std::string join(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string implementation_names(const Table& table) {
  std::vector<std::string> names;
  for (const Row& row : table.rows) names.emplace_back(row.implementation);
  return join(names);
}

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    std::string_view part = text.substr(0, end);
    while (part.starts_with(' ')) part.remove_prefix(1);
    while (part.ends_with(' ')) part.remove_suffix(1);
    if (!part.empty()) parts.emplace_back(part);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

using Forced = std::map<std::string_view, const Row*>;

// The target that a row must support: the products of `precision` on `cpu`.
struct Target {
  const CpuFeatures& cpu;
  Precision precision;
};

void check_runs(const Table& table, const Row& row, const Target& target) {
  const std::string reason = refusal(row, target.cpu, target.precision);
  if (reason.empty()) return;
  raise<ConfigError>("TANDEM_KERNELS asks for {}={}, but {}; found: {}", table.operation,
                     row.implementation, reason, target.cpu.describe());
}

// "name" alone: every operation that has an implementation of that name.
void force_everywhere(std::string_view implementation, const Target& target, Forced& forced) {
  bool known = false;
  for (const Table& table : tables()) {
    const Row* row = find_row(table, implementation);
    if (row == nullptr) continue;
    known = true;
    check_runs(table, *row, target);
    forced[table.operation] = row;
  }
  if (known) return;
  std::string lists;
  for (const Table& table : tables())
    lists += fmt::format("; {}: {}", table.operation, implementation_names(table));
  raise<ConfigError>("TANDEM_KERNELS: no operation has an implementation '{}'. There are{}",
                     implementation, lists.substr(1));
}

void force_one(std::string_view operation, std::string_view implementation, const Target& target,
               Forced& forced) {
  const Table* table = find_table(operation);
  if (table == nullptr) {
    raise<ConfigError>("TANDEM_KERNELS: unknown operation '{}'; the operations are {}", operation,
                       join(operations()));
  }
  const Row* row = find_row(*table, implementation);
  if (row == nullptr) {
    raise<ConfigError>("TANDEM_KERNELS: {} has no implementation '{}'; it has {}", operation,
                       implementation, implementation_names(*table));
  }
  check_runs(*table, *row, target);
  forced[table->operation] = row;
}

Forced parse_overrides(const Target& target, std::string_view overrides) {
  Forced forced;
  for (const std::string& item : split(overrides, ',')) {
    const std::size_t equals = item.find('=');
    if (equals == std::string::npos) {
      force_everywhere(item, target, forced);
    } else {
      force_one(std::string_view(item).substr(0, equals), std::string_view(item).substr(equals + 1),
                target, forced);
    }
  }
  return forced;
}

using PeakLoop = double (*)(std::size_t iterations);

PeakLoop peak_loop(const KernelSet& kernels, PeakType type) {
  switch (type) {
    case PeakType::kF32:
      return kernels.gemm->peak_f32;
    case PeakType::kBf16:
      return kernels.gemm->peak_bf16;
    case PeakType::kInt8:
      return kernels.int8->peak;
  }
  raise<InvalidArgument>("unknown type of a peak: {}", static_cast<int>(type));
}

// How many iterations fill about `duration`: one takes 8 cycles of vector instructions, 64 of
// tiles.
std::size_t iterations_in(PeakLoop loop, std::chrono::duration<double> duration) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kProbe = 500;
  loop(kProbe);  // wakes the units
  const auto start = Clock::now();
  loop(kProbe);
  const std::chrono::duration<double> probe = Clock::now() - start;
  return std::max<std::size_t>(1, static_cast<std::size_t>(kProbe * (duration / probe)));
}

}  // namespace

KernelSet select_kernels(const CpuFeatures& cpu, std::string_view overrides, Precision precision) {
  const Forced forced = parse_overrides({cpu, precision}, overrides);
  KernelSet set;
  for (const Table& table : tables()) {
    KernelChoice choice;
    choice.operation = table.operation;
    const auto found = forced.find(table.operation);
    choice.forced = found != forced.end();
    for (const Row& row : table.rows) {
      std::string reason = refusal(row, cpu, precision);
      const bool chosen = choice.forced ? found->second == &row : reason.empty();
      if (chosen) {
        choice.implementation = row.implementation;
        row.install(set);
        break;
      }
      if (!reason.empty())
        choice.refusals.push_back({std::string(row.implementation), std::move(reason)});
    }
    set.choices_.push_back(std::move(choice));
  }
  return set;
}

std::string_view KernelSet::implementation(std::string_view operation) const {
  for (const KernelChoice& choice : choices_) {
    if (choice.operation == operation) return choice.implementation;
  }
  raise<InvalidArgument>("unknown operation '{}'; the operations are {}", operation,
                         join(operations()));
}

std::string KernelSet::signature() const {
  std::string text;
  for (const KernelChoice& choice : choices_) {
    text +=
        fmt::format("{}{}={}", text.empty() ? "" : ",", choice.operation, choice.implementation);
  }
  return text;
}

std::string KernelSet::arithmetic(Precision precision) const {
  std::string text;
  for (const KernelChoice& choice : choices_) {
    // Products of 8-bit integers are exact in a job of bf16, too.
    const Precision of_operands = choice.operation == "int8" ? Precision::kFloat32 : precision;
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", choice.operation,
                        arithmetic_of(choice.implementation, of_operands));
  }
  return text;
}

std::vector<Implementation> implementations(std::string_view operation, const CpuFeatures& cpu,
                                            Precision precision) {
  const Table* table = find_table(operation);
  if (table == nullptr) {
    raise<InvalidArgument>("unknown operation '{}'; the operations are {}", operation,
                           join(operations()));
  }
  std::vector<Implementation> rows;
  for (const Row& row : table->rows) {
    rows.push_back({std::string(row.implementation), refusal(row, cpu, precision)});
  }
  return rows;
}

std::vector<std::string> operations() {
  std::vector<std::string> names;
  for (const Table& table : tables()) names.emplace_back(table.operation);
  return names;
}

PeakFlops measure_peak_flops(const Context& ctx, PeakType type) {
  using Clock = std::chrono::steady_clock;
  const PeakLoop loop = peak_loop(ctx.kernels, type);
  const std::size_t iterations = iterations_in(loop, std::chrono::microseconds(40));
  // Many chunks a thread, so that waking the threads and dealing the last chunk are small compared
  // with the work.
  const auto chunks = static_cast<std::size_t>(ctx.threads.num_threads()) * 32;
  PeakFlops peak;
  double total_flops = 0;
  double total_seconds = 0;
  // Short rounds: the first ones wake the threads and the vector units.
  constexpr int kWaking = 3;
  const auto deadline = Clock::now() + std::chrono::milliseconds(15);
  for (int round = 0; round <= kWaking || Clock::now() < deadline; ++round) {
    std::vector<double> flops(chunks);
    const auto start = Clock::now();
    ctx.threads.parallel_for(chunks,
                             [&](std::size_t chunk, int) { flops[chunk] = loop(iterations); });
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    double total = 0;
    for (const double f : flops) total += f;
    peak.best = std::max(peak.best, total / seconds);
    if (round < kWaking) continue;
    total_flops += total;
    total_seconds += seconds;
  }
  peak.mean = total_flops / total_seconds;
  return peak;
}

}  // namespace tandem::kernels
