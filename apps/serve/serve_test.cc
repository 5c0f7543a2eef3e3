// `tandem serve` as a process: plain sockets as clients, then a browser.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <sstream>
#include <thread>

#include "apps/serve/serve_process.h"
#include "support/browser.h"
#include "support/model_with_head.h"
#include "support/process.h"
#include "support/sanitizers.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem {
namespace {

using nlohmann::json;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
using namespace std::chrono_literals;
using testing::body_of;
using testing::Client;
using testing::kText;
using testing::post;
using testing::question;
using testing::Server;

TEST(Serve, AnswersAsAskDoes) {
  const Server server;
  const std::string response = server.exchange(question(kText, R"({"top_k": 3})"));
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK\r\n"));
  const json answers = json::parse(body_of(response));
  ASSERT_EQ(answers.size(), 3u);

  const auto asked = testing::run({"/bin/sh", "-c",
                                   fmt::format("printf %s '{}' | '{}/bin/tandem' ask --model "
                                               "'{}' --context - --json --n_best 3 'When?'",
                                               kText, TANDEM_BINARY_DIR, server.model())},
                                  {{"OMP_NUM_THREADS", "2"}});
  const json expected = json::parse(asked.out)["n_best"];
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(answers[i]["answer"], expected[i]["answer"]);
    EXPECT_EQ(answers[i]["score"], expected[i]["probability"]);
    EXPECT_EQ(answers[i]["start"], expected[i]["start"]);
    EXPECT_EQ(answers[i]["end"], expected[i]["end"]);
  }
}

TEST(Serve, RefusesLargeRequestsBeforeAndWhileTheyArrive) {
  const Server server({"--max_request_bytes", "1000"});
  EXPECT_THAT(server.exchange("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n"),
              HasSubstr("larger than 1000 bytes"));
  const std::string piece = fmt::format("3e8\r\n{}\r\n", std::string(1000, 'x'));
  const std::string response =
      server.exchange("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" +
                      piece + piece + "0\r\n\r\n");
  EXPECT_THAT(response, StartsWith("HTTP/1.1 413 "));
  // Headers have a limit of their own.
  const std::string headers = server.exchange(
      fmt::format("GET / HTTP/1.1\r\nHost: localhost\r\nX: {}\r\n\r\n", std::string(100000, 'x')));
  EXPECT_THAT(headers, Not(HasSubstr("200 OK")));
  EXPECT_THAT(server.exchange(question("one two")), StartsWith("HTTP/1.1 200 OK"));
}

// A client that sends a byte now and then is cut off. Other clients get their answers meanwhile.
TEST(Serve, ClosesSlowClients) {
  const Server server({"--request_timeout", "0.5"});
  Client silent(server.port());
  Client dripping(server.port());
  dripping.send("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
  bool cut_off = false;
  for (int i = 0; i < 600 && !cut_off; ++i) {
    cut_off = !dripping.send("x");
    dripping.receive(100ms);
    cut_off = cut_off || dripping.closed();
  }
  EXPECT_TRUE(cut_off);
  silent.receive();
  EXPECT_TRUE(silent.closed());
  EXPECT_THAT(server.exchange(question("one two")), StartsWith("HTTP/1.1 200 OK"));
}

TEST(Serve, ServesOthersWhenAllConnectionsWereTaken) {
  const Server server({"--max_connections", "4", "--request_timeout", "1"});
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 12; ++i) idle.push_back(std::make_unique<Client>(server.port()));
  std::string response;
  for (int i = 0; i < 100 && !response.starts_with("HTTP/1.1 200"); ++i) {
    response = server.exchange(question("one two"));
    std::this_thread::sleep_for(100ms);
  }
  EXPECT_THAT(response, StartsWith("HTTP/1.1 200 OK"));
}

