// The three kinds of failure (docs/errors.md): our bug (TANDEM_CHECK), the world failed (exceptions
// under tandem::Error), expected absence (std::optional). Libraries throw; only apps/ prints and
// exits.
#pragma once

#include <fmt/format.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace tandem {

// Base of every failure that input, configuration, files or the network can cause. The message
// states what happened, where, what was found, what was expected and what to try.
class Error : public std::runtime_error {
 public:
  explicit Error(const std::string& message) : std::runtime_error(message) {}
  // The exit code of the process if the error is not handled.
  virtual int exit_code() const noexcept { return 1; }
};

// An argument of a library call is not acceptable (shape, range, state).
class InvalidArgument : public Error {
 public:
  using Error::Error;
};

// The command line or a configuration file is wrong. `usage` errors (unknown flag, bad choice) exit
// with 2, as argparse does.
class ConfigError : public Error {
 public:
  explicit ConfigError(const std::string& message, bool usage = false)
      : Error(message), usage_(usage) {}
  int exit_code() const noexcept override { return usage_ ? 2 : 1; }

 private:
  bool usage_;
};

// The content of a data, model or tokenizer file is wrong.
class DataError : public Error {
 public:
  using Error::Error;
};

// The operating system refused: open, read, write, rename, map, no space.
class IoError : public Error {
 public:
  using Error::Error;
};

// A peer or the network failed; after it the communicator is closed. Details in the message:
// operation, sequence number, own rank, peer rank, elapsed and limit.
class CommError : public Error {
 public:
  using Error::Error;
  int exit_code() const noexcept override { return 200; }
};

// IoError for a failed system call: "<what> '<path>': <strerror> …". Throws VolumeGone.
[[nodiscard]] IoError io_error(std::string_view what, std::string_view path, int error_number);

// Formats a message and throws E: raise<DataError>("{}: expected {}", path, n).
template <class E, class... Args>
[[noreturn]] void raise(fmt::format_string<Args...> format, Args&&... args) {
  throw E(fmt::format(format, std::forward<Args>(args)...));
}

namespace internal {
[[noreturn]] void check_failed(std::string_view condition, std::string_view message,
                               const char* file, int line, const char* function);
}  // namespace internal

// Our bug: prints the condition and place and aborts the process with exit code 70. Never reachable
// from user input.
#define TANDEM_CHECK(condition, ...)                                                        \
  do {                                                                                      \
    if (!(condition)) [[unlikely]] {                                                        \
      ::tandem::internal::check_failed(#condition, ::fmt::format("" __VA_ARGS__), __FILE__, \
                                       __LINE__, __func__);                                 \
    }                                                                                       \
  } while (false)

}  // namespace tandem
