#include "tandem/rendezvous/bootstrap.h"

#include <algorithm>
#include <cerrno>
#include <cstdlib>

#include "tandem/core/error.h"
#include "tandem/net/address.h"
#include "tandem/net/interfaces.h"
#include "tandem/net/job_token.h"
#include "tandem/rendezvous/bootstrap_roles.h"
#include "tandem/rendezvous/bootstrap_wire.h"
#include "tandem/rendezvous/pmi.h"

namespace tandem::rendezvous {
namespace {

constexpr std::string_view kPmiKey = "tandem-rank-0";

// "secret,port,job,address,address" or, where the ranks have a token of their own, "-,port,…": PMI
// values hold no blanks and at most 1,024 bytes.
constexpr std::string_view kOwnToken = "-";

std::string address_text(const Identity& identity, std::string_view secret, int port,
                         std::uint64_t job) {
  std::string text = fmt::format("{},{},{}", secret, port, job);
  const auto add = [&](const std::string& host) {
    if (text.size() + host.size() < 1000) text += ',' + host;
  };
  if (identity.loopback()) {
    add("127.0.0.1");
    return text;
  }
  if (identity.master_addr_given) add(identity.master_addr);
  for (const std::string& address : net::own_addresses(identity.interface)) add(address);
  if (identity.interface.empty()) add(net::host_name());
  if (identity.local_size == identity.world_size) add("127.0.0.1");
  return text;
}

Rank0Address read_address_text(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  Rank0Address point;
  if (parts.size() >= 3) {
    point.port = std::atoi(parts[0].c_str());
    point.job = std::strtoull(parts[1].c_str(), nullptr, 10);
    point.hosts.assign(parts.begin() + 2, parts.end());
  }
  if (point.port <= 0) {
    raise<CommError>("the process manager returned a malformed address of rank 0: '{}'", text);
  }
  return point;
}

// The secret of a bootstrap address: 32 hexadecimal digits.
std::string make_secret() {
  std::string text;
  for (const unsigned char byte : net::make_nonce()) text += fmt::format("{:02x}", byte);
  return text;
}

// Only processes of the job can read the manager's key-value space, so it may carry a secret. A job
// without its own token is therefore closed to unauthenticated peers too.
BootstrapResult bootstrap_through_pmi(Identity identity, const std::string& peer_info,
                                      const BootstrapOptions& options) {
  PmiClient pmi(*identity.pmi_fd, options.timeout);
  const auto watch = std::make_shared<LocalProcessWatch>(options.stall_timeout, identity.variables);
  // Rank 0 waits for all ranks and notifies them; the other ranks report the failure of rank 0.
  const LookAround look_around = [watch, is_rank_0 = identity.rank == 0] {
    watch->check([&](const LocalProcess& rank) { return is_rank_0 || rank.rank == 0; });
  };
  WaitingMark mark;
  net::FileDescriptor listener;
  const auto job = wire::read_as<std::uint64_t>(wire::view_of(net::make_nonce()));
  if (identity.rank == 0) {
    listener =
        net::listen_tcp(identity.loopback(), identity.master_port_given ? identity.master_port : 0);
    const bool has_token = !identity.job_token.empty();
    const std::string secret = has_token ? std::string(kOwnToken) : make_secret();
    if (!has_token) identity.job_token = secret;
    pmi.put(kPmiKey, address_text(identity, secret, net::local_port(listener), job));
  }
  wait_for_all(pmi, identity, options, *watch, mark);
  BootstrapResult bootstrap_result;
  if (identity.rank == 0) {
    bootstrap_result =
        receive_ranks(identity, peer_info, options, std::move(listener), job, look_around);
  } else {
    const std::string text = pmi.get(kPmiKey);
    const std::size_t comma = std::min(text.find(','), text.size());
    if (identity.job_token.empty() && text.substr(0, comma) != kOwnToken)
      identity.job_token = text.substr(0, comma);
    bootstrap_result =
        join_rank_0(identity, peer_info, options,
                    read_address_text(text.substr(std::min(comma + 1, text.size()))), look_around);
  }
  bootstrap_result.membership = Membership(std::move(pmi));
  return bootstrap_result;
}

// Rank 0's address by MASTER_ADDR.
net::FileDescriptor listen_for_ranks(const Identity& identity) {
  const bool loopback = identity.loopback();
  const bool ipv6 = loopback && net::is_only_ipv6(identity.master_addr);
  return net::listen_tcp(loopback, identity.master_port, ipv6 ? AF_INET6 : AF_INET);
}

Rank0Address named_point(const Identity& identity) {
  return {{identity.master_addr}, identity.master_port, 0};
}

// Used if the launcher does not report which ranks have connected. Rank 0 knows that and notifies
// the others. The other ranks report rank 0, and ranks of their host that do not connect.
LookAround look_at_local_processes(const Identity& identity, const BootstrapOptions& options) {
  const auto watch = std::make_shared<LocalProcessWatch>(options.stall_timeout, identity.variables);
  return [watch, own = identity.rank] {
    watch->check([own](const LocalProcess& rank) {
      return rank.rank != own && (own == 0 || rank.rank == 0 || !rank.waits);
    });
  };
}

void warn_of_open_port(const Identity& identity, const BootstrapOptions& options) {
  if (!options.log || !identity.job_token.empty() || identity.loopback()) return;
  options.log(fmt::format(
      "no TANDEM_JOB_TOKEN: any process that can reach port {} of this host can join or disturb "
      "the job; "
      "give all ranks the same one, as with: export TANDEM_JOB_TOKEN=$(openssl rand -hex 16)",
      identity.master_port));
}

}  // namespace

void wait_for_all(PmiClient& pmi, const Identity& identity, const BootstrapOptions& options,
                  LocalProcessWatch& watch, WaitingMark& mark) {
  constexpr std::chrono::milliseconds kLook{500};
  const net::Deadline deadline(options.timeout);
  pmi.enter_barrier();
  while (!pmi.passed_barrier(std::chrono::milliseconds(deadline.remaining_ms(kLook)))) {
    watch.check([](const LocalProcess& rank) { return !rank.waits; });
    if (!deadline.passed()) continue;
    mark.stay();
    const std::string missing = watch.missing();
    raise<CommError>(
        "rank {} waited {:.1f} s until the process manager had seen all {} ranks: {}",
        identity.rank, deadline.elapsed_seconds(), identity.world_size,
        missing.empty() ? "one rank has not started, or runs another program" : missing);
  }
}

std::string_view silence_if(int error_number) {
  return error_number == ETIMEDOUT || error_number == EHOSTUNREACH ? ": its host is silent" : "";
}

BootstrapResult exchange_peer_info(const Identity& identity, const std::string& peer_info,
                                   const BootstrapOptions& options) {
  TANDEM_CHECK(peer_info.size() <= wire::kMaxPeerInfoBytes, "peer info of {} bytes",
               peer_info.size());
  if (!identity.distributed()) return BootstrapResult({{peer_info, ""}});
  if (identity.pmi_fd) return bootstrap_through_pmi(identity, peer_info, options);
  const WaitingMark mark;
  const LookAround look_around = look_at_local_processes(identity, options);
  if (identity.rank == 0) {
    warn_of_open_port(identity, options);
    return receive_ranks(identity, peer_info, options, listen_for_ranks(identity), 0, look_around);
  }
  return join_rank_0(identity, peer_info, options, named_point(identity), look_around);
}

void report_failure(const Identity& identity, const std::string& reason,
                    const BootstrapOptions& options) noexcept {
  if (!identity.distributed() || identity.ended_by_launcher) return;
  try {
    if (identity.rank == 0)
      return notify_ranks(identity, reason, options, listen_for_ranks(identity));
    notify_rank_0(identity, reason, options, named_point(identity));
  } catch (const std::exception& error) {
    if (options.log)
      options.log(fmt::format("the other ranks could not be notified: {}", error.what()));
  }
}

// "secret,port,job,address,address", the secret being the job's token.
RendezvousAddress open_bare_address(bool loopback_only) {
  RendezvousAddress address;
  address.listener = net::listen_tcp(loopback_only, 0);
  const auto job = wire::read_as<std::uint64_t>(wire::view_of(net::make_nonce()));
  address.text = fmt::format("{},{},{}", make_secret(), net::local_port(address.listener), job);
  return address;
}

std::string address_at(const std::string& bare_text, const std::string& host) {
  return bare_text + ',' + host;
}

RendezvousAddress open_rendezvous_address(const std::string& interface, std::size_t max_bytes) {
  RendezvousAddress address = open_bare_address(/*loopback_only=*/false);
  std::vector<std::string> hosts = net::own_addresses(interface);
  if (interface.empty()) hosts.push_back(net::host_name());
  hosts.emplace_back(
      "127.0.0.1");  // ranks of this host; another host's listener at this port does not know `job`
  for (const std::string& host : hosts) {
    if (address.text.size() + 1 + host.size() <= max_bytes) address.text += ',' + host;
  }
  return address;
}

BootstrapResult exchange_peer_info_at(RendezvousAddress address, int rank, int world_size,
                                      const std::string& peer_info,
                                      const BootstrapOptions& options) {
  TANDEM_CHECK(peer_info.size() <= wire::kMaxPeerInfoBytes, "peer info of {} bytes",
               peer_info.size());
  const std::size_t comma = address.text.find(',');
  if (comma != 2 * sizeof(net::Nonce) ||
      std::count(address.text.begin(), address.text.end(), ',') < 3) {
    raise<InvalidArgument>("malformed bootstrap address: found {} bytes", address.text.size());
  }
  if (world_size == 1) return BootstrapResult({{peer_info, ""}});
  Identity identity;
  identity.rank = rank;
  identity.world_size = world_size;
  identity.job_token = address.text.substr(0, comma);
  const Rank0Address point = read_address_text(address.text.substr(comma + 1));
  if (rank != 0) return join_rank_0(identity, peer_info, options, point, options.check);
  if (!address.listener)
    raise<InvalidArgument>(
        "the bootstrap needs a listener on rank 0: found none; call open_rendezvous_address() "
        "there");
  return receive_ranks(identity, peer_info, options, std::move(address.listener), point.job);
}

}  // namespace tandem::rendezvous