TEST(Serve, AnswersGarbageWithAnErrorAndContinues) {
  const Server server;
  for (const std::string& request :
       {std::string("\r\n\r\n\r\n"), std::string("\x16\x03\x01\x02\x00\x01\x00"),
        std::string("GET  HTTP/9\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: "
                    "99999999999999999999\r\n\r\n")}) {
    Client client(server.port());
    client.send(request);
    EXPECT_THAT(client.receive(300ms), Not(HasSubstr("200 OK"))) << request;
  }
  EXPECT_THAT(server.exchange("GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n"),
              StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(server.exchange(post(std::string(900000, '['))), StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(server.exchange(question("one two")), StartsWith("HTTP/1.1 200 OK"));
}

// Where a request ends and which host it is for must be clear: a proxy in front may read the other
// of two headers.
TEST(Serve, RefusesAmbiguousHeaders) {
  const Server server;
  const auto status_of = [&](const std::string& headers) {
    Client client(server.port());
    client.send("POST / HTTP/1.1\r\nConnection: close\r\n" + headers + "\r\n{}");
    return client.receive(20s).substr(0, 13);
  };
  const std::string host = "Host: localhost\r\n", length = "Content-Length: 2\r\n";
  for (const std::string& headers :
       {host + host + length, host + "host: evil.example\r\n" + length, host + length + length,
        host + length + "content-length: 3\r\n", host + "Content-Length: 2, 2\r\n",
        host + "Content-Length: +2\r\n", host + "Content-Length: 0x2\r\n",
        host + "Content-Length: 2 2\r\n", host + length + "Transfer-Encoding: chunked\r\n",
        host + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        host + length + "Content-Length : 3\r\n", "Host: evil.example\r\n" + length, length}) {
    EXPECT_EQ(status_of(headers), "HTTP/1.1 400 ") << headers;
  }
  for (const char* coding : {"gzip", "gzip, chunked", "chunked, chunked", "identity"})
    EXPECT_EQ(status_of(host + "Transfer-Encoding: " + coding + "\r\n"), "HTTP/1.1 501 ") << coding;
  EXPECT_THAT(server.exchange(question("one two")), StartsWith("HTTP/1.1 200 OK"));
}

// About a million windows: too many to compute while a test waits.
const std::vector<std::string> kManyWindows = {"--max_windows", "1000000"};
std::string endless_question() {
  std::string text;
  for (int i = 0; i < 200000; ++i) text += "the ";
  return question(text, R"({"max_seq_len": 64, "doc_stride": 57})");
}

// No memory of a request remains, whether it was answered or refused.
TEST(Serve, TakesNoMoreMemoryAfter5000Requests) {
  if (testing::kSanitized) GTEST_SKIP() << "the address sanitizer keeps what is freed";
  Server server;
  const auto resident_kib = [&] {
    const std::string status = read_file(fmt::format("/proc/{}/status", server.process().pid()));
    return std::stol(status.substr(status.find("VmRSS:") + 6));
  };
  const std::vector<std::string> requests = {
      question(kText), question(kText + kText + kText, R"({"top_k": 5})"), post("{"),
      "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"};
  const auto ask = [&](int count) {
    for (int i = 0; i < count; ++i) {
      const std::string answer =
          server.exchange(requests[static_cast<std::size_t>(i) % requests.size()]);
      ASSERT_THAT(answer, StartsWith("HTTP/1.1 "));
    }
  };
  ask(500);
  const long before = resident_kib();
  ask(5000);
  EXPECT_LT(resident_kib() - before, 1024);
}

TEST(Serve, LimitsWindowsAndAnswers) {
  const Server server;
  EXPECT_THAT(server.exchange(endless_question()), HasSubstr("more than 1024 windows of 64"));
  // One token as long as half of the request, and many answers that hold it.
  const std::string word(500000, 'x');
  const std::string text =
      "a b c d e f g h i j k l m n o " + word + " a b c d e f g h i j k l m n o";
  EXPECT_THAT(server.exchange(question(text, R"({"top_k": 1000, "max_answer_len": 64})")),
              HasSubstr("the answers are longer than 4194304 bytes"));
  EXPECT_THAT(server.exchange(question("one two")), StartsWith("HTTP/1.1 200 OK"));
}

TEST(Serve, AnswersSideBySide) {
  const Server server(kManyWindows);
  const std::string alone = server.exchange(question(kText, R"({"top_k": 20})"));
  Client endless(server.port());
  ASSERT_TRUE(endless.send(endless_question()));
  // Other requests are answered meanwhile, with the same bits.
  EXPECT_EQ(body_of(server.exchange(question(kText, R"({"top_k": 20})"))), body_of(alone));
  EXPECT_THAT(server.exchange("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(endless.receive(1ms), "");
  EXPECT_FALSE(endless.closed());
}

std::string short_status(const Server& server) {
  return server.exchange(question("one two")).substr(0, 12);
}

// Asks the endless question of a server that answers one question at a time, and returns when that
// is being answered. It may be refused itself, while the question that finds out is answered.
std::unique_ptr<Client> occupy(const Server& server) {
  std::unique_ptr<Client> client;
  for (int i = 0; i < 600; ++i) {
    if (client == nullptr) {
      client = std::make_unique<Client>(server.port());
      EXPECT_TRUE(client->send(endless_question()));
    }
    if (short_status(server) == "HTTP/1.1 429") return client;
    if (!client->receive(50ms).empty() || client->closed()) client.reset();
  }
  ADD_FAILURE() << "the server is never busy";
  return client;
}
const std::vector<std::string> kOneAtATime = {"--max_windows", "1000000",
                                              "--max_connections_per_address", "1"};

TEST(Serve, GivesUpRequestsWithoutAClient) {
  const Server server(kOneAtATime);
  auto endless = occupy(server);
  EXPECT_THAT(server.exchange("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 200 OK"));
  EXPECT_EQ(short_status(server), "HTTP/1.1 429");
  endless.reset();
  for (int i = 0; i < 600 && short_status(server) != "HTTP/1.1 200"; ++i)
    std::this_thread::sleep_for(50ms);
  EXPECT_EQ(short_status(server), "HTTP/1.1 200");
}

TEST(Serve, EndsWhileItComputes) {
  Server server(kOneAtATime);
  const auto endless = occupy(server);
  server.process().signal(SIGTERM);
  EXPECT_THAT(endless->receive(), StartsWith("HTTP/1.1 503 "));
  const auto result = server.process().wait(20s);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::EndsWith("tandem: stopped\n"));
}

// Entries of a folder of the process in /proc: "task" has its threads, "fd" its open files.
std::size_t count_in_proc(Server& server, const char* folder) {
  const std::filesystem::directory_iterator entries(
      fmt::format("/proc/{}/{}", server.process().pid(), folder));
  return static_cast<std::size_t>(std::distance(entries, {}));
}

// Processor time of all its threads so far, including ended ones.
double processor_seconds(Server& server) {
  const std::string line = read_file(fmt::format("/proc/{}/stat", server.process().pid()));
  std::istringstream fields(line.substr(line.rfind(')') + 1));  // a name may hold spaces
  std::string skipped;
  for (int field = 3; field < 14; ++field) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

// Long before the model has anything to do: after the signal all questions together take less of
// the processors than it takes to tokenize one of them. (A busy machine distorts elapsed time.)
TEST(Serve, EndsWhileItTokenizes) {
  constexpr std::size_t kQuestions = 4;
  Server server({"--max_windows", "1000000", "--max_request_bytes", "8000000"});
  const std::size_t threads = count_in_proc(server, "task");
  std::string text;
  while (text.size() < 6'000'000) text += "Caf\u00e9\u4e2d";
  // Sequences of four tokens have no room for the text: that is found once it is tokenized.
  const double begin = processor_seconds(server);
  EXPECT_THAT(server.exchange(question(text, R"({"max_seq_len": 4})")), HasSubstr("no room"));
  const double one = processor_seconds(server) - begin;
  std::vector<std::unique_ptr<Client>> clients;
  for (std::size_t i = 0; i < kQuestions; ++i) {
    clients.push_back(std::make_unique<Client>(server.port()));
    ASSERT_TRUE(clients.back()->send(question(text)));
  }
  for (int i = 0; i < 1000 && count_in_proc(server, "task") < threads + kQuestions; ++i)
    std::this_thread::sleep_for(10ms);
  const double stop = processor_seconds(server);
  server.process().signal(SIGTERM);
  for (const auto& client : clients) EXPECT_THAT(client->receive(), StartsWith("HTTP/1.1 503 "));
  EXPECT_LT(processor_seconds(server) - stop, one);  // no wait for its end: it is there
  const auto result = server.process().wait(20s);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, ::testing::EndsWith("tandem: stopped\n"));
}

// The client gets the reason why it gets no answer.
TEST(Serve, GivesUpIfTheClientHasClosedItsHalf) {
  const Server server(kOneAtATime);
  const auto endless = occupy(server);
  endless->close_half();
  const std::string response = endless->receive();
  EXPECT_THAT(response, StartsWith("HTTP/1.1 400 "));
  EXPECT_THAT(response, HasSubstr("the client closed its side of the connection"));
}

// The server raises the soft limit.
TEST(Serve, HasRoomForItsConnections) {
  const testing::TemporaryFolder folder;
  const std::string serve = fmt::format(
      "exec {} serve --model {} --port 0 --max_connections 1000", TANDEM_BINARY_DIR "/bin/tandem",
      testing::model_with_head(folder / "model", "ForQuestionAnswering"));
  testing::Process raised({"/bin/sh", "-c", "ulimit -Sn 16; " + serve});
  for (int i = 0; i < 600 && raised.running() && raised.out_so_far().empty(); ++i)
    std::this_thread::sleep_for(50ms);
  EXPECT_THAT(raised.out_so_far(), HasSubstr(" answers at http://")) << raised.err_so_far();
  raised.signal(SIGTERM);
  raised.wait(20s);
  const auto refused = testing::run({"/bin/sh", "-c", "ulimit -n 100; " + serve});
  EXPECT_EQ(refused.exit_code, 1);
  EXPECT_THAT(refused.err, HasSubstr("a server of 1000 connections needs "));
  EXPECT_THAT(refused.err, HasSubstr("or allow fewer connections (--max_connections)"));
}

// A limit that is lowered while it runs stands for a machine whose descriptors others take.
TEST(Serve, LogsOnceThatNoDescriptorIsLeft) {
  Server server({"--request_timeout", "3600"});
  rlimit limit{};
  const pid_t pid = server.process().pid();
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, nullptr, &limit), 0);
  limit.rlim_cur = count_in_proc(server, "fd") + 4;
  ASSERT_EQ(prlimit(pid, RLIMIT_NOFILE, &limit, nullptr), 0);
  const std::string warning = "tandem: warning: no file descriptor is left for another connection";
  std::vector<std::unique_ptr<Client>> idle;
  for (const int times : {1, 2}) {
    SCOPED_TRACE(times);
    for (int i = 0; i < 10; ++i) idle.push_back(std::make_unique<Client>(server.port()));
    for (int i = 0; i < 1000 && count_in_proc(server, "fd") < limit.rlim_cur; ++i)
      std::this_thread::sleep_for(10ms);
    EXPECT_TRUE(testing::prints(server.process(), warning));
    idle.clear();  // there is room again
    EXPECT_THAT(server.exchange("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
                StartsWith("HTTP/1.1 200 OK"));
  }
  const std::string logged = server.process().err_so_far();
  EXPECT_EQ(logged.find(warning), logged.rfind(warning)) << logged;
}

// However long they may stay otherwise.
TEST(Serve, IdleConnectionsDoNotBlockOthers) {
  const Server server({"--request_timeout", "3600"});
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 200; ++i) idle.push_back(std::make_unique<Client>(server.port()));
  EXPECT_THAT(server.exchange("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"),
              StartsWith("HTTP/1.1 200 OK"));
  EXPECT_THAT(server.exchange(question("one two")), StartsWith("HTTP/1.1 200 OK"));
}

TEST(Serve, IsReachedByItsNamesOnly) {
  const Server server({"--host", "0.0.0.0", "--allowed_hosts", "reader.example,other.example"});
  const auto status_of = [&](const std::string& host) {
    return server.exchange("GET /health HTTP/1.1\r\nHost: " + host + "\r\n\r\n").substr(0, 13);
  };
  for (const char* host : {"other.example", "Reader.Example:8080", "10.1.2.3", "localhost:1"})
    EXPECT_EQ(status_of(host), "HTTP/1.1 200 ") << host;
  EXPECT_EQ(status_of("evil.example"), "HTTP/1.1 400 ");
}

TEST(Serve, EndsCleanlyWhenAsked) {
  for (const int number : {SIGTERM, SIGINT}) {
    Server server;
    const Client idle(server.port());
    server.process().signal(number);
    const auto result = server.process().wait(20s);
    EXPECT_EQ(result.exit_code, 0);
    EXPECT_THAT(result.out, ::testing::EndsWith("tandem: stopped\n"));
  }
}

TEST(Serve, StatesWhyItCannotStart) {
  const Server server;
  const auto start = [](const std::vector<std::string>& flags) {
    std::vector<std::string> command = {TANDEM_BINARY_DIR "/bin/tandem", "serve"};
    command.insert(command.end(), flags.begin(), flags.end());
    return testing::run(command);
  };
  const std::string& model = server.model();
  const auto taken = start({"--model", model, "--port", std::to_string(server.port())});
  EXPECT_EQ(taken.exit_code, 1);
  EXPECT_THAT(taken.err, HasSubstr("Address already in use; choose another --port"));
  const auto name = start({"--model", model, "--host", "localhost.example"});
  EXPECT_EQ(name.exit_code, 1);
  EXPECT_THAT(name.err, HasSubstr("'localhost.example' is not an address"));
  EXPECT_EQ(start({}).exit_code, 2);
}

class ServePage : public testing::BrowserTest {
 protected:
  // The page with a stub in the server's place: `info` and `answers` are JavaScript. Which
  // probabilities a model gives is not the page's matter.
  static std::string page_of(const std::string& info, const std::string& answers) {
    const testing::TemporaryFolder folder;
    const std::string source = TANDEM_SOURCE_DIR "/apps/serve/";
    for (const char* file : {"page.css", "page.js", "chat.js"})
      write_file(folder / file, read_file(source + file));
    std::string page = read_file(source + "index.html");
    page.insert(page.find("<script"),
                fmt::format("<script>window.fetch = async (path, request) => ({{ok: true, json: "
                            "async () => path === \"/info\" ? {} : {}}});</script>\n",
                            info, answers));
    write_file(folder / "index.html", page);
    return testing::dump_dom("file://" + (folder / "index.html").native() + "?example");
  }
};

// The page asks, marks the answer in the text and lists the others; the text stays text whatever is
// in it.
TEST_F(ServePage, ShowsTheAnswerInTheText) {
  const Server server;
  const std::string url = fmt::format("http://127.0.0.1:{}/", server.port());
  const std::string page =
      testing::dump_dom(url +
                        "?question=Who%3F&context=%F0%9F%98%80%20The%20%3Cimg%20src%"
                        "3Dx%20onerror%3D%22document.title%3D"
                        "'broken'%22%3E%20ferry.");
  EXPECT_THAT(page, HasSubstr("335,234 parameters"));
  EXPECT_THAT(page, HasSubstr("<tr tabindex=\"0\" class=\"chosen\">"));
  EXPECT_THAT(page, HasSubstr("😀 The "));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, HasSubstr("&lt;img"));
  EXPECT_THAT(page, HasSubstr("<title>demo, model – ask a text</title>"));

  // The page marks the answer that the endpoint gives, cut out by its positions.
  const std::string context = "\U0001F600 The ferry leaves at nine.";
  const std::string simple = testing::dump_dom(
      url + "?question=When%3F&context=%F0%9F%98%80%20The%20ferry%20leaves%20at%20nine.");
  const json answer = json::parse(body_of(server.exchange(question(context))));
  EXPECT_THAT(simple, HasSubstr(fmt::format(">{}</mark>", answer["answer"].get<std::string>())));
  EXPECT_THAT(simple, HasSubstr(fmt::format("<td>{}–{}</td>", answer["start"].get<int>(),
                                            answer["end"].get<int>())));
}

