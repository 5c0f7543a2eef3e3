// Reaching the other hosts as a job would: by name, by ssh, and back from there to rank 0's port.
#include <fmt/format.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <sstream>
#include <thread>

#include "apps/command/own_path.h"
#include "apps/command/version.h"
#include "apps/doctor/checks.h"
#include "apps/doctor/program.h"
#include "tandem/core/error.h"
#include "tandem/net/address.h"
#include "tandem/net/interfaces.h"
#include "tandem/net/socket.h"

namespace tandem::apps::doctor {
namespace {

using net::Address;
using net::FileDescriptor;
using net::Resolved;
using std::chrono::milliseconds;

constexpr double kClockNote = 1;      // seconds; time stamps of logs mislead
constexpr double kClockProblem = 60;  // files seem to come from the future, certificates fail
constexpr std::string_view kWord = "tandem-doctor";

// For a lookup without a connection any port will do: discard.
constexpr int kAnyPort = 9;

// The address from which this host would send to `to`: a lookup in the routing table, nothing is
// sent.
std::string source_towards(const Address& to) {
  const FileDescriptor socket(::socket(to.storage.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.get(), to.get(), to.length) != 0) return "";
  return net::own_address(socket);
}

bool is_this_host(const std::vector<Address>& addresses) {
  const std::vector<std::string> own = net::own_addresses("");
  return std::any_of(addresses.begin(), addresses.end(), [&](const Address& address) {
    return address.text.starts_with("127.") || address.text == "::1" ||
           std::find(own.begin(), own.end(), address.text) != own.end();
  });
}

// Sends a word to each connection.
class Listener {
 public:
  explicit Listener(int port) : socket_(net::listen_tcp(false, port)) {
    thread_ = std::thread([this] {
      const std::string line = fmt::format("{}\n", kWord);
      while (!stop_) {
        const FileDescriptor connection = net::accept_tcp(socket_, 50);
        if (connection)
          send_all(connection, std::as_bytes(std::span(line)), net::Deadline(milliseconds(100)));
      }
    });
  }
  ~Listener() {
    stop_ = true;
    thread_.join();
  }
  int port() const { return net::local_port(socket_); }

 private:
  FileDescriptor socket_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Runs on the other host, in any POSIX shell with GNU date and bash.
std::string remote_script(const std::string& program, const std::string& address, int port) {
  return fmt::format(
      "echo time $(date +%s.%N); echo cores $(nproc 2>/dev/null); "
      "echo version $({{ '{0}' --version 2>/dev/null || tandem --version 2>/dev/null; }} | head -n "
      "1); "
      "echo port $(timeout 5 bash -c 'exec 3<>/dev/tcp/{1}/{2} && read -r -t 4 -u 3 word && echo "
      "$word' 2>&1 | tail -n 1)",
      program, address, port);
}

std::string value_of(const std::string& output, const std::string& key) {
  std::istringstream lines(output);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(key + " ", 0) == 0) return line.substr(key.size() + 1);
  }
  return "";
}

class HostCheck {
 public:
  HostCheck(const Hosts& hosts, const launch::HostfileEntry& entry, int port, Report& report)
      : hosts_(hosts), entry_(entry), topic_("host " + entry.host), port_(port), report_(report) {}

  void run() {
    const Resolved name = net::resolve(entry_.host, kAnyPort);
    if (name.addresses.empty()) {
      return report_.problem(topic_, fmt::format("the name does not resolve: {}", name.failure),
                             "correct the host file, or add the name to DNS or /etc/hosts");
    }
    const std::string ranks = fmt::format("{} rank{}", entry_.ranks, entry_.ranks == 1 ? "" : "s");
    if (is_this_host(name.addresses)) {
      return report_.fact(topic_, fmt::format("{}, this host ({})", ranks, name.addresses[0].text));
    }
    const std::string source = source_towards(name.addresses[0]);
    if (source.empty()) {
      return report_.problem(topic_, fmt::format("there is no route to {}", name.addresses[0].text),
                             "check the interfaces and the routing table (ip route)");
    }
    report_.fact(topic_,
                 fmt::format("{}, {}, reached from {}", ranks, name.addresses[0].text, source));
    ask(source);
  }

 private:
  void ask(const std::string& source) {
    const std::string program = own_path();
    std::vector<std::string> words = hosts_.ssh;
    const launch::HostSettings& settings = entry_.settings;
    if (!settings.user.empty()) words.insert(words.end(), {"-l", settings.user});
    if (settings.port) words.insert(words.end(), {"-p", std::to_string(*settings.port)});
    // Behind "--" no name is an option, whatever it begins with.
    for (const std::string& word :
         {std::string("-o"), std::string("BatchMode=yes"), std::string("-o"),
          std::string("ConnectTimeout=5"), std::string("--"), entry_.host,
          remote_script(program, source, port_)}) {
      words.push_back(word);
    }
    const double before = wall_clock();
    const ProgramOutput output = run_program(words, hosts_.timeout);
    if (!output.started) {
      return report_.problem(topic_, fmt::format("cannot start '{}'", words[0]),
                             "apt install openssh-client");
    }
    if (!output.in_time || output.exit_code != 0) {
      const std::string why =
          output.in_time ? first_line(output.err)
                         : fmt::format("no answer within {:.0f} s",
                                       std::chrono::duration<double>(hosts_.timeout).count());
      return report_.problem(
          topic_, fmt::format("ssh does not get in: {}", why),
          fmt::format("'ssh {} true' must work without a password: start sshd there, and "
                      "ssh-copy-id {}",
                      entry_.host, entry_.host));
    }
    judge_clock(output.out, before, wall_clock());
    judge_program(output.out, program);
    judge_port(output.out, source);
  }

