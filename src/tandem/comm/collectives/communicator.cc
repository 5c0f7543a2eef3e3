// Lifetime of a communicator: start, identity of the ranks, end. The collectives are in
// collectives.cc, messages between two ranks in messages.cc, waits in progress.cc.
#include "tandem/comm/communicator.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/comm/network/plugin_fabric.h"
#include "tandem/comm/texts.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > 8) text += ", …";
  return text;
}

MeshOptions mesh_options(const Options& options, bool loopback_only, const std::string& interface) {
  MeshOptions result;
  result.timeout = options.timeout;
  result.host_timeout = options.host_timeout;
  result.loopback_only = loopback_only;
  result.interface = interface;
  result.node_id = options.node_id;
  result.settings = fmt::format(
      "transport (--ddp_backend, CCL_ATL_TRANSPORT)={}\nalgorithms (CCL_ALLREDUCE …)={}",
      options.transport.name, options.selection.describe());
  return result;
}

}  // namespace

void read_limits_of_silence(const Environment& environment, Options& options) {
  constexpr long kMost = 1000000;
  if (const auto seconds = environment.get_int("TANDEM_HOST_TIMEOUT", 1, kMost))
    options.host_timeout = std::chrono::seconds(*seconds);
  if (const auto seconds = environment.get_int("TANDEM_STALL_TIMEOUT", 0, kMost))
    options.stall_timeout = std::chrono::seconds(*seconds);
}

// ---- start and end ----

std::unique_ptr<Communicator> Communicator::create(const rendezvous::Identity& identity,
                                                   Options options) {
  rendezvous::BootstrapOptions bootstrap_options;
  bootstrap_options.timeout = options.timeout;
  bootstrap_options.log = options.log;
  bootstrap_options.stall_timeout = options.stall_timeout;
  // A process manager ends the other ranks itself.
  if (!identity.pmi_fd) bootstrap_options.late_ranks = rendezvous::kLateRanks;
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->rank = identity.rank;
  state->size = identity.world_size;
  // Hydra's process manager serves a process only once: if an MPI is loaded, the ranks bootstrap
  // through it.
  std::unique_ptr<PluginFabric> plugin;
  if (state->size > 1 && state->options.transport.is_mpi()) {
    plugin = std::make_unique<PluginFabric>(state->options.transport, state->rank, state->size,
                                            state->options.timeout, "");
  }
  bool meets = false;
  const rendezvous::Bootstrap bootstrap =
      [&, mpi = plugin.get()](const std::string& peer_info) -> rendezvous::BootstrapResult {
    meets = true;
    if (mpi == nullptr)
      return rendezvous::exchange_peer_info(identity, peer_info, bootstrap_options);
    std::vector<rendezvous::Met> met;
    for (std::string& text : mpi->exchange(peer_info)) met.push_back({std::move(text), ""});
    return met;
  };
  try {
    return connect(std::move(state), bootstrap, identity.loopback(), identity.interface,
                   std::move(plugin));
  } catch (const Error& error) {
    if (!meets) rendezvous::report_failure(identity, error.what(), bootstrap_options);
    throw;
  }
}

std::unique_ptr<Communicator> Communicator::create(int rank, int world_size,
                                                   const rendezvous::Bootstrap& bootstrap,
                                                   bool loopback_only, Options options,
                                                   const std::string& interface) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->rank = rank;
  state->size = world_size;
  return connect(std::move(state), bootstrap, loopback_only, interface, nullptr);
}

std::unique_ptr<Communicator> Communicator::connect(std::unique_ptr<State> state,
                                                    const rendezvous::Bootstrap& bootstrap,
                                                    bool loopback_only,
                                                    const std::string& interface,
                                                    std::unique_ptr<PluginFabric> plugin) {
  state->members.resize(static_cast<std::size_t>(state->size));
  std::iota(state->members.begin(), state->members.end(), 0);
  if (state->size == 1) return alone(std::move(state));
  const MeshOptions route = mesh_options(state->options, loopback_only, interface);
  state->comm_context = std::make_shared<CommContext>(
      state->rank, connect_mesh(state->rank, state->size, bootstrap, route), route, state->options);
  std::unique_ptr<Communicator> communicator = finish(std::move(state));
  State& own = *communicator->state_;
  own.open_node_streams();
  if (own.options.transport.is_plugin()) communicator->use_plugin(std::move(plugin));
  own.tune(*communicator);
  own.start_worker(*communicator);
  communicator->forget_operations();
  return communicator;
}