// A visitor without a text gets one. The model has a title with its path as tooltip.
TEST_F(ServePage, HasAnExampleAndATitle) {
  const Server server;
  const std::string page =
      testing::dump_dom(fmt::format("http://127.0.0.1:{}/?example", server.port()));
  EXPECT_THAT(page, HasSubstr("Try an example</button>"));
  EXPECT_THAT(page, ContainsRegex("<p id=\"model\" title=\"[^\"]*/demo/model\">demo, model, "
                                  "335,234 parameters</p>"));
  EXPECT_THAT(page, ContainsRegex("<div id=\"marked\">.*The Melqueen sails to Norford"));
}

// The endpoint gives as many answers as were asked for; the page shows those that have a
// probability to show.
TEST_F(ServePage, HasNoRowsWithoutAProbability) {
  const std::string shown = page_of(
      R"({model: "/runs/a <b>/checkpoint-12/", parameters: 1000})",
      R"([0.9994, 0.0005, 0.00049, 0].map(score => ({score, start: 0, end: 3, answer: "The"})))");
  EXPECT_THAT(shown, HasSubstr("<td>99.9 %</td>"));
  EXPECT_THAT(shown, HasSubstr("<td>0.1 %</td>"));
  EXPECT_THAT(shown, Not(HasSubstr("<td>0.0 %</td>")));
  EXPECT_THAT(shown, HasSubstr("; others have less than 0.05 %"));
  EXPECT_THAT(shown, HasSubstr(">a &lt;b&gt;, checkpoint-12, 1,000 parameters</p>"));
}

