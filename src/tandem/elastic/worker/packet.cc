#include "tandem/elastic/worker/packet.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>

#include "tandem/core/error.h"

namespace tandem::elastic {
namespace {

constexpr std::uint32_t kMagic = 0x4b444e54;  // "TNDK"
constexpr std::uint64_t kMostText = std::uint64_t{1} << 30;
constexpr std::chrono::seconds kSendLimit{30};

struct Head {
  std::uint32_t magic = kMagic;
  std::uint32_t kind = 0;
  std::uint64_t view = 0;
  std::uint64_t first = 0;
  std::uint64_t second = 0;
  std::uint64_t bytes = 0;
};

template <class T>
void append(std::string& text, const T& value) {
  text.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Reads values from the front of a text.
class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::string_view take(std::uint64_t bytes) {
    if (bytes > text_.size()) raise<CommError>("a packet between agent and worker is cut short");
    const std::string_view result = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
    return result;
  }
  template <class T>
  T value() {
    T result;
    std::memcpy(&result, take(sizeof result).data(), sizeof result);
    return result;
  }
  std::string_view text() { return take(value<std::uint64_t>()); }
  bool empty() const { return text_.empty(); }

 private:
  std::string_view text_;
};

void append_text(std::string& to, std::string_view text) {
  append(to, static_cast<std::uint64_t>(text.size()));
  to += text;
}

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
  Reader reader(text);
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
  Reader reader(text);
  TrainingProgress training_progress;
  training_progress.progress = reader.text();
  while (!reader.empty()) training_progress.records.push_back(record_from(reader.text()));
  return training_progress;
}

std::string to_text(const Briefing& briefing) {
  std::string text;
  for (const bool flag : {briefing.keeps, briefing.paused, briefing.one_node})
    append(text, static_cast<std::uint64_t>(flag ? 1 : 0));
  append_text(text, briefing.why);
  append_text(text, to_text(briefing.training_progress));
  append_text(text, to_text(briefing.arrived));
  return text;
}

Briefing briefing_from(std::string_view text) {
  Reader reader(text);
  Briefing briefing;
  for (bool* flag : {&briefing.keeps, &briefing.paused, &briefing.one_node})
    *flag = reader.value<std::uint64_t>() != 0;
  briefing.why = reader.text();
  briefing.training_progress = training_progress_from(reader.text());
  briefing.arrived = training_progress_from(reader.text());
  return briefing;
}

void PacketSocket::send(const Packet& packet) const {
  const Head head{kMagic,        static_cast<std::uint32_t>(packet.kind),
                  packet.view,   packet.first,
                  packet.second, packet.text.size()};
  std::string bytes;
  bytes.reserve(sizeof head + packet.text.size());
  append(bytes, head);
  bytes += packet.text;
  if (net::send_all(socket_, std::as_bytes(std::span(bytes)), net::Deadline(kSendLimit)) !=
      net::IoStatus::kDone) {
    raise<CommError>("the other end of the line between an agent and its worker is gone");
  }
}

bool PacketSocket::read() {
  char buffer[65536];
  while (true) {
    const ssize_t count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
    if (count > 0) {
      received_.append(buffer, static_cast<std::size_t>(count));
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    return count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
  }
}

std::optional<Packet> PacketSocket::take() {
  Head head;
  if (received_.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, received_.data(), sizeof head);
  if (head.magic != kMagic || head.bytes > kMostText)
    raise<CommError>("what came over the line between an agent and its worker is not a packet");
  if (received_.size() < sizeof head + head.bytes) return std::nullopt;
  Packet packet{static_cast<PacketKind>(head.kind), head.view, head.first, head.second,
                received_.substr(sizeof head, head.bytes)};
  received_.erase(0, sizeof head + head.bytes);
  return packet;
}

std::pair<net::FileDescriptor, net::FileDescriptor> socket_pair() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    throw io_error("cannot make", "a line to a worker", errno);
  return {net::FileDescriptor(ends[0]), net::FileDescriptor(ends[1])};
}

}  // namespace tandem::elastic
