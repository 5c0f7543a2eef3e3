// Descriptors, deadlines and TCP sockets, with errors that name both sides.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace tandem::net {

// Owns a file descriptor.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor() { reset(); }
  FileDescriptor(FileDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  int get() const { return descriptor_; }
  explicit operator bool() const { return descriptor_ >= 0; }
  void reset();
  // The caller closes the descriptor.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

// A moment after which a wait is an error.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;
  explicit Deadline(std::chrono::milliseconds limit) : start_(Clock::now()), limit_(limit) {}
  bool passed() const { return Clock::now() - start_ >= limit_; }
  // Time left, at most `cap`, at least 0; in the unit of poll(2).
  int remaining_ms(std::chrono::milliseconds cap = std::chrono::hours(1)) const;
  double elapsed_seconds() const {
    return std::chrono::duration<double>(Clock::now() - start_).count();
  }
  double limit_seconds() const { return std::chrono::duration<double>(limit_).count(); }

 private:
  Clock::time_point start_;
  std::chrono::milliseconds limit_;
};

// A listening socket on all interfaces (IPv6 and IPv4), or on loopback in one family; port 0: any
// free one. Throws ConfigError when the port is taken or not allowed, IoError otherwise.
FileDescriptor listen_tcp(bool loopback_only, int port, int loopback_family = AF_INET);
int local_port(const FileDescriptor& socket);

// The next connection, or nothing after `timeout_ms`. Non-blocking, without delay. Throws
// ConfigError if no descriptor is left for it.
FileDescriptor accept_tcp(const FileDescriptor& listener, int timeout_ms);

// Numeric address of the other side of a connection, and of this one.
std::string peer_address(const FileDescriptor& socket);
// Numeric address of this side.
std::string own_address(const FileDescriptor& socket);
// "10.0.0.1" or "fe80::1%eth0"; IPv4 addresses of dual-stack sockets in their IPv4 form.
std::string numeric_address(const sockaddr* address, socklen_t length);
std::string host_name();

// Whether it is a UNIX socket, and whether the process at its other end belonged to this process's
// user when it connected or listened (errno has the reason otherwise).
bool is_local(const FileDescriptor& socket);
bool is_of_this_user(const FileDescriptor& socket);

void set_no_delay(const FileDescriptor& socket);
// The other host must answer the kernel's probes: after `silence` without an answer the connection
// counts as reset. An idle one is probed every second.
void watch_host(const FileDescriptor& socket, std::chrono::milliseconds silence);
// Lost packets are retransmitted several times before the pauses between the tries begin to double.
// After an interruption a connection with little traffic resumes soon.
void retransmit_steadily(const FileDescriptor& socket);

// How an attempt to move bytes ended.
enum class IoStatus { kDone, kClosed, kTimeout };
// Moves all of `bytes` over a non-blocking socket before the deadline. kClosed: end of stream or a
// reset.
IoStatus send_all(const FileDescriptor& socket, std::span<const std::byte> bytes,
                  const Deadline& deadline);
IoStatus receive_all(const FileDescriptor& socket, std::span<std::byte> bytes,
                     const Deadline& deadline);

}  // namespace tandem::net
