#include "tandem/launch/stand_ins.h"

#include <sched.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <set>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/text_layout.h"
#include "tandem/core/whole_number.h"
#include "tandem/launch/job_status.h"

namespace tandem::launch {
namespace {

using nlohmann::json;
using rendezvous::Deadline;
using rendezvous::FileDescriptor;
using std::chrono::milliseconds;

constexpr milliseconds kGoodbye{1000};
constexpr std::size_t kNumStreams = 2;  // stdout, stderr

struct Said {
  std::string bytes;
  std::vector<FileDescriptor> descriptors;
};

// Appends received bytes to `said`; false at the end of the connection.
bool receive(const FileDescriptor& socket, Said& said) {
  char bytes[4096];
  iovec part{bytes, sizeof bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(kNumStreams * sizeof(int))];
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t count = ::recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
  if (count < 0) return errno == EAGAIN || errno == EINTR;
  for (cmsghdr* part_of = CMSG_FIRSTHDR(&message); part_of != nullptr;
       part_of = CMSG_NXTHDR(&message, part_of)) {
    if (part_of->cmsg_level != SOL_SOCKET || part_of->cmsg_type != SCM_RIGHTS) continue;
    int numbers[kNumStreams];
    const std::size_t given =
        std::min<std::size_t>((part_of->cmsg_len - CMSG_LEN(0)) / sizeof(int), kNumStreams);
    std::memcpy(numbers, CMSG_DATA(part_of), given * sizeof(int));
    for (std::size_t i = 0; i < given; ++i) said.descriptors.emplace_back(numbers[i]);
  }
  said.bytes.append(bytes, static_cast<std::size_t>(count));
  return count > 0 && said.bytes.size() <= LineSocket::kMaxLine;
}

}  // namespace

std::string to_line(const StandInCard& card) {
  json text{{"worker", card.worker}, {"cpus", card.placement.cpus}};
  if (card.placement.threads) text["threads"] = *card.placement.threads;
  return text.dump();
}

StandInCard stand_in_card_from(std::string_view line, int count) {
  try {
    const json text = parse_json(line);
    StandInCard card;
    card.worker = whole_number<int>(text.at("worker"));
    card.placement.cpus = text.at("cpus").get<std::vector<int>>();
    if (text.contains("threads")) card.placement.threads = whole_number<int>(text.at("threads"));
    const auto& cpus = card.placement.cpus;
    const auto is_cpu = [](int cpu) { return cpu >= 0 && cpu < CPU_SETSIZE; };
    if (card.worker >= 0 && card.worker < count && std::all_of(cpus.begin(), cpus.end(), is_cpu))
      return card;
  } catch (const json::exception&) {
  }
  raise<DataError>("a process of mpirun says '{}', expected its place among {} workers",
                   printable(std::string(line)), count);
}

StandIns::StandIns(FileDescriptor listener, int count, milliseconds limit)
    : members_(static_cast<std::size_t>(count)) {
  const Deadline deadline(limit);
  for (int i = 0; i < count; ++i) take_in(listener, deadline);
  run_where_they_run();
}

void StandIns::take_in(const FileDescriptor& listener, const Deadline& deadline) {
  FileDescriptor socket;
  while (!socket && !deadline.passed()) {
    pollfd wait{listener.get(), POLLIN, 0};
    ::poll(&wait, 1, deadline.remaining_ms());
    socket =
        FileDescriptor(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (socket && !rendezvous::is_of_this_user(socket)) socket.reset();
  }
  Said said;
  bool more = static_cast<bool>(socket);
  while (more && said.bytes.find('\n') == std::string::npos && !deadline.passed()) {
    pollfd wait{socket.get(), POLLIN, 0};
    ::poll(&wait, 1, deadline.remaining_ms());
    more = receive(socket, said);
  }
  const std::size_t end = said.bytes.find('\n');
  if (end == std::string::npos || said.descriptors.size() != kNumStreams) {
    const auto here = std::count_if(members_.begin(), members_.end(),
                                    [](const Member& member) { return member.line.has_value(); });
    raise<CommError>(
        "{} of the {} processes that mpirun has started on this host have come within "
        "{:.0f} s; the next one {}",
        here, members_.size(), deadline.elapsed_seconds(),
        socket ? "has said nothing of use" : "has not");
  }
  const StandInCard card =
      stand_in_card_from(said.bytes.substr(0, end), static_cast<int>(members_.size()));
  Member& member = members_[static_cast<std::size_t>(card.worker)];
  if (member.line) raise<DataError>("two processes of mpirun are worker {}", card.worker);
  member.card = card;
  member.out = std::move(said.descriptors[0]);
  member.err = std::move(said.descriptors[1]);
  member.line.emplace(std::move(socket), said.bytes.substr(end + 1));
}

// The agent itself needs no CPU of its own.
void StandIns::run_where_they_run() const {
  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (const Member& member : members_) {
    for (const int cpu : member.card.placement.cpus) CPU_SET(static_cast<std::size_t>(cpu), &cpus);
  }
  if (CPU_COUNT(&cpus) > 0) ::sched_setaffinity(0, sizeof cpus, &cpus);
}

Placement StandIns::placement() const {
  Placement placement;
  for (const Member& member : members_) placement.workers.push_back(member.card.placement);
  return placement;
}

Console StandIns::console(int worker) const {
  const Member& member = members_[static_cast<std::size_t>(worker)];
  return {member.out.get(), member.err.get()};
}

void StandIns::add_to(std::vector<pollfd>& waits) const {
  for (const Member& member : members_) {
    if (member.line) waits.push_back(member.line->wait());
  }
}

StandIns::News StandIns::serve() {
  News news;
  for (Member& member : members_) {
    if (!member.line) continue;
    member.line->serve();
    while (const auto line = member.line->take_line()) hear(member, *line, news);
    if (member.line->ended().empty()) continue;
    member.line.reset();
    news.gone.push_back(member.card.worker);
  }
  return news;
}

// "end 15": mpirun forwards it to all, so the first request counts once and a later one again.
// "signal 10": for this worker.
void StandIns::hear(Member& member, const std::string& line, News& news) {
  const std::size_t blank = std::min(line.find(' '), line.size());
  const int number = std::atoi(line.c_str() + blank);
  if (number <= 0 || number >= NSIG) return;
  if (line.substr(0, blank) == "signal")
    return news.for_one.push_back({member.card.worker, number});
  if (line.substr(0, blank) != "end" || ++member.num_signals <= num_signals_) return;
  num_signals_ = member.num_signals;
  news.signals.push_back(number);
}

bool StandIns::any_left() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.line.has_value(); });
}

void StandIns::end(int code) noexcept {
  const Deadline deadline(kGoodbye);
  for (Member& member : members_) {
    if (!member.line) continue;
    member.line->send("ended " + std::to_string(code));
    while (!member.line->all_sent() && member.line->ended().empty() && !deadline.passed()) {
      pollfd wait = member.line->wait();
      ::poll(&wait, 1, deadline.remaining_ms());
      member.line->serve();
    }
  }
}

}  // namespace tandem::launch
