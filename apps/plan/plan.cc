// `tandem plan`: how long a step will take on a cluster, what of it is communication, how much
// memory it needs and how it scales, before the cluster exists.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "apps/bench/data.h"
#include "apps/bench/random_batch.h"
#include "apps/command/command_line.h"
#include "apps/command/commands.h"
#include "apps/plan/cost_model.h"
#include "apps/plan/node_model.h"
#include "apps/plan/profile.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/core/thread_pool.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;
using plan::Cluster;
using plan::MachineProfile;
using plan::Prediction;
using plan::Workload;

constexpr double kGiB = 1 << 30;

struct Options {
  std::string model = "bert-base";
  std::size_t batch = 12;
  std::size_t seq = 384;
  std::string lengths = "padded";
  std::string task = "question-answering";
  std::string dtype = "bf16";
  std::vector<int> nodes = {1};
  int ranks_per_node = 1;
  double link_gbits = 0;  // 0: not given
  double latency_microseconds = 50;
  std::string profile;
  std::string node, topology;
  bool unbound = false;
  bool measure = false;
  std::string write_profile;
  int threads = 0;  // 0: the cores divided among the ranks
  int rounds = 5;
  bool json = false;
  double failures_hours = 0;  // 0: not asked
  double absence_seconds = 300;
  double loss_seconds = 2.5;
  double join_seconds = 0.3;

  bool bf16() const { return dtype == "bf16"; }
  bool several_nodes() const {
    return std::any_of(nodes.begin(), nodes.end(), [](int n) { return n > 1; });
  }
};

void add_workload(CLI::App& app, Options& options) {
  app.add_option("--model", options.model,
                 fmt::format("{}, or a directory with a config.json",
                             fmt::join(bench::model_names(), ", ")))
      ->capture_default_str();
  app.add_option("--batch", options.batch, "sequences of a rank's batch")
      ->capture_default_str()
      ->check(whole_number_in(1, 65536));
  app.add_option("--seq", options.seq, "tokens of a sequence")
      ->capture_default_str()
      ->check(whole_number_in(1, 65536));
  app.add_option("--lengths", options.lengths, bench::kLengthsHelp)
      ->capture_default_str()
      ->check(CLI::IsMember(bench::length_names()));
  app.add_option("--task", options.task, "what the model's head is for")
      ->capture_default_str()
      ->check(CLI::IsMember(bench::head_names()));
  app.add_option("--dtype", options.dtype, "of training")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
}

void add_cluster(CLI::App& app, Options& options) {
  app.add_option("--nodes", options.nodes, "nodes of the cluster; several numbers: a line for each")
      ->delimiter(',')
      ->check(whole_number_in(1, 65536));
  app.add_option("--ranks-per-node", options.ranks_per_node, "ranks of a node")
      ->capture_default_str()
      ->check(whole_number_in(1, 1024));
  app.add_option("--link", options.link_gbits, "Gbit/s of a node, in each direction")
      ->check(number_in(0.001, 1e6));
  app.add_option("--latency", options.latency_microseconds, "µs of a message, one way")
      ->capture_default_str()
      ->check(number_in(0.0, 1e7));
}

void add_measurement(CLI::App& app, Options& options) {
  auto* profile =
      app.add_option("--profile", options.profile, "JSON file with the speed of a rank");
  auto* node =
      app.add_option("--node", options.node,
                     "JSON file with the speed of a node that is not here: its cores, the memory "
                     "of its sockets and their links")
          ->excludes(profile);
  auto* topology =
      app.add_option("--topology", options.topology,
                     "sockets, memory domains, cores and hardware threads of --node, in hwloc's "
                     "notation: 'pack:2 numa:4 core:14 pu:2'")
          ->needs(node);
  node->needs(topology);
  app.add_flag("--unbound", options.unbound, "ranks of --node without binding to cores")
      ->needs(node);
  app.add_flag("--measure", options.measure,
               "measure --ranks-per-node ranks on this machine, all at once")
      ->excludes(profile)
      ->excludes(node);
  app.add_option("--write_profile", options.write_profile, "where the measured profile is written");
  app.add_option("--threads", options.threads,
                 "threads of a measured rank; not given: the cores divided among the ranks")
      ->check(whole_number_in(1, 4096));
  app.add_option("--rounds", options.rounds, "measured steps")
      ->capture_default_str()
      ->check(whole_number_in(1, 100000));
}

void add_failures(CLI::App& app, Options& options) {
  app.add_option(
         "--failures", options.failures_hours,
         "hours between two failures of one node: adds the goodput of an elastic job, whose "
         "survivors continue (docs/elastic.md)")
      ->check(number_in(1e-3, 1e9));
  app.add_option("--absence", options.absence_seconds,
                 "seconds until a failed node is replaced and level")
      ->capture_default_str()
      ->check(number_in(0, 1e9));
  app.add_option("--loss", options.loss_seconds,
                 "seconds without progress after a loss, in addition to half a step")
      ->capture_default_str()
      ->check(number_in(0, 1e6));
  app.add_option("--join", options.join_seconds, "seconds without progress when a node joins")
      ->capture_default_str()
      ->check(number_in(0, 1e6));
}

