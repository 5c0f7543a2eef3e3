#include "tandem/comm/network/transport.h"

#include "tandem/comm/algorithms/call.h"
#include "tandem/core/error.h"

namespace tandem::comm {

std::string describe(const Header& header) {
  Call call;
  call.operation = header.operation;
  call.type = header.type;
  call.op = header.op;
  call.root = header.root;
  call.count = header.count;
  std::string text = describe(call, header.sequence);
  if (header.operation == Operation::kSend) {
    // Every communicator of a context has one channel for collectives and kChannels for messages.
    text += fmt::format(" on channel {}", header.channel % (kChannels + 1) - 1);
  }
  return text;
}

}  // namespace tandem::comm
