// Messages between two ranks.
#include "tandem/comm/api/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {

// The end of a message that was just started is entered in the flight record, now or when it
// completes.
void Communicator::State::record_end(const Message& message, FlightRecorder::Ticket ticket) {
  if (message.done) return fabric->recorder.end(ticket);
  message.recorder = &fabric->recorder;
  message.ticket = ticket;
}

Header Communicator::stream_header(DataType type, std::size_t count, std::size_t bytes,
                                   int channel) const {
  Header header;
  header.channel = state_->channel_number(1 + channel);
  header.operation = Operation::kSend;
  header.type = type;
  header.count = count;
  header.bytes = bytes;
  return header;
}

Request Communicator::start_send_bytes(std::span<const std::byte> data, DataType type,
                                       std::size_t count, int peer, int channel) {
  State& s = *state_;
  const auto inside = s.fabric->helper.enter();
  s.check_open();
  s.check_peer(peer, "send");
  if (peer == rank()) raise<InvalidArgument>("send: rank {} cannot send to itself", peer);
  Header header = stream_header(type, count, data.size(), channel);
  header.sequence = s.streams[static_cast<std::size_t>(peer * kChannels + channel)].sent++;
  const auto ticket = s.fabric->recorder.begin(
      {header.sequence, Operation::kSend, type, ReduceOp::kNone, peer, count});
  std::shared_ptr<const Message> message = s.fabric->transport->send(s.world(peer), header, data);
  s.record_end(*message, ticket);
  s.has_outgoing();  // removes completed sends
  if (!message->done) s.outgoing.push_back(message);
  s.fabric->helper.note_message(message);
  return Request(std::move(message));
}

Request Communicator::start_receive_bytes(std::span<std::byte> data, DataType type,
                                          std::size_t count, int peer, int channel) {
  State& s = *state_;
  const auto inside = s.fabric->helper.enter();
  s.check_open();
  s.check_peer(peer, "receive");
  if (peer == rank()) raise<InvalidArgument>("receive: rank {} cannot receive from itself", peer);
  Header header = stream_header(type, count, data.size(), channel);
  header.sequence = s.streams[static_cast<std::size_t>(peer * kChannels + channel)].received++;
  const auto ticket =
      s.fabric->recorder.begin({header.sequence, Operation::kSend, type, ReduceOp::kNone, peer,
                                count, FlightRecorder::Kind::kReceive});
  std::shared_ptr<const Message> message =
      s.fabric->transport->receive(s.world(peer), header, data);
  s.record_end(*message, ticket);
  s.fabric->helper.note_message(message);
  return Request(std::move(message));
}

}  // namespace tandem::comm
