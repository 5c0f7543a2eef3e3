#include <poll.h>

#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/launch/agent_wire.h"
#include "tandem/launch/job_link.h"
#include "tandem/rendezvous/connect.h"

namespace tandem::launch {
namespace {

using rendezvous::Connected;
using rendezvous::Deadline;
using std::chrono::milliseconds;
using wire::json;
using Clock = Coordinator::Clock;

constexpr milliseconds kAnswer{10000};
constexpr milliseconds kHostSilence{5000};
constexpr milliseconds kFirstNotice{5000};
constexpr milliseconds kNoticeEvery{30000};

std::string in_words(const HostAddress& where) {
  return fmt::format("the job's host at {}:{}", where.host, where.port);
}

class JobClient final : public JobLink {
 public:
  JobClient(LineSocket line, std::string where, milliseconds silence)
      : line_(std::move(line)), where_(std::move(where)), beat_(silence / 3) {}

  void ready() override { send_event({{"event", "ready"}}); }
  void succeeded() override { send_event({{"event", "succeeded"}}); }
  void leave(const std::string& reason) override {
    send_event({{"event", "leave"}, {"reason", reason}});
  }
  void failed(const std::vector<Failure>& failures, bool final) override {
    json list = json::array();
    for (const Failure& failure : failures) {
      if (list.size() < 8) list.push_back(to_json(failure));
    }
    send_event({{"event", "failed"}, {"final", final}, {"failures", list}});
  }

  void add_to(std::vector<pollfd>& waits) const override { waits.push_back(line_.wait()); }
  // Bytes that arrived with the acceptance have been read, and wake no poll.
  milliseconds poll_timeout() const override { return line_.has_line() ? milliseconds(0) : beat_; }

  std::vector<Order> serve() override {
    if (Clock::now() - events_ >= beat_) send_event({{"event", "alive"}});
    line_.serve();
    std::vector<Order> orders;
    try {
      while (const auto line = line_.take_line()) {
        const json data = wire::parse(*line);
        if (data.contains("refused"))
          raise<DataError>("{}", data.value("refused", "").substr(0, 1000));
        orders.push_back(wire::order_from(data));
      }
    } catch (const DataError& error) {
      raise<CommError>("{} does not go on with this agent: {}", where_, error.what());
    }
    if (orders.empty() && !line_.ended().empty())
      raise<CommError>("{} is lost: {}", where_, line_.ended());
    return orders;
  }

 private:
  void send_event(const json& word) {
    events_ = Clock::now();
    line_.send(word.dump(-1, ' ', false, json::error_handler_t::replace));
  }

  LineSocket line_;
  std::string where_;
  milliseconds beat_;
  Clock::time_point events_ = Clock::now();
};

// The next line, within kAnswer.
json handle(LineSocket& line, const std::string& where, const std::function<void()>& check) {
  const Deadline deadline(kAnswer);
  while (true) {
    if (const auto text = line.take_line()) return wire::parse(*text);
    if (!line.ended().empty()) raise<CommError>("{} hung up: {}", where, line.ended());
    if (deadline.passed())
      raise<CommError>("{} does not answer as tandem run does: is another program at that port?",
                       where);
    pollfd wait = line.wait();
    ::poll(&wait, 1, deadline.remaining_ms(milliseconds(100)));
    line.serve();
    check();
  }
}

void introduce(LineSocket& line, const std::string& where, const AgentInfo& info,
               const std::string& token, const std::function<void()>& check) {
  const std::string nonce = wire::hex(rendezvous::make_nonce());
  line.send(json{{"tandem_agent", wire::kVersion}, {"nonce", nonce}}.dump());
  const json handshake_bytes = handle(line, where, check);
  if (handshake_bytes.contains("refused"))
    raise<ConfigError>("{} refuses this agent: {}", where, handshake_bytes.value("refused", ""));
  const std::string host_nonce = handshake_bytes.value("nonce", "");
  if (handshake_bytes.value("proof", "") != wire::proof(token, "host", host_nonce, nonce, "")) {
    raise<ConfigError>("{} has {}: give all agents the same TANDEM_JOB_TOKEN", where,
                       handshake_bytes.value("token", false)
                           ? "another job token than this agent"
                           : "no job token, and this agent has one");
  }
  const std::string text = wire::to_json(info).dump(-1, ' ', false, json::error_handler_t::replace);
  line.send(json{{"agent", text}, {"proof", wire::proof(token, "agent", host_nonce, nonce, text)}}
                .dump());
  const json answer = handle(line, where, check);
  if (answer.contains("refused"))
    raise<ConfigError>("{} refuses this agent: {}", where,
                       answer.value("refused", "").substr(0, 1000));
}

}  // namespace

std::unique_ptr<JobLink> join_job(const HostAddress& where, const AgentInfo& info,
                                  const std::string& token, milliseconds timeout,
                                  milliseconds silence, const Log& log,
                                  const std::function<void()>& check) {
  const Deadline deadline(timeout);
  const std::string hosts[] = {where.host};
  rendezvous::Handshake handshake;
  handshake.check = check;
  std::string failure;
  milliseconds next_notice = kFirstNotice;
  while (true) {
    check();
    Connected connected =
        rendezvous::connect_first(hosts, where.port, handshake, deadline, failure);
    if (connected.socket) {
      LineSocket line(std::move(connected.socket));
      try {
        introduce(line, in_words(where), info, token, check);
        rendezvous::watch_host(line.socket(), kHostSilence);
        return std::make_unique<JobClient>(std::move(line), in_words(where), silence);
      } catch (const CommError& error) {  // it may be ending, and return
        failure = error.what();
      } catch (const DataError&) {
        failure = "it speaks another protocol";
      }
    }
    if (deadline.passed()) {
      raise<CommError>(
          "cannot reach {} within {:.0f} s: {}; is the agent there running, with the "
          "same --rdzv-endpoint?",
          in_words(where), deadline.limit_seconds(), failure);
    }
    if (deadline.elapsed_seconds() * 1000 > static_cast<double>(next_notice.count())) {
      next_notice += kNoticeEvery;
      log(fmt::format("waiting for {} since {:.0f} s: {}", in_words(where),
                      deadline.elapsed_seconds(), failure));
    }
    ::poll(nullptr, 0, deadline.remaining_ms(milliseconds(200)));
  }
}

}  // namespace tandem::launch
