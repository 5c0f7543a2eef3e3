// Life of a communicator: start, who is who, end. The collectives are in collectives.cc, messages
// between two ranks in messages.cc, waiting is in progress.cc.
#include "tandem/comm/api/communicator.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "tandem/comm/api/communicator_state.h"
#include "tandem/comm/network/plugin_transport.h"
#include "tandem/comm/network/stream_transport.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

constexpr std::chrono::milliseconds kLateRanks{10000};

std::string list_of(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size() && i < 8; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", ranks[i]);
  }
  if (ranks.size() > 8) text += ", …";
  return text;
}

// This host's address as the others reach it: that of a connection that left the host, if there is
// one.
std::string address_on_the_route(const std::vector<rendezvous::FileDescriptor>& connections) {
  std::string address;
  for (const rendezvous::FileDescriptor& connection : connections) {
    if (!connection) continue;
    address = rendezvous::own_address(connection);
    if (!address.starts_with("127.") && address != "::1") break;
  }
  return address;
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
  rendezvous::ExchangeOptions exchange_options;
  exchange_options.timeout = options.timeout;
  exchange_options.log = options.log;
  // A process manager ends the other ranks itself.
  if (!identity.pmi_fd) exchange_options.late_ranks = kLateRanks;
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->rank = identity.rank;
  state->size = identity.world_size;
  // Hydra's process manager serves a process once: when an MPI is loaded, the ranks meet through
  // it.
  std::unique_ptr<PluginFabric> plugin;
  if (state->size > 1 && state->options.transport.is_mpi()) {
    plugin = std::make_unique<PluginFabric>(state->options.transport, state->rank, state->size,
                                            state->options.timeout, "");
  }
  const rendezvous::Exchange exchange =
      [&, mpi = plugin.get()](const std::string& card) -> rendezvous::Meeting {
    if (mpi == nullptr) return rendezvous::exchange_cards(identity, card, exchange_options);
    std::vector<rendezvous::Met> met;
    for (std::string& text : mpi->exchange(card)) met.push_back({std::move(text), ""});
    return met;
  };
  return connect(std::move(state), exchange, identity.loopback(), identity.interface,
                 std::move(plugin));
}

std::unique_ptr<Communicator> Communicator::create(int rank, int world_size,
                                                   const rendezvous::Exchange& exchange,
                                                   bool loopback_only, Options options,
                                                   const std::string& interface) {
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->rank = rank;
  state->size = world_size;
  return connect(std::move(state), exchange, loopback_only, interface, nullptr);
}

