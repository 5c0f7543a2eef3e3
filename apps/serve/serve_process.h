// `tandem serve` as a process with a small model, and plain sockets as its clients.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/model_with_head.h"
#include "support/process.h"
#include "support/test_support.h"
#include "tandem/core/json.h"

namespace tandem::testing {

inline const std::string kText =
    "The ferry to Oslo leaves at nine. Caf\u00e9 Lund \U0001F600 opens at ten.";

// A connection to the server, bytes in and out.
class Client {
 public:
  // host: 0: from 127.0.0.1; else from 127.1.1.`host`, an address of its own.
  explicit Client(int port, std::uint32_t host = 0)
      : descriptor_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in from{}, address{};
    from.sin_family = address.sin_family = AF_INET;
    from.sin_addr.s_addr = htonl(0x7f010100 + host);
    if (host != 0) {
      EXPECT_EQ(bind(descriptor_, reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
    }
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connected_ = connect(descriptor_, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { close(descriptor_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  bool send(const std::string& text) const {
    return ::send(descriptor_, text.data(), text.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(text.size());
  }
  // Nothing more will be sent.
  void close_half() const { shutdown(descriptor_, SHUT_WR); }
  // All until the server closes, at most `limit` long.
  std::string receive(std::chrono::milliseconds limit = std::chrono::minutes(1)) {
    return receive_until([](const std::string&) { return false; }, limit);
  }
  // One answer on a connection that stays open.
  std::string receive_answer(std::chrono::milliseconds limit = std::chrono::minutes(1)) {
    const auto whole = [](const std::string& text) { return text.size() >= answer_size(text); };
    std::string text = receive_until(whole, limit);
    rest_ = text.substr(std::min(answer_size(text), text.size()));
    text.resize(text.size() - rest_.size());
    return text;
  }
  bool closed() const { return closed_; }

 private:
  // The size of the answer that a text begins with; npos while its headers are not whole.
  static std::size_t answer_size(const std::string& text) {
    const std::size_t headers = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
    if (headers == std::string::npos || length > headers) return std::string::npos;
    return headers + 4 + std::stoul(text.substr(length + 16));
  }
  template <class Done>
  std::string receive_until(Done done, std::chrono::milliseconds limit) {
    std::string text = std::exchange(rest_, "");
    const auto deadline = std::chrono::steady_clock::now() + limit;
    for (char buffer[4096]; !done(text);) {
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
          deadline - std::chrono::steady_clock::now());
      pollfd entry{.fd = descriptor_, .events = POLLIN, .revents = 0};
      if (left.count() <= 0 || poll(&entry, 1, static_cast<int>(left.count())) <= 0) break;
      const ssize_t size = recv(descriptor_, buffer, sizeof buffer, 0);
      closed_ = size <= 0;
      if (closed_) break;
      text.append(buffer, static_cast<std::size_t>(size));
    }
    return text;
  }

  int descriptor_;
  bool connected_ = false;
  bool closed_ = false;
  std::string rest_;  // what came behind an answer
};

inline std::string post(const std::string& body) {
  return fmt::format("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
                     body.size(), body);
}

inline std::string question(const std::string& text, const std::string& parameters = "{}") {
  return post(
      fmt::format(R"({{"inputs": {{"question": "When?", "context": {}}}, "parameters": {}}})",
                  nlohmann::json(text).dump(), parameters));
}

inline std::string body_of(const std::string& response) {
  return response.substr(response.find("\r\n\r\n") + 4);
}

// The program with a small model, waiting for questions.
class Server {
 public:
  // model: a directory; empty: the demo's, with an untrained head for questions.
  explicit Server(const std::vector<std::string>& flags = {}, const std::string& model = {})
      : model_(model.empty() ? model_with_head(folder_ / "demo" / "model", "ForQuestionAnswering")
                             : model) {
    std::vector<std::string> command = {
        TANDEM_BINARY_DIR "/bin/tandem", "serve", "--model", model_, "--port", "0"};
    command.insert(command.end(), flags.begin(), flags.end());
    process_ = std::make_unique<Process>(
        command, std::map<std::string, std::string>{{"OMP_NUM_THREADS", "1"}});
    const std::string before = " answers at http://";
    for (int i = 0; i < 600 && process_->running() && port_ == 0; ++i) {
      const std::string out = process_->out_so_far();
      const auto found = out.find(before);
      if (found != std::string::npos && out.ends_with("\n"))
        port_ = std::stoi(out.substr(out.find(':', found + before.size()) + 1));
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    EXPECT_NE(port_, 0) << process_->out_so_far() << process_->err_so_far();
  }
  int port() const { return port_; }
  const std::string& model() const { return model_; }
  Process& process() { return *process_; }
  // One request on a connection of its own.
  std::string exchange(std::string request) const {
    Client client(port_);
    EXPECT_TRUE(client.connected());
    request.insert(std::min(request.find("\r\n"), request.size()), "\r\nConnection: close");
    client.send(request);
    return client.receive();
  }
  // The value of a metric without labels.
  std::string metric(const std::string& name) const {
    const std::string text = body_of(exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
    const std::string line = "\n" + name + " ";
    const std::size_t at = text.find(line);
    if (at == std::string::npos) return "absent from " + text;
    return text.substr(at + line.size(), text.find('\n', at + 1) - at - line.size());
  }

 private:
  TemporaryFolder folder_;
  std::string model_;
  std::unique_ptr<Process> process_;
  int port_ = 0;
};

}  // namespace tandem::testing
