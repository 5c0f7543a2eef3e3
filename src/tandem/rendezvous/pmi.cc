#include "tandem/rendezvous/pmi.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <thread>

#include "tandem/core/error.h"
#include "tandem/net/event_loop.h"
#include "tandem/net/socket.h"

namespace tandem::rendezvous {
namespace {

// PMI-1 allows 1,024 bytes and a value of its own length.
constexpr std::size_t kLongestLine = std::size_t{1} << 16;
constexpr std::chrono::milliseconds kFarewell{1000};
// Time between this rank's last message and the end of the others, in which each logs its state.
constexpr std::chrono::milliseconds kLastWords{400};

void send_line(int descriptor, const std::string& line) {
  const std::string message = line + "\n";
  for (std::size_t sent = 0; sent < message.size();) {
    // A socket in every Hydra; a pipe would raise SIGPIPE when the manager has died.
    ssize_t count = ::send(descriptor, message.data() + sent, message.size() - sent, MSG_NOSIGNAL);
    if (count < 0 && errno == ENOTSOCK) {
      count = ::write(descriptor, message.data() + sent, message.size() - sent);
    }
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      raise<CommError>("the process manager (PMI_FD={}) is gone: {}", descriptor,
                       std::strerror(errno));
    }
    sent += static_cast<std::size_t>(count);
  }
}

}  // namespace

PmiClient::PmiClient(int descriptor, std::chrono::milliseconds timeout)
    : descriptor_(descriptor), timeout_(timeout) {
  request("cmd=init pmi_version=1 pmi_subversion=1", "response_to_init");
  space_ = request("cmd=get_my_kvsname", "my_kvsname")["kvsname"];
}

void PmiClient::put(std::string_view key, std::string_view value) {
  request(fmt::format("cmd=put kvsname={} key={} value={}", space_, key, value), "put_result");
}

void PmiClient::enter_barrier() { send_line(descriptor_, "cmd=barrier_in"); }

bool PmiClient::passed_barrier(std::chrono::milliseconds timeout) {
  const auto line = next_line("cmd=barrier_in", timeout);
  if (line) fields_of(*line, "cmd=barrier_in", "barrier_out");
  return line.has_value();
}

std::string PmiClient::get(std::string_view key) {
  return request(fmt::format("cmd=get kvsname={} key={}", space_, key), "get_result")["value"];
}

void PmiClient::finalize() {
  timeout_ = std::min(timeout_, kFarewell);
  request("cmd=finalize", "finalize_ack");
}

void Membership::leave() noexcept {
  try {
    if (client_) client_->finalize();
  } catch (const Error&) {  // the manager is lost, or is busy ending the job
  }
  client_.reset();
}

void end_job(const Environment& environment, int exit_code) noexcept {
  try {
    const auto descriptor = environment.get_int("PMI_FD", 0, std::numeric_limits<int>::max());
    if (!descriptor) return;
    std::this_thread::sleep_for(kLastWords);
    send_line(static_cast<int>(*descriptor), fmt::format("cmd=abort exitcode={}", exit_code));
  } catch (const Error&) {  // no descriptor, or no reader: there is no manager to ask
  }
}

// One line out, one line back.
PmiClient::Fields PmiClient::request(const std::string& line, std::string_view expected_command) {
  send_line(descriptor_, line);
  const auto answer = next_line(line, timeout_);
  if (!answer) {
    raise<CommError>("the process manager (PMI_FD={}) did not answer '{}' within {:.1f} s",
                     descriptor_, line, std::chrono::duration<double>(timeout_).count());
  }
  return fields_of(*answer, line, expected_command);
}

// "cmd=… key=value …"; a value ends at the next blank.
PmiClient::Fields PmiClient::fields_of(const std::string& answer, std::string_view asked,
                                       std::string_view expected_command) const {
  Fields fields;
  std::string_view rest = answer;
  while (!rest.empty()) {
    const std::string_view item = rest.substr(0, rest.find(' '));
    rest.remove_prefix(std::min(rest.size(), item.size() + 1));
    const auto equals = item.find('=');
    if (equals != std::string_view::npos) {
      fields[std::string(item.substr(0, equals))] = std::string(item.substr(equals + 1));
    }
  }
  const auto failed = fields.find("rc");
  if (fields["cmd"] != expected_command || (failed != fields.end() && failed->second != "0")) {
    raise<CommError>(
        "the process manager (PMI_FD={}) answered '{}' to '{}', expected cmd={} with rc=0",
        descriptor_, answer, asked, expected_command);
  }
  return fields;
}

std::optional<std::string> PmiClient::next_line(std::string_view asked,
                                                std::chrono::milliseconds timeout) {
  const net::Deadline deadline(timeout);
  while (true) {
    const auto newline = buffer_.find('\n');
    if (newline != std::string::npos) {
      std::string line = buffer_.substr(0, newline);
      buffer_.erase(0, newline + 1);
      return line;
    }
    if (!net::wait_readable(descriptor_, deadline)) return std::nullopt;
    char bytes[1024];
    const ssize_t count = ::read(descriptor_, bytes, sizeof bytes);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) {
      raise<CommError>("the process manager (PMI_FD={}) closed its connection while asked '{}'",
                       descriptor_, asked);
    }
    buffer_.append(bytes, static_cast<std::size_t>(count));
    if (buffer_.size() > kLongestLine) {
      raise<CommError>("the process manager (PMI_FD={}) answered '{}' with a line without end",
                       descriptor_, asked);
    }
  }
}

}  // namespace tandem::rendezvous