std::unique_ptr<Communicator> Communicator::connect(std::unique_ptr<State> state,
                                                    const rendezvous::Exchange& exchange,
                                                    bool loopback_only,
                                                    const std::string& interface,
                                                    std::unique_ptr<PluginFabric> plugin) {
  const Options& options = state->options;
  if (state->size == 1) {
    Peer self;
    self.host = rendezvous::host_name();
    self.pid = ::getpid();
    state->fabric->peers = {self};
    state->members = {0};
    state->group_nodes();
    state->kernels =
        &kernels::select_combine(kernels::CpuFeatures::detect(), options.combine_kernels);
    return std::unique_ptr<Communicator>(new Communicator(std::move(state)));
  }
  MeshOptions mesh_options;
  mesh_options.timeout = options.timeout;
  mesh_options.host_timeout = options.host_timeout;
  mesh_options.loopback_only = loopback_only;
  mesh_options.interface = interface;
  mesh_options.node_id = options.node_id;
  mesh_options.settings = fmt::format(
      "transport (--ddp_backend, CCL_ATL_TRANSPORT)={}\nalgorithms (CCL_ALLREDUCE …)={}",
      options.transport.name, options.selection.describe());
  Mesh mesh = connect_mesh(state->rank, state->size, exchange, mesh_options);
  Fabric& fabric = *state->fabric;
  fabric.peers = std::move(mesh.peers);
  fabric.network = std::move(mesh.network);
  fabric.local_sockets = std::move(mesh.local);
  fabric.listener = std::move(mesh.listener);
  fabric.doors = std::move(mesh.doors);
  fabric.membership = std::move(mesh.membership);
  fabric.loopback_only = loopback_only;
  fabric.interface = interface;
  fabric.failure = std::make_unique<Failure>();
  fabric.recorder = std::make_unique<FlightRecorder>();
  const auto write_record =
      [recorder = fabric.recorder.get(), folder = options.flight_record_folder,
       self = fabric.peers[static_cast<std::size_t>(state->rank)]](const std::string& why) {
        return recorder->write(folder, fmt::format("{}-rank{}-{}", self.host, self.rank, self.pid),
                               fmt::format("flight record of {}\n{}", self.describe(), why));
      };
  if (!options.flight_record_folder.empty()) {
    fabric.failure->set_postscript([write_record, failure = fabric.failure.get()] {
      const auto path = write_record(failure->message());
      return path.empty() ? "" : fmt::format("; the last operations are in {}", path.native());
    });
  }
  Monitor::Options monitor_options;
  monitor_options.rank = state->rank;
  monitor_options.host_timeout = options.host_timeout;
  const auto data_paths = std::make_shared<DataPaths>();
  monitor_options.data_paths = data_paths;
  monitor_options.stall_timeout = options.stall_timeout;
  monitor_options.failure_grace = options.failure_grace;
  monitor_options.recorder = fabric.recorder.get();
  monitor_options.on_failure = options.on_failure;
  if (!options.flight_record_folder.empty()) {
    monitor_options.on_record_request = [write_record] { write_record("asked for by a signal"); };
  }
  fabric.monitor = std::make_unique<Monitor>(fabric.peers, std::move(mesh.control), *fabric.failure,
                                             std::move(monitor_options));
  const std::string source_address = address_on_the_route(mesh.data);
  auto transport =
      std::make_unique<StreamTransport>(std::move(mesh.data), fabric.peers, state->rank,
                                        *fabric.monitor, *fabric.failure, data_paths);
  StreamTransport& streams = *transport;
  fabric.transport = std::move(transport);
  state->members.resize(static_cast<std::size_t>(state->size));
  std::iota(state->members.begin(), state->members.end(), 0);
  const bool with_plugin = options.transport.is_plugin();
  std::unique_ptr<Communicator> communicator = finish(std::move(state));
  communicator->state_->open_node_streams(streams);
  if (with_plugin) communicator->use_plugin(std::move(plugin), source_address);
  communicator->state_->tune(*communicator);
  communicator->state_->start_worker(*communicator);
  communicator->forget_operations();
  return communicator;
}

// The ranks have met over tcp, with all its errors and deadlines; now they tell each other their
// addresses in the library.
void Communicator::use_plugin(std::unique_ptr<PluginFabric> plugin,
                              const std::string& source_address) {
  State& state = *state_;
  Fabric& fabric = *state.fabric;
  const TransportOptions& options = state.options.transport;
  try {
    if (!plugin) {
      plugin = std::make_unique<PluginFabric>(options, state.rank, state.size,
                                              state.options.timeout, source_address);
    }
    plugin->connect(all_gather_texts(plugin->address()));
  } catch (const Error& error) {
    abort(error.what());
    throw;
  }
  fabric.first_transport = std::exchange(
      fabric.transport,
      std::make_unique<PluginTransport>(std::move(*plugin), fabric.peers, state.rank,
                                        state.options.timeout, *fabric.monitor, *fabric.failure));
  greet_all();
}

// Meeting is no operation of the user; errors count those.
void Communicator::forget_operations() {
  state_->sequence = 0;
  state_->identify(mix(state_->identity, 0));
  state_->fabric->operations = 0;
  std::fill(state_->streams.begin(), state_->streams.end(), State::StreamCounters());
}