void add_options(CLI::App& app, Options& options) {
  add_workload(app, options);
  add_cluster(app, options);
  add_measurement(app, options);
  add_failures(app, options);
  app.add_flag("--json", options.json, "one JSON object instead of lines");
}

void check(const Options& options) {
  const auto fail = [](std::string_view message) {
    throw ConfigError(std::string(message), /*usage=*/true);
  };
  if (!options.measure && options.profile.empty() && options.node.empty()) {
    fail(
        "the speed of a rank is unknown; pass --profile FILE, --node FILE, or --measure to measure "
        "it here");
  }
  if (!options.write_profile.empty() && !options.measure) {
    fail("--write_profile writes what --measure measured: give --measure too");
  }
  if (options.several_nodes() && options.link_gbits == 0) {
    fail("several nodes need --link, the Gbit/s of a node's network");
  }
}

std::vector<std::uint32_t> lengths_of(const Options& options) {
  return bench::named_lengths(options.lengths, options.batch, options.seq);
}

Workload workload_of(const Options& options, const models::ModelConfig& config) {
  bench::RandomBatch task(config,
                          options.bf16() ? nn::Precision::kBfloat16 : nn::Precision::kFloat32,
                          lengths_of(options), bench::head_of(options.task));
  Workload workload;
  workload.activations = task.plan_training(options.batch);
  for (const std::uint32_t length : lengths_of(options)) workload.tokens += length;
  workload.flops = task.training_flops();
  workload.layers = config.num_hidden_layers;
  workload.elements = task.layout().trained_size();
  const bool has_positions = config.family->positions != nn::Positions::kNone;
  const std::size_t rows = config.vocab_size + config.type_vocab_size +
                           (has_positions ? config.max_position_embeddings : 0);
  workload.embedding_elements = (rows + 2) * config.embedding_width();  // the layer norm has two
  workload.bf16_elements = options.bf16() ? task.layout().bf16_size() : 0;
  return workload;
}

MachineProfile profile_of(const Options& options, const models::ModelConfig& config,
                          const Workload& workload, const Environment& environment) {
  if (!options.node.empty()) {
    return plan::profile_of_node(plan::parse_node(read_file(options.node), options.node),
                                 launch::described_machine(options.topology),
                                 options.ranks_per_node, !options.unbound, workload);
  }
  if (!options.measure) return plan::parse_profile(read_file(options.profile), options.profile);
  const int threads = options.threads > 0 ? options.threads
                                          : std::max(1, available_cores() / options.ranks_per_node);
  fmt::print(stderr,
             "tandem plan: measuring {} rank{} with {} thread{} each: the processor's peak, then "
             "{} step{} of {} with a batch of {} x {}\n",
             options.ranks_per_node, options.ranks_per_node == 1 ? "" : "s", threads,
             threads == 1 ? "" : "s", options.rounds, options.rounds == 1 ? "" : "s", options.model,
             options.batch, options.seq);
  const MachineProfile profile = plan::measure_profile({.config = config,
                                                        .bf16 = options.bf16(),
                                                        .lengths = lengths_of(options),
                                                        .head = bench::head_of(options.task),
                                                        .ranks = options.ranks_per_node,
                                                        .threads = threads,
                                                        .rounds = options.rounds},
                                                       environment);
  if (!options.write_profile.empty()) {
    write_file(options.write_profile, plan::to_json(profile).dump(2) + "\n");
  }
  return profile;
}

ordered_json to_json(const Cluster& cluster, const Workload& workload, const Prediction& p) {
  return {{"nodes", cluster.nodes},
          {"ranks", cluster.world_size()},
          {"seconds_per_step", p.step},
          {"seconds_per_step_without_overlap", p.step_unhidden},
          {"compute_seconds", p.compute},
          {"reduction_seconds", p.reduction},
          {"network_seconds", p.wire},
          {"exposed_network_seconds", p.exposed},
          {"optimizer_seconds", p.optimizer},
          {"communication_share", p.communication_share},
          {"tokens_per_second", p.tokens_per_second},
          {"efficiency", p.efficiency},
          {"busiest_node_sent_bytes", p.traffic.node_sent},
          {"busiest_node_received_bytes", p.traffic.node_received},
          {"even_node_bytes", plan::even_node_bytes(workload.elements, cluster)},
          {"busiest_rank_messages", p.traffic.rank_messages},
          {"slice_owners", p.traffic.slice_owners},
          {"memory_of_node_bytes",
           {{"weights", p.memory.weights},
            {"moments", p.memory.moments},
            {"gradients", p.memory.gradients},
            {"messages", p.memory.messages},
            {"activations", p.memory.activations},
            {"total", p.memory.node()}}}};
}

