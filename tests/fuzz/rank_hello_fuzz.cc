// What comes to the port at which rank 0 waits for the others, up to the end of the connection. Two
// jobs wait, one with a token. Who does not know a job's secrets disturbs it in no way: rank 0 goes
// on waiting, ends the connection and takes no more memory than an introduction may have.
//
// The first byte of an input tells whether the stranger proves itself (odd: what follows is read as
// a hello and a card, and gets the right proof; the rest is said after it).
#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <thread>

#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "fuzz/waiting.h"
#include "support/hellos.h"
#include "support/stranger.h"
#include "tandem/core/error.h"
#include "tandem/rendezvous/exchange.h"

namespace {

using namespace tandem;
using namespace std::chrono_literals;
using rendezvous::FileDescriptor;
namespace wire = rendezvous::wire;

// Rank 0 of a job of two.
class RankZero {
 public:
  explicit RankZero(const std::string& token) : identity_(identity_of(token)) {}

  bool ended() const { return waiting_.ended(); }
  bool accepted() const { return accepted_; }
  const std::string& token() const { return identity_.job_token; }

  int port() const { return identity_.master_port; }

 private:
  struct Stop {};
  static rendezvous::Identity identity_of(const std::string& token) {
    rendezvous::Identity identity;
    identity.local_size = identity.world_size = 2;
    identity.job_token = token;
    const FileDescriptor any = rendezvous::listen_tcp(true, 0);
    identity.master_port = rendezvous::local_port(any);
    return identity;
  }
  void wait(const std::atomic<bool>& stop) {
    rendezvous::ExchangeOptions options;
    options.timeout = 24h;
    options.check = [&stop] {
      if (stop) throw Stop();
    };
    try {
      rendezvous::Meeting meeting = rendezvous::exchange_cards(identity_, "card", options);
      accepted_ = true;
      meeting.vigil->finish(rendezvous::Deadline(2s));
    } catch (const Error&) {  // says why the job cannot start
    } catch (const Stop&) {
    }
  }

  rendezvous::Identity identity_;
  std::atomic<bool> accepted_{false};
  fuzz::Waiting waiting_{[this](const std::atomic<bool>& stop) { wait(stop); }};
};

struct Introduction {
  std::string bytes;
  bool right = false;  // of the job's second rank
};

Introduction introduce(std::string_view input, const RankZero& rank, const FileDescriptor& at) {
  const bool proves = !input.empty() && (input.front() & 1) != 0;
  input.remove_prefix(input.empty() ? 0 : 1);
  if (input.size() < sizeof(wire::Hello)) return {std::string(input), false};
  if (!proves) {  // with right checksums, so that it is looked at
    const auto hello = wire::read_as<wire::Hello>(input);
    const std::string_view rest = input.substr(sizeof hello);
    return {
        std::string(wire::view_of(wire::sealed_hello(hello, rest.substr(0, hello.card_bytes)))) +
            std::string(rest),
        false};
  }
  const testing::Heard greeting = testing::hear(at.get(), fuzz::kPatience, sizeof(wire::Greeting));
  fuzz::require(greeting.bytes.size() == sizeof(wire::Greeting));
  const auto hello = wire::read_as<wire::Hello>(input);
  input.remove_prefix(sizeof hello);
  const std::string_view card = input.substr(0, hello.card_bytes);
  const bool right = hello.magic == wire::kMagic && hello.version == wire::kVersion &&
                     hello.world_size == 2 && hello.rank == 1;
  return {testing::proved_hello(hello, rank.token(),
                                wire::read_as<wire::Greeting>(greeting.bytes).nonce, card) +
              std::string(input.substr(card.size())),
          right && card.size() <= wire::kMaxCardBytes};
}

void meet(std::unique_ptr<RankZero>& rank, const std::string& token, std::string_view input) {
  if (!rank || rank->ended()) rank = std::make_unique<RankZero>(token);
  const FileDescriptor stranger = fuzz::visit(*rank, rank->port());
  fuzz::require(static_cast<bool>(stranger));
  const bool proves = !input.empty() && (input.front() & 1) != 0;
  const Introduction introduction = introduce(input, *rank, stranger);
  testing::say(stranger.get(), introduction.bytes);
  ::shutdown(stranger.get(), SHUT_WR);
  fuzz::require(testing::hear(stranger.get(), fuzz::kPatience).ended);
  if (proves) fuzz::settle(*rank, rank->port());
  fuzz::require(!rank->accepted() || introduction.right);
  fuzz::require(proves || !rank->ended());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  // Before the ranks, so that what gives them random numbers ends after them.
  [[maybe_unused]] static const rendezvous::Nonce first = rendezvous::make_nonce();
  static std::unique_ptr<RankZero> open;
  static std::unique_ptr<RankZero> closed;
  if (size > 65536) return 0;
  const fuzz::MemoryLimit limit(8 * size + (std::size_t{1} << 20));
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  meet(open, "", input);
  meet(closed, "a secret", input);
  return 0;
}
