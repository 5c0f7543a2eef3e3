#include "tandem/elastic/worker/packet.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <span>

#include "tandem/core/error.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::elastic {
namespace {

using net::append_text;
using net::PlainReader;

constexpr std::chrono::seconds kSendLimit{30};

PlainReader reader_of(std::string_view text) { return {text, kPacketProtocol.name}; }

}  // namespace

std::string record_text(const std::vector<double>& record) {
  return {reinterpret_cast<const char*>(record.data()), record.size() * sizeof(double)};
}

std::vector<double> record_from(std::string_view text) {
  if (text.size() % sizeof(double) != 0) raise<CommError>("a step's record is cut short");
  std::vector<double> record(text.size() / sizeof(double));
  std::copy(text.begin(), text.end(), reinterpret_cast<char*>(record.data()));
  return record;
}

std::string ready_text(const Computes& computes) {
  std::string text;
  append_text(text, computes.kernels);
  append_text(text, computes.fingerprint);
  append_text(text, computes.inputs);
  return text;
}

Computes computes_from(std::string_view text) {
  PlainReader reader = reader_of(text);
  Computes computes;
  computes.kernels = reader.text();
  computes.fingerprint = reader.text();
  computes.inputs = reader.text();
  return computes;
}

std::string to_text(const TrainingProgress& training_progress) {
  std::string text;
  append_text(text, training_progress.progress);
  for (const auto& record : training_progress.records) append_text(text, record_text(record));
  return text;
}

TrainingProgress training_progress_from(std::string_view text) {
  PlainReader reader = reader_of(text);
  TrainingProgress training_progress;
  training_progress.progress = reader.text();
  while (!reader.empty()) training_progress.records.push_back(record_from(reader.text()));
  return training_progress;
}

std::string to_text(const Briefing& briefing) {
  std::string text;
  for (const bool flag : {briefing.keeps, briefing.paused, briefing.one_node})
    text += net::view_of(static_cast<std::uint64_t>(flag ? 1 : 0));
  append_text(text, briefing.why);
  append_text(text, to_text(briefing.training_progress));
  append_text(text, to_text(briefing.arrived));
  return text;
}

Briefing briefing_from(std::string_view text) {
  PlainReader reader = reader_of(text);
  Briefing briefing;
  for (bool* flag : {&briefing.keeps, &briefing.paused, &briefing.one_node})
    *flag = reader.value<std::uint64_t>() != 0;
  briefing.why = reader.text();
  briefing.training_progress = training_progress_from(reader.text());
  briefing.arrived = training_progress_from(reader.text());
  return briefing;
}

void PacketSocket::send(const Packet& packet) const {
  const std::string bytes =
      net::encode_frame(kPacketProtocol, static_cast<std::uint32_t>(packet.kind),
                        {net::view_of(packet.view), net::view_of(packet.first),
                         net::view_of(packet.second), packet.text});
  if (net::send_all(socket_, std::as_bytes(std::span(bytes)), net::Deadline(kSendLimit)) !=
      net::IoStatus::kDone) {
    raise<CommError>("the other end of the line between an agent and its worker is gone");
  }
}

bool PacketSocket::read() { return !received_.read_from(socket_); }

std::optional<Packet> PacketSocket::take() {
  const std::optional<net::Frame> frame = received_.take();
  if (!frame) return std::nullopt;
  PlainReader reader = reader_of(frame->payload);
  Packet packet;
  packet.kind = static_cast<PacketKind>(frame->kind);
  packet.view = reader.value<std::uint64_t>();
  packet.first = reader.value<std::uint64_t>();
  packet.second = reader.value<std::uint64_t>();
  packet.text = reader.rest();
  return packet;
}

std::pair<net::FileDescriptor, net::FileDescriptor> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw io_error("cannot make", "a line to a worker", errno);
  return {net::FileDescriptor(ends[0]), net::FileDescriptor(ends[1])};
}

}  // namespace tandem::elastic
