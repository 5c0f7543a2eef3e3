// The two sides of the first meeting; exchange.cc decides who is which.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/rendezvous/exchange.h"
#include "tandem/rendezvous/siblings.h"

namespace tandem::rendezvous {

// Where rank 0 listens.
struct MeetingPoint {
  std::vector<std::string> hosts;  // names or addresses, the likeliest first
  int port = 0;
  std::uint64_t job = 0;  // rank 0 greets with it; 0: not known
};

// Calls `log` after 5 s of waiting and then every 30 s.
class Notices {
 public:
  explicit Notices(const ExchangeOptions& options) : log_(options.log) {}
  template <class Text>
  void maybe(const Deadline& deadline, Text text) {
    if (!log_ || deadline.elapsed_seconds() * 1000 < static_cast<double>(next_.count())) return;
    next_ += std::chrono::milliseconds(30000);
    log_(text());
  }

 private:
  const std::function<void(const std::string&)>& log_;
  std::chrono::milliseconds next_{5000};
};

// The others wait this much longer than rank 0, whose message knows which ranks are missing.
constexpr std::chrono::milliseconds kGrace{5000};
// A host that does not answer this long while the job starts has gone.
constexpr std::chrono::milliseconds kStartSilence{5000};

// What to add to the news that a connection has ended with this error number.
std::string_view silence_if(int error_number);

// Asked several times a second for as long as a rank waits for others, until all are ready; throws
// CommError when one of them will not come. May be empty.
using LookAround = std::function<void()>;

// A barrier of the process manager's, while nobody knows yet where the others are: the manager does
// not tell who has not come, so the ranks of a host look at each other. Throws CommError after
// options.timeout.
void wait_for_all(PmiClient& pmi, const Identity& identity, const ExchangeOptions& options,
                  SiblingWatch& watch, WaitingMark& mark);

Meeting receive_ranks(const Identity& identity, const std::string& card,
                      const ExchangeOptions& options, FileDescriptor listener, std::uint64_t job,
                      const LookAround& look_around = {});
Meeting join_rank_0(const Identity& identity, const std::string& card,
                    const ExchangeOptions& options, const MeetingPoint& point,
                    const LookAround& look_around = {});

// The same of a rank that has failed for `reason`. Throw what the others throw.
void tell_ranks(const Identity& identity, const std::string& reason, const ExchangeOptions& options,
                FileDescriptor listener);
void tell_rank_0(const Identity& identity, const std::string& reason,
                 const ExchangeOptions& options, const MeetingPoint& point);

}  // namespace tandem::rendezvous