// A model that labels texts has a form for a text and a second one, and labels with their scores.
TEST_F(ServePage, BecomesThatOfLabels) {
  const std::string info = R"({model: "a/sst2", parameters: 1, task: "text-classification"})";
  const std::string shown =
      page_of(info, R"([[{label: "good <i>", score: 0.75}, {label: "bad", score: 0.25}]])");
  EXPECT_THAT(shown, HasSubstr("<title>sst2 – label a text</title>"));
  EXPECT_THAT(shown, HasSubstr(">Label a text</h1>"));
  EXPECT_THAT(shown, HasSubstr(">good &lt;i&gt; (75.0 %)</"));
  EXPECT_THAT(shown, HasSubstr("<td>25.0 %</td><td>bad</td>"));
  EXPECT_THAT(shown, Not(HasSubstr("</mark>")));
  // One score is the value of a regression.
  EXPECT_THAT(page_of(info, R"([[{label: "LABEL_0", score: 2.5}]])"), HasSubstr("<td>2.500</td>"));
}

// A model that tags words marks what it found, each where it stands, in a text of wide characters.
TEST_F(ServePage, BecomesThatOfNames) {
  const std::string shown =
      page_of(R"({model: "a/ner", parameters: 1, task: "token-classification"})",
              R"([{entity_group: "person", score: 0.9, word: "Dorla", start: 0, end: 5},
                  {entity_group: "ship", score: 0.8, word: "Melqueen", start: 13, end: 21}])");
  EXPECT_THAT(shown, HasSubstr(">Find what a text names</h1>"));
  EXPECT_THAT(shown, HasSubstr("title=\"person, 90.0 %\""));
  EXPECT_THAT(shown, HasSubstr(">Dorla</mark> of the <mark"));
  EXPECT_THAT(shown, HasSubstr(">Melqueen</mark> met"));
  EXPECT_THAT(shown, HasSubstr("<td>80.0 %</td><td>ship</td><td>Melqueen</td><td>13–21</td>"));
}

