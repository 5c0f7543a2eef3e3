// An elastic job on two hosts, an agent and a worker on each; the endpoint is node0.
#pragma once

#include <gmock/gmock.h>

#include <functional>
#include <optional>

#include "multihost/two_hosts_job.h"
#include "support/sanitizers.h"

namespace tandem::testing {

class ElasticHosts : public TwoHostsJob {
 protected:
  // Time enough for what happens meanwhile; a sanitizer's steps take much longer.
  static constexpr int kSteps = kSanitized ? 100 : 400;

  void SetUp() override {
    TwoHostsJob::SetUp();
    if (!IsSkipped()) hosts_.emplace(path(""));
  }

  Words job_flags(const std::string& output, int steps, const Words& more = {}) const {
    Words words = train_command(
        output, {"--max_train_samples", "600", "--max_steps", std::to_string(steps),
                 "--logging_steps", "100", "--save_strategy", "no", "--report_to", "none"});
    words.erase(words.begin(), words.begin() + 2);
    return with(words, more);
  }
  std::string program() const { return train_command("job").at(1) + ".py"; }
  // An undisturbed job on one host. It has two logical shards as those on two hosts have.
  void run_calm_job(int steps, const Words& flags = {}) const {
    const Words words = {kProgram, "run", "--standalone", "--nproc-per-node", "2", program()};
    run_reference(with(words, job_flags("calm", steps, flags)), "calm");
  }

  struct Nodes {
    std::string count = "1:2";  // --nnodes
    int steps = kSteps;
    Words flags = {};          // flags of the job
    std::string conf = {};     // more --rdzv-conf
    Variables variables = {};  // more environment
    Words agent_flags = {};
  };
  std::unique_ptr<Process> agent(int node, const Nodes& nodes) const {
    const std::string conf = (node == 0 ? "is_host=1" : "is_host=0") + nodes.conf;
    Words words = {kProgram,         "run",  "--nnodes",        nodes.count,
                   "--rdzv-backend", "c10d", "--rdzv-endpoint", "node0:29400",
                   "--rdzv-conf",    conf};
    words = with(with(words, nodes.agent_flags), {program()});
    Variables variables = {{"OMP_NUM_THREADS", "1"}, {"TANDEM_JOB_TOKEN", "of this test"}};
    variables.insert(nodes.variables.begin(), nodes.variables.end());
    words = with(words, job_flags("job", nodes.steps, nodes.flags));
    return std::make_unique<Process>(host(node).inside(words), variables);
  }
  void begin(const Nodes& nodes) {
    for (const int node : {0, 1}) agents_[node] = agent(node, nodes);
  }
  // Agent and worker of `node` start again, after their end.
  void begin_again(int node, const Nodes& nodes) {
    agents_[node]->wait();
    agents_[node] = agent(node, nodes);
  }