std::unique_ptr<Communicator> Communicator::alone(std::unique_ptr<State> state) {
  Peer self;
  self.host = net::host_name();
  self.pid = ::getpid();
  state->comm_context = std::make_shared<CommContext>(std::move(self));
  state->group_nodes();
  state->kernels =
      &kernels::select_combine(kernels::CpuFeatures::detect(), state->options.combine_kernels);
  return std::unique_ptr<Communicator>(new Communicator(std::move(state)));
}

// The ranks have connected over tcp, with all its errors and deadlines; now they exchange their
// addresses in the library.
void Communicator::use_plugin(std::unique_ptr<PluginFabric> plugin) {
  const State& s = *state_;
  try {
    if (!plugin) {
      plugin = std::make_unique<PluginFabric>(s.options.transport, s.rank, s.size,
                                              s.options.timeout, s.comm_context->source_address);
    }
    plugin->connect(all_gather_texts(*this, plugin->address()));
  } catch (const Error& error) {
    life().abort(error.what());
    throw;
  }
  s.comm_context->use_plugin(std::move(*plugin), s.options.timeout);
  send_challenges();
}

// The bootstrap is not an operation of the user; errors count only those.
void Communicator::forget_operations() {
  state_->sequence = 0;
  state_->identify(mix(state_->identity, 0));
  state_->comm_context->operations = 0;
  std::fill(state_->streams.begin(), state_->streams.end(), State::StreamCounters());
}

// Libraries connect when the first message is sent, and both sides must be polling then, not inside
// a kernel. The lower rank of a pair sends first, because libfabric's tcp can lose one of two
// simultaneous connections. An unreachable rank is an error here, at the start.
void Communicator::send_challenges() {
  std::vector<Request> requests;
  const std::span<const std::byte> nothing;
  for (int peer = rank() + 1; peer < size(); ++peer) {
    requests.push_back(start_send(nothing, peer));
    requests.push_back(start_receive(std::span<std::byte>(), peer));
  }
  for (int peer = 0; peer < rank(); ++peer) {
    receive(std::span<std::byte>(), peer);
    requests.push_back(start_send(nothing, peer));
  }
  for (const Request& request : requests) wait(request);
}

// The state that all communicators need once they have connections and members.
std::unique_ptr<Communicator> Communicator::finish(std::unique_ptr<State> state) {
  state->group_nodes();
  state->plan_sums();
  state->limits = Limits::fixed(static_cast<int>(state->node_members().size()),
                                static_cast<int>(state->nodes.size()));
  state->tuning = "fixed";
  state->streams.resize(static_cast<std::size_t>(state->size * kChannels));
  state->kernels =
      &kernels::select_combine(kernels::CpuFeatures::detect(), state->options.combine_kernels);
  std::unique_ptr<Communicator> communicator(new Communicator(std::move(state)));
  communicator->state_->open_channel();
  communicator->state_->comm_context->progress_thread.add(*communicator->state_);
  return communicator;
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}

Communicator::~Communicator() {
  if (state_->closed) return;
  if (state_->context_number != 0) {
    close();
    return;
  }
  state_->comm_context->progress_thread.stop();
  life().abort("it ended without closing the communicator; look at its output");
}

void Communicator::close() {
  State& s = *state_;
  if (s.closed) return;
  s.closed = true;
  CommContext& comm_context = *s.comm_context;
  if (s.context_number == 0) comm_context.progress_thread.stop();
  const auto inside = comm_context.progress_thread.enter();
  comm_context.progress_thread.remove(s);
  s.pending.clear();
  s.outgoing.clear();
  s.channel.reset();
  s.channel_memory.reset();
  if (s.context_number == 0) return comm_context.end();
  comm_context.contexts &= ~(std::uint64_t{1} << s.context_number);
}

// ---- identity of the ranks ----

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size; }
int Communicator::local_rank() const { return state_->local_rank; }
const std::vector<Node>& Communicator::nodes() const { return state_->nodes; }
const Node& Communicator::node() const { return node_of(state_->rank); }
const Options& Communicator::options() const { return state_->options; }
Life& Communicator::life() const { return state_->comm_context->life; }
FlightRecorder& Communicator::flight_record() const { return state_->comm_context->recorder; }

const Node& Communicator::node_of(int rank) const {
  const int index = state_->node_index[static_cast<std::size_t>(rank)];
  return state_->nodes[static_cast<std::size_t>(index)];
}