// Lines by their similarity, those of a cosine near 0 and below too.
TEST_F(ServePage, BecomesThatOfEmbeddings) {
  const std::string shown = page_of(
      R"({model: "a/minilm", parameters: 1, task: "feature-extraction"})", "[0.5, -0.25, 0.75]");
  EXPECT_THAT(shown, HasSubstr("<title>minilm – compare texts</title>"));
  EXPECT_THAT(shown, HasSubstr("POST /v1/embeddings, /embed and /similarity"));
  EXPECT_THAT(shown, HasSubstr(">A ferry sails every morning. (0.750)</"));
  EXPECT_THAT(shown, ContainsRegex("0.750</td>.*0.500</td>.*-0.250</td><td>Bread is baked"));
}

// A decoder has a box for messages, and one for texts if it has no chat template.
TEST_F(ServePage, BecomesAChat) {
  const std::string info =
      R"({model: "a/smol", parameters: 1, task: "text-generation", max_new_tokens: 100, chat: )";
  const std::string chat = page_of(info + "true}", "{}");
  EXPECT_THAT(chat, HasSubstr("<title>smol – chat</title>"));
  EXPECT_THAT(chat, HasSubstr("<form id=\"chat\">"));
  EXPECT_THAT(chat, HasSubstr("<form id=\"form\" hidden"));
  EXPECT_THAT(chat, HasSubstr(">Message</label>"));
  const std::string text = page_of(info + "false}", "{}");
  EXPECT_THAT(text, HasSubstr(">Continue a text</h1>"));
  EXPECT_THAT(text, HasSubstr(">Text to continue</label>"));
}

TEST_F(ServePage, ShowsErrors) {
  const Server server({"--max_request_bytes", "100"});
  const std::string page = testing::dump_dom(fmt::format(
      "http://127.0.0.1:{}/?question=Who%3F&context={}", server.port(), std::string(200, 'x')));
  EXPECT_THAT(page, HasSubstr("class=\"error\">the request is larger than 100 bytes"));
  EXPECT_THAT(page, HasSubstr("<section id=\"result\" hidden"));
}

}  // namespace
}  // namespace tandem
