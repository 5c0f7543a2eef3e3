// Messages between two ranks.
#include "tandem/comm/collectives/communicator_state.h"
#include "tandem/core/error.h"

namespace tandem::comm {

// The end of a message that was just started is entered in the flight record, now or when it
// completes.
void Communicator::State::record_end(const Message& message, FlightRecorder::Ticket ticket) {
  if (message.done) return comm_context->recorder.end(ticket);
  message.recorder = &comm_context->recorder;
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
  const auto inside = s.comm_context->progress_thread.enter();
  s.check_open();
  s.check_peer(peer, "send");
  if (peer == rank()) raise<InvalidArgument>("send: rank {} cannot send to itself", peer);
  Header header = stream_header(type, count, data.size(), channel);
  header.sequence = s.streams[static_cast<std::size_t>(peer * kChannels + channel)].sent++;
  const auto ticket = s.comm_context->recorder.begin(
      {header.sequence, Operation::kSend, type, ReduceOp::kNone, peer, count});
  std::shared_ptr<const Message> message =
      s.comm_context->transport->send(s.world(peer), header, data);
  s.record_end(*message, ticket);
  s.has_outgoing();  // removes completed sends
  if (!message->done) s.outgoing.push_back(message);
  s.comm_context->progress_thread.note_message(message);
  return Request(std::move(message));
}

Request Communicator::start_receive_bytes(std::span<std::byte> data, DataType type,
                                          std::size_t count, int peer, int channel) {
  State& s = *state_;
  const auto inside = s.comm_context->progress_thread.enter();
  s.check_open();
  s.check_peer(peer, "receive");
  if (peer == rank()) raise<InvalidArgument>("receive: rank {} cannot receive from itself", peer);
  Header header = stream_header(type, count, data.size(), channel);
  header.sequence = s.streams[static_cast<std::size_t>(peer * kChannels + channel)].received++;
  const auto ticket =
      s.comm_context->recorder.begin({header.sequence, Operation::kSend, type, ReduceOp::kNone,
                                      peer, count, FlightRecorder::Kind::kReceive});
  std::shared_ptr<const Message> message =
      s.comm_context->transport->receive(s.world(peer), header, data);
  s.record_end(*message, ticket);
  s.comm_context->progress_thread.note_message(message);
  return Request(std::move(message));
}

}  // namespace tandem::comm
