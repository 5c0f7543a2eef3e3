// What comes to the port at which the ranks that are left meet again. Who does not know the
// listener's secret disturbs nobody: the host goes on waiting and ends the connection.
//
// The first byte of an input: 1: the hello at its beginning gets the secret; 2: the input begins
// after a right hello.
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "fuzz/waiting.h"
#include "support/hellos.h"
#include "support/stranger.h"
#include "tandem/core/error.h"
#include "tandem/rendezvous/reunion.h"

namespace {

using namespace tandem;
using namespace std::chrono_literals;
using rendezvous::ConnectionKind;
using rendezvous::FileDescriptor;
using rendezvous::RankHello;

constexpr rendezvous::Secret kSecret{1234567, 7654321};

// All live, and nothing else is known, until `stop`.
class Roster final : public rendezvous::Roster {
 public:
  explicit Roster(const std::atomic<bool>& stop) : stop_(stop) {}
  std::string describe(int rank) const override { return fmt::format("rank {}", rank); }
  bool gone(int) const override { return stop_; }
  std::string why_expelled() const override { return "the end"; }
  void expel(int, const std::string&) override { fuzz::require(false); }
  bool may_leave_behind() const override { return false; }

 private:
  const std::atomic<bool>& stop_;
};

// Rank 0 of three, which waits for the two others.
class Host {
 public:
  bool ended() const { return waiting_.ended(); }
  int port() const { return rendezvous::local_port(listener_); }

 private:
  void wait(const std::atomic<bool>& stop) {
    Roster roster(stop);
    const std::vector<rendezvous::Door> doors(3, {{"127.0.0.1"}, 1, 77, kSecret});
    rendezvous::ReunionOptions options;
    options.members = {0, 1, 2};
    options.loopback_only = true;
    rendezvous::Reunion reunion(listener_, doors, roster, options);
    try {
      (void)reunion.meet(rendezvous::Deadline(24h));
      fuzz::require(stop);    // one stranger is never two ranks
    } catch (const Error&) {  // the ranks disagree, or the end
    }
  }

  FileDescriptor listener_ = rendezvous::listen_tcp(true, 0);
  fuzz::Waiting waiting_{[this](const std::atomic<bool>& stop) { wait(stop); }};
};

std::string with_secret(std::string_view input) {
  auto hello = rendezvous::read_as<RankHello>(input);
  hello.secret = kSecret;
  return std::string(rendezvous::view_of(rendezvous::sealed(hello))) +
         std::string(input.substr(sizeof hello));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static std::unique_ptr<Host> host;
  if (size == 0 || size > 65536) return 0;
  const fuzz::MemoryLimit limit(8 * size + (std::size_t{1} << 20));
  if (!host || host->ended()) host = std::make_unique<Host>();
  std::string input(reinterpret_cast<const char*>(data) + 1, size - 1);
  const bool follows = (data[0] & 2) != 0;
  const bool knows = (data[0] & 1) != 0 && input.size() >= sizeof(RankHello);
  if (follows) input = testing::connection_hello(ConnectionKind::kReunion, kSecret, 1, 0) + input;
  if (!follows && knows) input = with_secret(input);
  const FileDescriptor stranger = fuzz::visit(*host, host->port());
  fuzz::require(static_cast<bool>(stranger));
  testing::say(stranger.get(), input);
  ::shutdown(stranger.get(), SHUT_WR);
  fuzz::require(testing::hear(stranger.get(), fuzz::kPatience).ended);
  if (follows || knows)
    fuzz::settle(*host, host->port());
  else
    fuzz::require(!host->ended());
  return 0;
}