// Libraries connect when the first message is sent, and both sides must be looking then: not in the
// middle of a step. The lower rank of a pair speaks first, because two connections that meet
// half-way are where libfabric's tcp loses one. A rank that cannot be reached is an error here and
// now.
void Communicator::greet_all() {
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

// What all communicators need once they have a fabric and members.
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
  communicator->state_->fabric->states.push_back(communicator->state_.get());
  return communicator;
}

Communicator::Communicator(std::unique_ptr<State> state) : state_(std::move(state)) {}

Communicator::~Communicator() {
  if (state_->closed) return;
  if (state_->family != 0) {
    close();
    return;
  }
  state_->fabric->worker.reset();
  abort("it ended without closing the communicator; look at its output");
}

void Communicator::close() {
  State& s = *state_;
  if (s.closed) return;
  s.closed = true;
  if (s.family == 0) s.fabric->worker.reset();
  const auto inside = s.fabric->enter();
  std::erase(s.fabric->states, &s);
  s.pending.clear();
  s.outgoing.clear();
  s.channel.reset();
  s.channel_memory.reset();
  Fabric& fabric = *s.fabric;
  if (s.family != 0) {
    fabric.families &= ~(std::uint64_t{1} << s.family);
    return;
  }
  // A plugin's library may still have to deliver what counts as sent; tcp leaves that to the
  // kernel.
  if (fabric.first_transport) fabric.transport.reset();
  if (fabric.monitor) fabric.monitor->say_goodbye();
  if (!failed()) fabric.membership.leave();
  fabric.transport.reset();
  fabric.first_transport.reset();
  fabric.stream_memory.reset();
  fabric.monitor.reset();
  fabric.local_sockets.clear();
  fabric.listener.reset();
}

void Communicator::abort(std::string_view reason) noexcept {
  if (!state_->fabric->monitor) return;
  state_->fabric->monitor->report(fmt::format("{} gave up: {}", state_->self().describe(), reason));
}

// ---- who is who ----

int Communicator::rank() const { return state_->rank; }
int Communicator::size() const { return state_->size; }
int Communicator::local_rank() const { return state_->local_rank; }
const std::vector<Node>& Communicator::nodes() const { return state_->nodes; }
const Node& Communicator::node() const { return node_of(state_->rank); }
const Options& Communicator::options() const { return state_->options; }

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
                      state_->fabric->transport->describe());
  if (!state_->fabric->network.empty()) {
    text += fmt::format("; between hosts through {}", state_->fabric->network);
  }
  if (!state_->fabric->progress.empty()) text += "; " + state_->fabric->progress;
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

// What this node adds up for itself: the largest subtrees of the summation tree all of whose leaves
// are its ranks.
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
  lanes = size;
  for (const Node& node : nodes) lanes = std::min(lanes, static_cast<int>(node.members.size()));
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

bool Communicator::failed() const {
  return state_->fabric->failure && state_->fabric->failure->is_set();
}

std::string Communicator::failure_message() const {
  return failed() ? state_->fabric->failure->message() : "";
}

void Communicator::throw_if_failed() {
  if (failed()) state_->fabric->failure->raise_failure("");
}

void Communicator::State::check_open() const {
  if (closed || (size > 1 && !fabric->transport))
    raise<InvalidArgument>("the communicator is closed");
  if (fabric->failure && fabric->failure->is_set()) fabric->failure->raise_failure("");
}

void Communicator::State::check_peer(int peer, std::string_view operation) const {
  if (peer >= 0 && peer < size) return;
  raise<InvalidArgument>("{}: rank {} does not exist in a job of {} ranks", operation, peer, size);
}

void Communicator::State::fail(const std::string& message, const std::string& context) {
  fabric->monitor->report(message);
  // The caller has not been told: its next call does.
  if (fabric->worker_inside) throw CommError(message);
  const bool ours = fabric->failure->message() == message;
  fabric->failure->raise_failure(ours ? "" : context);
}

}  // namespace tandem::comm
