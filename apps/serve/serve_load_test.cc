// `tandem serve` with many clients at once: connections that stay open, the queue, and metrics.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

#include "apps/serve/serve_process.h"

namespace tandem::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;

const std::string kHealth = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";

// About a million windows: it is never computed to the end.
std::string endless_question() {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "the ";
  return question(text, R"({"max_seq_len": 64, "doc_stride": 57})");
}

// Sends `count` endless questions from one address, each on a connection of its own.
std::vector<std::unique_ptr<Client>> send_endless(const Server& server, int count,
                                                  std::uint32_t host) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < count; ++i) {
    clients.push_back(std::make_unique<Client>(server.port(), host));
    EXPECT_TRUE(clients.back()->send(endless_question()));
  }
  return clients;
}

void expect_metric(const Server& server, const std::string& name, const std::string& value) {
  for (int i = 0; i < 600 && server.metric(name) != value; ++i) std::this_thread::sleep_for(50ms);
  EXPECT_EQ(server.metric(name), value) << name;
}

TEST(ServeLoad, AConnectionTakesOneRequestAfterAnother) {
  const Server server;
  Client client(server.port());
  std::string first;
  for (int i = 0; i < 5; ++i) {
    ASSERT_TRUE(client.send(i == 3 ? kHealth : question(kText)));
    const std::string answer = client.receive_answer();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 200 OK\r\n"));
    EXPECT_THAT(answer, Not(HasSubstr("Connection: close")));
    if (i == 0) first = body_of(answer);
    EXPECT_EQ(body_of(answer), i == 3 ? R"({"status": "ok"})" : first);
  }
  // Requests in one piece are answered in their order.
  ASSERT_TRUE(client.send(kHealth + question(kText) + kHealth));
  EXPECT_EQ(body_of(client.receive_answer()), R"({"status": "ok"})");
  EXPECT_EQ(body_of(client.receive_answer()), first);
  EXPECT_EQ(body_of(client.receive_answer()), R"({"status": "ok"})");
  EXPECT_FALSE(client.closed());
  // A client that wants no further answer sends "close", and the programs of HTTP/1.0 mean it.
  ASSERT_TRUE(client.send("GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"));
  EXPECT_THAT(client.receive(), HasSubstr("Connection: close"));
  EXPECT_TRUE(client.closed());
  Client old(server.port());
  ASSERT_TRUE(old.send("GET /health HTTP/1.0\r\nHost: localhost\r\n\r\n"));
  old.receive();
  EXPECT_TRUE(old.closed());
}

// Bytes after a request whose end is not clear could be read in two ways.
TEST(ServeLoad, AConnectionEndsWithAnAmbiguousRequest) {
  const Server server;
  for (const std::string& bad :
       {std::string("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
                    "Transfer-Encoding: chunked\r\n\r\n{}"),
        std::string("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n"
                    "Content-Length: 3\r\n\r\n{}"),
        std::string("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n{}")}) {
    Client client(server.port());
    ASSERT_TRUE(client.send(kHealth));
    EXPECT_THAT(client.receive_answer(), StartsWith("HTTP/1.1 200 "));
    ASSERT_TRUE(client.send(bad + kHealth));
    const std::string answer = client.receive();
    EXPECT_THAT(answer, StartsWith("HTTP/1.1 4"));
    EXPECT_THAT(answer, HasSubstr("Connection: close"));
    EXPECT_THAT(answer, Not(HasSubstr("200 OK")));
    EXPECT_TRUE(client.closed());
  }
}

TEST(ServeLoad, IdleConnectionsAreClosedAfterTheirTime) {
  const Server server({"--keep_alive", "0.3"});
  Client client(server.port());
  ASSERT_TRUE(client.send(kHealth));
  EXPECT_THAT(client.receive_answer(), Not(HasSubstr("Connection: close")));
  client.receive(20s);
  EXPECT_TRUE(client.closed());
  const Server one_each({"--keep_alive", "0"});
  Client other(one_each.port());
  ASSERT_TRUE(other.send(kHealth));
  EXPECT_THAT(other.receive(20s), HasSubstr("Connection: close"));
  EXPECT_TRUE(other.closed());
}

// A further request has the same time as the first, however it drips in.
TEST(ServeLoad, ASlowFurtherRequestIsCutOff) {
  const Server server({"--keep_alive", "1", "--request_timeout", "1"});
  for (const std::string& begin :
       {std::string("POST / HTTP/1.1\r\nHost: localhost\r\nX: "), std::string("G"),
        std::string("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n")}) {
    Client client(server.port());
    ASSERT_TRUE(client.send(kHealth));
    EXPECT_THAT(client.receive_answer(), StartsWith("HTTP/1.1 200 "));
    client.send(begin);
    bool cut_off = false;
    for (int i = 0; i < 200 && !cut_off; ++i) {
      cut_off = !client.send("x");
      client.receive(100ms);
      cut_off = cut_off || client.closed();
    }
    EXPECT_TRUE(cut_off) << begin;
  }
}