  const Host& host(int node) const {
    if (node == 2) return *third_;
    return node == 0 ? hosts_->node0 : hosts_->node1;
  }
  // A host "node2" that reaches both others, each over a cable of its own.
  void add_third_host() {
    third_.emplace(path(""), "node2");
    connect({hosts_->node0, "wire2", "10.77.0.10/32"}, {*third_, "wire0", "10.77.0.12/32"});
    connect({hosts_->node1, "wire2", "10.77.0.11/32"}, {*third_, "wire1", "10.77.0.12/32"});
    for (const int node : {0, 1}) {
      host(node).shell("ip route add 10.77.0.12/32 dev wire2");
      third_->shell(fmt::format("ip route add 10.77.0.1{0}/32 dev wire{0}", node));
    }
    for (const int node : {0, 1, 2}) {
      host(node).set_names(
          "127.0.0.1 localhost\n10.77.0.10 node0\n10.77.0.11 node1\n10.77.0.12 node2\n");
    }
  }
  void signal_worker(int node, const std::string& name) const {
    host(node).shell(fmt::format("pkill -{} -o -f 'tandem run_[a-z]* '", name));
  }
  void signal_agent(int node, const std::string& name) const {
    host(node).shell(fmt::format("pkill -{} -o -f 'tandem run --nnodes'", name));
  }
  // Its programs end at once; its kernel lives and answers probes.
  void lose(int node) const { host(node).shell("pkill -KILL -x tandem || true"); }
  // Its worker computes nothing for a while, so that the job is not over before a node comes.
  void hold(int node) const { signal_worker(node, "STOP"); }
  void release(int node) const { signal_worker(node, "CONT"); }
  // Until `fits` accepts `tandem status` on `node`.
  void wait_for_status(int node, const std::function<bool(const std::string&)>& fits) const {
    const std::string status = fmt::format("{} status 2>&1 || true", kProgram);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    std::string answer;
    while (std::chrono::steady_clock::now() < limit) {
      answer = host(node).shell(status);
      if (fits(answer)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    ADD_FAILURE() << "node" << node << " has this status: " << answer << output_of(*agents_[node]);
  }
  // Until the worker of `node` is prepared and waits for a view.
  void prepared(int node) const {
    wait_for_status(node, [](const std::string& answer) {
      return answer.find("worker 0 waits") != answer.npos ||
             answer.find("worker 0 takes the job's state") != answer.npos;
    });
  }
  // Until a step is applied: no node has to learn the state of step 0.
  void begun(int node) const {
    wait_for_status(node, [](const std::string& answer) {
      return answer.find(" is applied") != answer.npos &&
             answer.find("step 0 is applied") == answer.npos;
    });
  }
  // As many workers as are to compute on `node`.
  void resize(int node, int workers) const {
    host(node).shell(fmt::format("{} resize {}", kProgram, workers));
  }
  // Nothing passes between the hosts.
  void cut() const { hosts_->node1.shell("ip link set wire down"); }
  void mend() const { hosts_->node1.shell("ip link set wire up"); }

  static std::string output_of(Process& agent) { return agent.out_so_far() + agent.err_so_far(); }
  // Waits until `node` has logged `text` once more than `before`.
  bool logs_again(int node, const std::string& text, std::size_t before) {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) {
      if (times(node, text) > before) return true;
      if (!agents_[node]->running()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "node" << node << " did not log '" << text
                  << "' again: " << output_of(*agents_[node]);
    return false;
  }
  std::size_t times(int node, const std::string& text) const {
    const std::string all = output_of(*agents_[node]);
    std::size_t count = 0;
    for (std::size_t at = all.find(text); at != all.npos; at = all.find(text, at + 1)) ++count;
    return count;
  }

  // The node whose agent is the first to log it; -1 where none does.
  int node_that_logs(const std::string& text) const {
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) {
      for (const int node : {0, 1})
        if (times(node, text) > 0) return node;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "no node logged '" << text << "': " << output_of(*agents_[0])
                  << output_of(*agents_[1]);
    return -1;
  }

  // How often a node has come to the job, in the log of `node`.
  std::size_t joins(int node) const { return times(node, "with the node at"); }
  bool sees_another_join(int node, std::size_t before) {
    return logs_again(node, "with the node at", before);
  }

  // They compute together, which `node` has logged. Either may have rank 0, which shows steps.
  bool both_compute(int node, int steps = kSteps) {
    if (!printed(*agents_[node], "2 of 2 workers continue")) return false;
    const std::string progress = fmt::format("/{} [", steps);
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (std::chrono::steady_clock::now() < limit) {
      for (const auto& agent : agents_)
        if (agent && output_of(*agent).find(progress) != std::string::npos) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    ADD_FAILURE() << "no step was shown: " << output_of(*agents_[0]) << output_of(*agents_[1]);
    return false;
  }
  ProcessResult end(int node, int code = 0) {
    ProcessResult result = agents_[node]->wait();
    EXPECT_EQ(result.exit_code, code) << "node" << node << ": " << result.out << result.err;
    return result;
  }
  void expect_bits_of_calm_job(int steps, const Words& flags = {}) const {
    run_calm_job(steps, flags);
    EXPECT_TRUE(weights("job") == weights("calm")) << "the weights differ";
  }

  std::optional<TwoHosts> hosts_;
  std::optional<Host> third_;
  std::unique_ptr<Process> agents_[3];
};

}  // namespace tandem::testing