std::string Communicator::describe_rank(int rank) const { return state_->peer(rank).describe(); }

std::string Communicator::describe() const {
  if (state_->size == 1) return fmt::format("1 rank on host {}", state_->self().host);
  std::string text = fmt::format("{} ranks on {} node{}:", state_->size, state_->nodes.size(),
                                 state_->nodes.size() == 1 ? "" : "s");
  for (std::size_t i = 0; i < state_->nodes.size() && i < 8; ++i) {
    const Node& node = state_->nodes[i];
    text += fmt::format("{} {} ({})", i == 0 ? "" : ",", node.host, list_of(node.members));
  }
  if (state_->nodes.size() > 8) text += ", …";
  text += fmt::format("; {} between ranks, shared memory within a node",
                      state_->comm_context->transport->describe());
  if (!state_->comm_context->network.empty()) {
    text += fmt::format("; between hosts through {}", state_->comm_context->network);
  }
  if (const std::string& progress_thread = state_->comm_context->progress_thread.describe();
      !progress_thread.empty())
    text += "; " + progress_thread;
  return text;
}

void Communicator::State::group_nodes() {
  std::map<std::string, int> index_of;
  for (int r = 0; r < size; ++r) {
    const Peer& one = peer(r);
    const auto [entry, is_new] = index_of.emplace(one.node_key, static_cast<int>(nodes.size()));
    if (is_new) {
      Node node;
      node.index = entry->second;
      node.host = one.host;
      nodes.push_back(node);
    }
    std::vector<int>& of_node = nodes[static_cast<std::size_t>(entry->second)].members;
    if (r == rank) local_rank = static_cast<int>(of_node.size());
    of_node.push_back(r);
    node_index.push_back(entry->second);
  }
}

// The sums that this node computes alone: the largest subtrees of the summation tree all of whose
// leaves are its ranks.
void Communicator::State::plan_sums() {
  const auto node_of_rank = [&](int r) { return node_index[static_cast<std::size_t>(r)]; };
  partials = owned_subtrees(size, node_of_rank);
  partial_tree = sum_program(0, size, partials);
  aligned = partials.size() == nodes.size();
  const int own = node_of_rank(rank);
  std::vector<Subtree> leaves;
  for (const int member : node_members()) leaves.push_back({member, member + 1, own});
  for (const Subtree& partial : partials) {
    if (partial.owner == own)
      node_programs.push_back(sum_program(partial.begin, partial.end, leaves));
  }
  rails = size;
  for (const Node& node : nodes) rails = std::min(rails, static_cast<int>(node.members.size()));
}

void Communicator::State::open_channel() {
  const std::vector<int>& group = node_members();
  if (group.size() < 2) return;
  if (static_cast<int>(group.size()) > NodeChannel::kMaxRanks) {
    raise<ConfigError>("{} ranks on one node ({}); there can be {} at most", group.size(),
                       self().host, NodeChannel::kMaxRanks);
  }
  may_spin = static_cast<int>(group.size()) <= available_cores();
  channel_memory = std::make_unique<NodeMemory>(share_memory(NodeChannel::segment_bytes()));
  std::vector<std::span<std::byte>> segments;
  for (std::size_t i = 0; i < group.size(); ++i)
    segments.push_back(channel_memory->segment(static_cast<int>(i)));
  const auto disagree = [this, group](int local, const std::string& own,
                                      const std::string& theirs) {
    fail(disagreement(peer(group[static_cast<std::size_t>(local)]).describe(), theirs,
                      self().describe(), own),
         "");
  };
  channel = std::make_shared<NodeChannel>(std::move(segments), local_rank, disagree);
}

// ---- waiting and failing ----

void Communicator::State::check_open() const {
  if (closed || (size > 1 && !comm_context->life.among_others()))
    raise<InvalidArgument>("the communicator is closed");
  comm_context->life.throw_if_failed();
}

void Communicator::State::check_peer(int peer, std::string_view operation) const {
  if (peer >= 0 && peer < size) return;
  raise<InvalidArgument>("{}: rank {} does not exist in a job of {} ranks", operation, peer, size);
}

void Communicator::State::fail(const std::string& message, const std::string& context) {
  comm_context->monitor->report(message);
  // The caller has not been notified: its next call throws.
  if (comm_context->progress_thread.inside()) throw CommError(message);
  const bool ours = comm_context->failure.message() == message;
  comm_context->failure.raise_failure(ours ? "" : context);
}

}  // namespace tandem::comm