constexpr const char* kHeader =
    "   nodes    ranks   s/step  no overlap  comm %   tokens/s  effic. %  GB sent  GB even  owners "
    " "
    "GiB/node\n";

std::string line_of(const Cluster& cluster, const Workload& workload, const Prediction& p) {
  return fmt::format(
      "{:>8} {:>8} {:>8.3f} {:>11.3f} {:>7.1f} {:>10.0f} {:>9.1f} {:>8.2f} {:>8.2f} "
      "{:>7} {:>9.2f}\n",
      cluster.nodes, cluster.world_size(), p.step, p.step_unhidden, 100 * p.communication_share,
      p.tokens_per_second, 100 * p.efficiency, 1e-9 * p.traffic.node_sent,
      1e-9 * plan::even_node_bytes(workload.elements, cluster), p.traffic.slice_owners,
      p.memory.node() / kGiB);
}

std::string describe(const Options& options, const MachineProfile& profile) {
  return fmt::format(
      "{} {}x{} {} {}; a rank: {:.1f} GFLOP/s at best, {:.1f} % of it reached, optimizer {:.1f} "
      "GB/s, "
      "sums {:.1f} GB/s\n",
      options.model, options.batch, options.seq, options.lengths, options.dtype,
      1e-9 * profile.peak_flops, 100 * profile.share_of_peak, 1e-9 * profile.memory_bandwidth,
      1e-9 * profile.reduce_bandwidth);
}

// Goodput of an elastic job on this cluster.
double goodput_of(const Options& options, const MachineProfile& profile, const Cluster& cluster,
                  const Workload& workload, const Prediction& undisturbed) {
  membership::NodeFailures failures;
  failures.mtbf_seconds = options.failures_hours * 3600;
  failures.absence_seconds = options.absence_seconds;
  failures.loss_seconds = options.loss_seconds + undisturbed.step / 2;
  failures.join_seconds = options.join_seconds;
  return plan::goodput(profile, cluster, workload, failures);
}

std::string failures_line(const Options& options, int nodes, double goodput) {
  return fmt::format(
      "goodput on {} nodes, each failing every {:g} h: {:.2f} % of the undisturbed steps; {:.3g} "
      "failures a day\n",
      nodes, options.failures_hours, 100 * goodput, nodes * 24 / options.failures_hours);
}

constexpr const char* kNotes =
    "GB sent: by the busiest node in a step; even: if the gradient were dealt evenly to all ranks; "
    "owners: ranks that sum a part of it.\n"
    "Memory without program, data set and the kernels' scratch.\n";

models::ModelConfig model_of(const Options& options) {
  models::ModelConfig config = bench::model_of(options.model);
  if (options.seq > config.max_tokens()) {
    raise<ConfigError>("--seq is {}, but {} has {} positions", options.seq, options.model,
                       config.max_tokens());
  }
  return config;
}

// The same for people and for programs.
struct Answer {
  std::string text;
  ordered_json json;
};

Answer plan_clusters(const Options& options, const MachineProfile& profile,
                     const Workload& workload) {
  auto clusters = ordered_json::array();
  std::string text = describe(options, profile) + kHeader;
  std::string goodputs;
  for (const int nodes : options.nodes) {
    const Cluster cluster{.nodes = nodes,
                          .ranks_per_node = options.ranks_per_node,
                          .link_bandwidth = options.link_gbits * 1e9 / 8,
                          .latency = options.latency_microseconds * 1e-6};
    const Prediction prediction = plan::predict(profile, cluster, workload);
    clusters.push_back(to_json(cluster, workload, prediction));
    if (options.failures_hours > 0) {
      const double goodput = goodput_of(options, profile, cluster, workload, prediction);
      clusters.back()["goodput"] = goodput;
      goodputs += failures_line(options, nodes, goodput);
    }
    text += line_of(cluster, workload, prediction);
  }
  return {.text = text + kNotes + goodputs,
          .json = {{"model", options.model},
                   {"dtype", options.dtype},
                   {"parameters", workload.elements},
                   {"tokens_of_rank", workload.tokens},
                   {"flops_of_rank", workload.flops},
                   {"profile", plan::to_json(profile)},
                   {"clusters", std::move(clusters)}}};
}

}  // namespace

int run_plan(const Invocation& invocation) {
  Options options;
  CLI::App app(
      "Predicts the time of a training step, its share of communication, memory and scaling on a "
      "cluster.",
      "tandem plan");
  add_options(app, options);
  if (!parse_command(app, invocation.words)) return 0;
  check(options);
  const models::ModelConfig config = model_of(options);
  const Workload workload = workload_of(options, config);
  const MachineProfile profile = profile_of(options, config, workload, invocation.environment);
  const Answer answer = plan_clusters(options, profile, workload);
  const std::string text = options.json ? answer.json.dump(2) + "\n" : answer.text;
  std::fputs(text.c_str(), stdout);
  return 0;
}

}  // namespace tandem::apps
