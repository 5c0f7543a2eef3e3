#include "tandem/net/interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"

namespace tandem::net {
namespace {

struct InterfaceAddress {
  std::string interface;
  std::string address;
  bool loopback = false;
  bool link_local = false;  // valid only with the interface, which other hosts do not know
};

bool is_link_local(const sockaddr* address) {
  if (address->sa_family == AF_INET6) {
    return IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr);
  }
  const auto bits = ntohl(reinterpret_cast<const sockaddr_in*>(address)->sin_addr.s_addr);
  return (bits >> 16) == 0xA9FE;  // 169.254/16, RFC 3927
}

std::vector<InterfaceAddress> addresses_of_all() {
  std::vector<InterfaceAddress> all;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return all;
  const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> release(list, &::freeifaddrs);
  for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
    if (entry->ifa_addr == nullptr || (entry->ifa_flags & IFF_UP) == 0) continue;
    const int family = entry->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    InterfaceAddress found{entry->ifa_name, numeric_address(entry->ifa_addr, length),
                           (entry->ifa_flags & IFF_LOOPBACK) != 0, is_link_local(entry->ifa_addr)};
    if (!found.address.empty()) all.push_back(std::move(found));
  }
  return all;
}

[[noreturn]] void no_such_interface(const std::string& choice, const std::string& name,
                                    const std::vector<InterfaceAddress>& all) {
  std::string present;
  for (const InterfaceAddress& entry : all) {
    if (entry.link_local) continue;
    present +=
        fmt::format("{}{} ({})", present.empty() ? "" : ", ", entry.interface, entry.address);
  }
  raise<ConfigError>(
      "the requested network interfaces are '{}' (TANDEM_IFNAME, CCL_KVS_IFACE or "
      "GLOO_SOCKET_IFNAME), but host {} has no interface '{}' that is up and has an address; it "
      "has {}",
      choice, host_name(), name, present.empty() ? "none" : present);
}

std::vector<std::string> named(const std::string& choice,
                               const std::vector<InterfaceAddress>& all) {
  std::vector<std::string> addresses;
  for (const std::string& name : names_of_list(choice)) {
    const std::size_t before = addresses.size();
    for (const InterfaceAddress& entry : all) {
      if (entry.interface == name && !entry.link_local) addresses.push_back(entry.address);
    }
    if (addresses.size() == before) no_such_interface(choice, name, all);
  }
  return addresses;
}

}  // namespace

std::vector<std::string> own_addresses(const std::string& choice) {
  const std::vector<InterfaceAddress> all = addresses_of_all();
  const bool exclude = choice.rfind('^', 0) == 0;
  if (!choice.empty() && !exclude) return named(choice, all);
  const auto excluded = names_of_list(exclude ? std::string_view(choice).substr(1) : "");
  std::vector<std::string> addresses;
  for (const InterfaceAddress& entry : all) {
    const bool unwanted =
        std::find(excluded.begin(), excluded.end(), entry.interface) != excluded.end();
    if (!entry.loopback && !entry.link_local && !unwanted) addresses.push_back(entry.address);
  }
  return addresses;
}

std::string own_interface(const FileDescriptor& socket) {
  const std::string text = own_address(socket);
  for (const InterfaceAddress& entry : addresses_of_all()) {
    if (entry.address == text) return entry.interface;
  }
  return "";
}

}  // namespace tandem::net
