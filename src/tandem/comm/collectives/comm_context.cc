#include "tandem/comm/collectives/comm_context.h"

#include "tandem/comm/network/plugin_transport.h"
#include "tandem/comm/network/stream_transport.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

// The transport of a rank without peers.
class NoTransport final : public Transport {
 public:
  std::string describe() const override { return "nothing"; }
  std::shared_ptr<const Message> send(int, const Header&, std::span<const std::byte>) override {
    raise<InvalidArgument>("a rank without peers cannot send");
  }
  std::shared_ptr<const Message> receive(int, const Header&, std::span<std::byte>) override {
    raise<InvalidArgument>("a rank without peers cannot receive");
  }
  bool progress(std::chrono::microseconds) override { return false; }
  bool closed(int) const override { return true; }
};

// This host's address as seen by the others: that of a connection that left the host, if there is
// one.
std::string address_on_the_route(const std::vector<net::FileDescriptor>& connections) {
  std::string address;
  for (const net::FileDescriptor& connection : connections) {
    if (!connection) continue;
    address = net::own_address(connection);
    if (!address.starts_with("127.") && address != "::1") break;
  }
  return address;
}

// Writes the flight record into `folder` and returns its path.
using WriteRecord = std::function<std::filesystem::path(const std::string& why)>;

WriteRecord record_writer(const FlightRecorder& recorder, std::filesystem::path folder, Peer self) {
  return [&recorder, folder = std::move(folder), self = std::move(self)](const std::string& why) {
    return recorder.write(folder, fmt::format("{}-rank{}-{}", self.host, self.rank, self.pid),
                          fmt::format("flight record of {}\n{}", self.describe(), why));
  };
}

Monitor::Options monitor_options(int rank, const Options& options, const FlightRecorder& recorder,
                                 std::shared_ptr<const DataPaths> paths) {
  Monitor::Options result;
  result.rank = rank;
  result.host_timeout = options.host_timeout;
  result.data_paths = std::move(paths);
  result.stall_timeout = options.stall_timeout;
  result.failure_grace = options.failure_grace;
  result.recorder = &recorder;
  result.on_failure = options.on_failure;
  return result;
}

}  // namespace

CommContext::CommContext(Peer alone)
    : peers{std::move(alone)},
      failure(Failure::Wakes::kNobody),
      monitor(std::make_unique<Monitor>(peers, std::vector<net::FileDescriptor>(1), failure,
                                        Monitor::Options())),
      first_transport(std::make_unique<NoTransport>()),
      transport(std::make_unique<NoTransport>()),
      life(*this, /*among_others=*/false),
      progress_thread(*this) {}

CommContext::CommContext(int own, Mesh mesh, const MeshOptions& route, const Options& options)
    : rank(own),
      peers(std::move(mesh.peers)),
      network(std::move(mesh.network)),
      source_address(address_on_the_route(mesh.data)),
      local_sockets(std::move(mesh.local)),
      shrink_endpoint{std::move(mesh.listener), std::move(mesh.listen_addresses),
                      route.loopback_only, route.interface},
      membership(std::move(mesh.membership)),
      first_transport(std::make_unique<NoTransport>()),
      life(*this, /*among_others=*/true),
      progress_thread(*this) {
  const auto paths = std::make_shared<DataPaths>();
  Monitor::Options watch = monitor_options(rank, options, recorder, paths);
  if (!options.flight_record_folder.empty()) {
    const WriteRecord write = record_writer(recorder, options.flight_record_folder, self());
    failure.set_postscript([this, write] {
      const auto path = write(failure.message());
      return path.empty() ? "" : fmt::format("; the last operations are in {}", path.native());
    });
    watch.on_record_request = [write] { write("asked for by a signal"); };
  }
  monitor = std::make_unique<Monitor>(peers, std::move(mesh.control), failure, std::move(watch));
  transport = std::make_unique<StreamTransport>(std::move(mesh.data), peers, rank, *monitor,
                                                failure, paths);
}

StreamTransport& CommContext::streams() { return dynamic_cast<StreamTransport&>(*transport); }

void CommContext::use_plugin(PluginFabric plugin, std::chrono::milliseconds timeout) {
  auto of_plugin =
      std::make_unique<PluginTransport>(std::move(plugin), peers, rank, timeout, *monitor, failure);
  first_transport = std::exchange(transport, std::move(of_plugin));
}

void CommContext::end() {
  const bool with_plugin = dynamic_cast<PluginTransport*>(transport.get()) != nullptr;
  // A plugin's library may still have to deliver messages that count as sent; tcp leaves that to
  // the kernel.
  if (with_plugin) transport = std::make_unique<NoTransport>();
  monitor->send_goodbye();
  if (!life.failed()) membership.leave();
  transport = std::make_unique<NoTransport>();
  first_transport = std::make_unique<NoTransport>();
  life.among_others_.store(false, std::memory_order_release);
  monitor->stop();
  local_sockets.clear();
  shrink_endpoint.listener.reset();
}

// ---- liveness ----

bool Life::failed() const { return comm_context_.failure.is_set(); }

std::string Life::failure_message() const {
  return failed() ? comm_context_.failure.message() : "";
}

void Life::throw_if_failed() const {
  if (failed()) comm_context_.failure.raise_failure("");
}

void Life::abort(std::string_view reason) noexcept {
  if (!among_others()) return;
  comm_context_.monitor->report(
      fmt::format("{} gave up: {}", comm_context_.self().describe(), reason));
}

}  // namespace tandem::comm