// A load test from one machine: no client is asked to come back later.
TEST(ServeLoad, FiftyConnectionsOfOneAddressAreAllServed) {
  const Server server;
  const std::string expected = body_of(server.exchange(question(kText)));
  std::atomic<int> right{0};
  std::vector<std::thread> clients;
  for (int i = 0; i < 50; ++i) {
    clients.emplace_back([&] {
      Client client(server.port());
      for (int request = 0; request < 4; ++request) {
        if (!client.send(question(kText))) return;
        const std::string answer = client.receive_answer();
        if (!answer.starts_with("HTTP/1.1 200 ") || body_of(answer) != expected) return;
      }
      ++right;
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(right, 50);
  const std::string metrics =
      body_of(server.exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  EXPECT_THAT(metrics,
              HasSubstr("tandem_serve_requests_total{endpoint=\"inference\",code=\"200\"} 201\n"));
}

// Endless questions of one address wait for each other; another address is served meanwhile.
TEST(ServeLoad, TheQueueIsFairBetweenAddresses) {
  const Server server({"--max_windows", "1000000", "--max_running", "2"});
  const auto endless = send_endless(server, 4, /*host=*/2);
  expect_metric(server, "tandem_serve_queue_length", "3");
  expect_metric(server, "tandem_serve_running_requests", "1");
  EXPECT_THAT(server.exchange(question(kText)), StartsWith("HTTP/1.1 200 OK"));
  expect_metric(server, "tandem_serve_queue_length", "3");
  for (const auto& client : endless) EXPECT_EQ(client->receive(1ms), "");
}

// A client that goes leaves the queue, whether its request ran or waited.
TEST(ServeLoad, TheQueueForgetsClientsThatHaveGone) {
  const Server server({"--max_windows", "1000000", "--max_running", "1"});
  auto endless = send_endless(server, 5, /*host=*/2);
  expect_metric(server, "tandem_serve_queue_length", "4");
  endless.pop_back();
  expect_metric(server, "tandem_serve_queue_length", "3");
  endless.erase(endless.begin());  // it ran: the next one begins
  expect_metric(server, "tandem_serve_queue_length", "2");
  endless.clear();
  expect_metric(server, "tandem_serve_queue_length", "0");
  expect_metric(server, "tandem_serve_running_requests", "0");
  EXPECT_THAT(server.exchange(question(kText)), StartsWith("HTTP/1.1 200 OK"));
}

TEST(ServeLoad, ItEndsWithRequestsInTheQueue) {
  Server server({"--max_windows", "1000000", "--max_running", "1"});
  const auto endless = send_endless(server, 3, /*host=*/2);
  expect_metric(server, "tandem_serve_queue_length", "2");
  server.process().signal(SIGTERM);
  for (const auto& client : endless) EXPECT_THAT(client->receive(), StartsWith("HTTP/1.1 503 "));
  EXPECT_EQ(server.process().wait(20s).exit_code, 0);
}

// More requests than connections are allowed are still refused, and the server states when to
// retry.
TEST(ServeLoad, TheQueueIsBounded) {
  const Server server(
      {"--max_windows", "1000000", "--max_connections_per_address", "3", "--max_running", "1"});
  const auto endless = send_endless(server, 3, /*host=*/2);
  expect_metric(server, "tandem_serve_queue_length", "2");
  Client one_more(server.port(), /*host=*/2);
  ASSERT_TRUE(one_more.send(question(kText)));
  const std::string answer = one_more.receive_answer();
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 429 "));
  EXPECT_THAT(answer, HasSubstr("Retry-After: 1\r\n"));
}

TEST(ServeLoad, MetricsCountAnswersByEndpointAndCode) {
  const Server server;
  server.exchange(question(kText));
  server.exchange(post("{"));
  server.exchange(kHealth);
  for (int i = 0; i < 20; ++i)
    server.exchange(fmt::format("GET /path/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", i));
  const std::string answer = server.exchange("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"));
  const std::string text = body_of(answer);
  for (const std::string& line :
       {std::string("tandem_serve_requests_total{endpoint=\"/health\",code=\"200\"} 1\n"),
        std::string("tandem_serve_requests_total{endpoint=\"inference\",code=\"200\"} 1\n"),
        std::string("tandem_serve_requests_total{endpoint=\"inference\",code=\"400\"} 1\n"),
        std::string("tandem_serve_requests_total{endpoint=\"other\",code=\"404\"} 20\n"),
        std::string("tandem_serve_request_seconds_bucket{le=\"+Inf\"} 2\n"),
        std::string("tandem_serve_request_seconds_count 2\n"),
        std::string("# TYPE tandem_serve_request_seconds histogram\n"),
        fmt::format("tandem_serve_model_info{{model=\"{}\",task=\"question-answering\"}} 1\n",
                    server.model())}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  // Every line is a comment or a sample.
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    EXPECT_THAT(line,
                ::testing::AnyOf(MatchesRegex("# (HELP|TYPE) tandem_serve_[a-z_]+ .+"),
                                 MatchesRegex("tandem_serve_[a-z_]+(\\{[^}]*\\})? [0-9.e+-]+")));
  }
}

}  // namespace
}  // namespace tandem::testing
