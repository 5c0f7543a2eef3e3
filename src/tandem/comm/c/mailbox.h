// Messages with tags over a stream without tags. Each message is preceded by an envelope with its
// tag, type and count. Messages that arrive before their receive are kept here. Internal.
//
// Thread-safety: one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <vector>

#include "tandem/comm/communicator.h"

namespace tandem::comm::c {

struct Envelope {
  std::int64_t tag = 0;
  std::uint64_t count = 0;
  std::uint32_t type = 0;
  std::uint32_t padding = 0;
};

// A posted receive.
struct PostedReceive {
  int peer = 0;  // negative: any rank
  int tag = 0;   // negative: any tag
  DataType type = DataType::kByte;
  std::size_t count = 0;
  std::byte* data = nullptr;
  bool done = false;
  int source = -1;  // the sender, when done
};

// A message being sent; `envelope` is sent first and stays valid until the end.
struct PostedSend {
  Envelope envelope;
  Request head;
  Request body;
  bool done() const { return head.done() && body.done(); }
};

class Mailbox {
 public:
  explicit Mailbox(Communicator& communicator);

  std::unique_ptr<PostedSend> send(const std::byte* data, DataType type, std::size_t count,
                                   int peer, int tag);
  // `posted` is done when its message is in its buffer.
  void receive(const std::shared_ptr<PostedReceive>& posted);
  void forget(const std::shared_ptr<PostedReceive>& posted);
  // Delivers the messages that have arrived. Throws CommError if type or count differ from the
  // receive.
  void advance();
  bool expects_something() const { return !posted_.empty() || in_flight_ > 0; }
  // The request that a wait for a message of `peer` waits for next.
  const Request& next_of(int peer) const;

 private:
  // A message without a receive.
  struct Early {
    Envelope envelope;
    std::vector<std::byte> data;
  };
  struct Incoming {
    Envelope envelope;
    Request request;  // for the envelope, then for the data that follow it
    enum { kIdle, kEnvelope, kBody } state = kIdle;
    std::shared_ptr<PostedReceive> into;  // otherwise into the last of `early`
    std::deque<Early> early;
  };

  bool is_wanted(int peer) const;
  std::shared_ptr<PostedReceive> take_match(int peer, const Envelope& envelope);
  bool take_early(PostedReceive& posted, int peer);
  bool step(int peer);
  void start_body(int peer);
  void end_body(int peer);
  void check(const PostedReceive& posted, int peer, const Envelope& envelope) const;

  Communicator& communicator_;
  std::vector<Incoming> peers_;
  std::list<std::shared_ptr<PostedReceive>> posted_;
  int in_flight_ = 0;
};

}  // namespace tandem::comm::c
