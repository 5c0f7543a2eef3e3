#include "tandem/comm/network/peer_info.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>

#include "tandem/core/ascii.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

constexpr std::string_view kForm = "5";

// Reads the fields of a peer info from its text.
class Reader {
 public:
  Reader(std::string_view text, std::size_t rank) : rest_(text), rank_(rank) {}

  std::string line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) not_a_peer_info();
    std::string found(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return found;
  }

  template <class T>
  T number(T least, T most) {
    const std::string text = line();
    T value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < least || value > most)
      not_a_peer_info();
    return value;
  }

  std::uint64_t bits() { return number<std::uint64_t>(0, ~std::uint64_t{0}); }
  std::string rest() const { return std::string(rest_); }

  [[noreturn]] void not_a_peer_info() const {
    raise<CommError>(
        "rank {} introduced itself in a form this version does not know: run the same tandem "
        "everywhere",
        rank_);
  }

 private:
  std::string_view rest_;
  std::size_t rank_;
};

}  // namespace

std::string write_peer_info(const PeerInfo& peer_info) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}", kForm, peer_info.host,
                     peer_info.host_key, peer_info.node_key, peer_info.pid_namespace, peer_info.pid,
                     peer_info.port, peer_info.listener, peer_info.secret.high,
                     peer_info.secret.low, fmt::join(peer_info.addresses, ","), peer_info.settings);
}

PeerInfo read_peer_info(std::string_view text, std::size_t rank) {
  Reader reader(text, rank);
  if (reader.line() != kForm) reader.not_a_peer_info();
  PeerInfo peer_info;
  peer_info.host = reader.line();
  peer_info.host_key = reader.line();
  peer_info.node_key = reader.line();
  peer_info.pid_namespace = reader.line();
  peer_info.pid = reader.number<int>(1, 1 << 30);
  peer_info.port = reader.number<int>(1, 65535);
  peer_info.listener = reader.bits();
  peer_info.secret.high = reader.bits();
  peer_info.secret.low = reader.bits();
  peer_info.addresses = names_of_list(reader.line());
  peer_info.settings = reader.rest();
  return peer_info;
}

}  // namespace tandem::comm