  // The other clock was read at some moment between the two readings of ours.
  void judge_clock(const std::string& output, double before, double after) {
    const double there = std::atof(value_of(output, "time").c_str());
    const double error = (after - before) / 2;
    const double difference = there - (before + after) / 2;
    report_.fact(topic_, fmt::format("ssh works; {} cores; clock differs by {:.2f} s (± {:.2f})",
                                     value_of(output, "cores"), difference, error));
    if (std::abs(difference) - error > kClockProblem) {
      report_.problem(topic_, fmt::format("its clock differs by {:.0f} s", difference),
                      "run an NTP client on all hosts (apt install chrony)");
    } else if (std::abs(difference) - error > kClockNote) {
      report_.note(topic_, "clocks differ: times in the ranks' logs cannot be compared");
    }
  }

  void judge_program(const std::string& output, const std::string& program) {
    const std::string version = value_of(output, "version");
    if (version.empty()) {
      return report_.problem(topic_,
                             fmt::format("tandem is missing; searched PATH and {}", program),
                             "install the same build at the same place on all hosts, or share the "
                             "directory");
    }
    const std::string own = fmt::format("tandem {}", program_version());
    report_.fact(topic_, version);
    if (version != own) {
      report_.problem(topic_, fmt::format("it has {}, this host {}", version, own),
                      "install the same version on all hosts");
    }
  }

  void judge_port(const std::string& output, const std::string& source) {
    const std::string answer = value_of(output, "port");
    if (answer == kWord) {
      return report_.fact(topic_, fmt::format("reaches {} port {} here", source, port_));
    }
    report_.problem(
        topic_,
        fmt::format("it cannot connect to {} port {} on this host{}", source, port_,
                    answer.empty() ? "" : ": " + answer),
        "open the firewall between the hosts (rank 0's MASTER_PORT, and the ports above "
        "1023 for the data), or choose the network with TANDEM_IFNAME");
  }

  const Hosts& hosts_;
  const launch::HostfileEntry& entry_;
  std::string topic_;
  int port_;
  Report& report_;
};

}  // namespace

void check_network(const Environment& environment, bool several_hosts, Report& report) {
  std::string chosen;
  for (const auto* variable : {"TANDEM_IFNAME", "CCL_KVS_IFACE", "GLOO_SOCKET_IFNAME"}) {
    if (chosen.empty()) chosen = environment.get(variable).value_or("");
  }
  const std::vector<std::string> all = net::own_addresses("");
  std::string listed;
  for (const std::string& address : all) listed += (listed.empty() ? "" : ", ") + address;
  report.fact("network", all.empty() ? "only loopback" : "addresses " + listed);
  try {
    if (!chosen.empty()) {
      std::string wanted;
      for (const std::string& address : net::own_addresses(chosen)) {
        wanted += (wanted.empty() ? "" : ", ") + address;
      }
      report.fact("network", fmt::format("chosen by '{}': {}", chosen, wanted));
    }
  } catch (const ConfigError& error) {
    report.problem("network", error.what(), "name one of the interfaces that 'ip addr' shows");
  }
  if (several_hosts && all.empty()) {
    report.problem("network", "this host has no address but loopback",
                   "bring up an interface, or run all ranks on this host");
  }
  const std::string name = net::host_name();
  const Resolved own = net::resolve(name, kAnyPort);
  report.fact("network",
              own.addresses.empty()
                  ? fmt::format("this host's name '{}' does not resolve ({}); addresses "
                                "are used instead",
                                name, own.failure)
                  : fmt::format("this host's name '{}' is {}", name, own.addresses[0].text));
}

void check_hosts(const Environment&, const Hosts& hosts, Report& report) {
  if (hosts.entries.empty()) return;
  try {
    const Listener listener(hosts.port);
    for (const launch::HostfileEntry& entry : hosts.entries) {
      HostCheck(hosts, entry, listener.port(), report).run();
    }
    const Resolved first = net::resolve(hosts.entries.front().host, kAnyPort);
    if (!first.addresses.empty() && !is_this_host(first.addresses)) {
      report.note("host file", fmt::format("rank 0 will run on its first host, {}: run the doctor "
                                           "there to check the way to it",
                                           hosts.entries.front().host));
    }
  } catch (const Error& error) {
    report.problem("port", error.what(),
                   "end what listens there, or set MASTER_PORT to a free port");
  }
}

}  // namespace tandem::apps::doctor
