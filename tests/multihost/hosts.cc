#include "multihost/hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

namespace tandem::testing {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

void write_text(const fs::path& path, const std::string& text) {
  std::ofstream(path, std::ios::trunc) << text;
}

std::string read_text(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

template <class Condition>
bool wait_until(Condition condition, std::chrono::milliseconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

// The host's first process ends with the one that made its namespaces, that one with the test.
std::vector<std::string> first_process(const std::string& script) {
  return {"setpriv", "--pdeathsig", "KILL",         "unshare", "--net", "--uts", "--mount",
          "--pid",   "--fork",      "--kill-child", "sh",      "-c",    script};
}

std::string sshd_path() {
  const std::string path = find_program("sshd");
  return path.empty() && ::access("/usr/sbin/sshd", X_OK) == 0 ? "/usr/sbin/sshd" : path;
}

}  // namespace

std::string why_no_hosts(bool with_ssh) {
  if (::geteuid() != 0) return "needs root, to make network namespaces";
  for (const auto* program : {"ip", "ss", "nsenter", "unshare", "setpriv"}) {
    if (find_program(program).empty()) {
      return fmt::format("needs the program {} (packages iproute2 and util-linux)", program);
    }
  }
  if (with_ssh && (sshd_path().empty() || find_program("ssh").empty())) {
    return "needs sshd and ssh (packages openssh-server and openssh-client)";
  }
  const ProcessResult probe =
      run({"unshare", "--net", "--uts", "--mount", "--pid", "--fork", "sh", "-c",
           "ip link add one type veth peer name two && mount -t tmpfs t /run"});
  if (probe.exit_code != 0) return "network namespaces are not allowed here: " + probe.err;
  return "";
}

Host::Host(const fs::path& folder, const std::string& name) : folder_(folder), name_(name) {
  set_names(fmt::format("127.0.0.1 localhost {}\n", name));
  write_text(folder_ / "resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n");
  write_text(folder_ / "ssh_config",
             fmt::format("Host *\n  IdentityFile {}\n  UserKnownHostsFile /dev/null\n"
                         "  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking no\n"
                         "  LogLevel ERROR\n  BatchMode yes\n",
                         (folder_ / "key").native()));
  const fs::path ready = folder_ / (name + ".ready");
  first_ = std::make_unique<Process>(first_process(fmt::format(
      "set -e; mount -t proc proc /proc; hostname {0}; ip link set lo up\n"
      "mount -t tmpfs tmpfs /run; mkdir /run/sshd; mount --bind {1}/{0}.hosts /etc/hosts\n"
      "mount --bind {1}/resolv.conf /etc/resolv.conf\n"
      "if [ -f /etc/ssh/ssh_config ]; then mount --bind {1}/ssh_config /etc/ssh/ssh_config; fi\n"
      "touch {2}; exec sleep infinity",
      name, folder_.native(), ready.native())));
  if (!wait_until([&] { return fs::exists(ready) || !first_->running(); }, seconds(20)) ||
      !first_->running()) {
    ADD_FAILURE() << "host " << name << " did not start: " << first_->err_so_far();
    return;
  }
  const std::string children = read_text(fmt::format("/proc/{0}/task/{0}/children", first_->pid()));
  init_ = children.empty() ? -1 : std::stoi(children);
}

// From the inside out, so that every process is still there to collect the end of its children.
Host::~Host() {
  if (init_ > 0) ::kill(init_, SIGKILL);
  first_->wait();
  if (sshd_) sshd_->wait();
}

std::vector<std::string> Host::inside(const std::vector<std::string>& command) const {
  std::vector<std::string> words = {
      "nsenter", "--target", std::to_string(init_), "--net", "--uts", "--mount", "--pid", "--"};
  words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::string Host::shell(const std::string& script) const {
  const ProcessResult result = run(inside({"sh", "-c", script}));
  EXPECT_EQ(result.exit_code, 0) << name_ << ": " << script << "\n" << result.err;
  return result.out;
}

// In place: the file is mounted, another one under its name would not be seen.
void Host::set_names(const std::string& text) const {
  write_text(folder_ / (name_ + ".hosts"), text);
}

void Host::start_sshd() {
  const fs::path key = folder_ / "key";
  if (!fs::exists(key)) {
    EXPECT_EQ(run({"ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key.native()}).exit_code,
              0);
    fs::copy_file(key.native() + ".pub", folder_ / "authorized_keys");
    fs::permissions(folder_ / "authorized_keys", fs::perms::owner_read);
  }
  const fs::path config = folder_ / (name_ + ".sshd_config");
  write_text(config, fmt::format("HostKey {0}\nAuthorizedKeysFile {1}/authorized_keys\n"
                                 "StrictModes no\nUsePAM no\nPermitRootLogin yes\nPidFile none\n"
                                 "PasswordAuthentication no\nMaxStartups 100\n",
                                 key.native(), folder_.native()));
  sshd_ = std::make_unique<Process>(inside({sshd_path(), "-D", "-e", "-f", config.native()}));
  const bool listens = wait_until(
      [&] { return !sshd_->running() || !shell("ss -Htln sport = :22").empty(); }, seconds(20));
  if (!listens || !sshd_->running())
    ADD_FAILURE() << "no sshd on " << name_ << ": " << sshd_->err_so_far();
}

std::vector<std::string> Host::processes() const {
  std::vector<std::string> found;
  wait_until([&] { return (found = processes_now()).empty(); }, seconds(5));
  return found;
}

std::vector<std::string> Host::processes_now() const {
  std::vector<std::string> found;
  for (const std::string& line : lines_of(shell("ps -e -o pid=,stat=,args="))) {
    std::istringstream words(line);
    std::string pid, state, program;
    words >> pid >> state >> program;
    const bool of_the_host = pid == "1" || program == "ps" || program == "sh" ||
                             program.find("sshd") != std::string::npos;
    if (!of_the_host && !state.starts_with('Z')) found.push_back(line);
  }
  return found;
}

std::string Host::sockets() const {
  std::string found;
  wait_until([&] { return (found = sockets_now()).empty(); }, seconds(5));
  return found;
}

// Without those that no program holds: the kernel brings them to an end, or no program accepted
// them.
std::string Host::sockets_now() const {
  return shell(
      "ss -Htan | grep -v -e SYN-RECV -e TIME-WAIT -e FIN-WAIT-1 -e LAST-ACK -e CLOSING "
      "-e ':22 ' || true; "
      "ss -Hxa | grep @tandem || true");
}

void connect(const CableEnd& a, const CableEnd& b) {
  const ProcessResult made =
      run({"ip", "link", "add", a.interface, "netns", std::to_string(a.host.init()), "type", "veth",
           "peer", "name", b.interface, "netns", std::to_string(b.host.init())});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  for (const CableEnd* end : {&a, &b}) {
    // No wait for the detection of duplicate IPv6 addresses.
    end->host.shell(fmt::format("ip addr add {0} dev {1} nodad && ip link set {1} up", end->address,
                                end->interface));
  }
}

TwoHosts::TwoHosts(const fs::path& folder) : node0(folder, "node0"), node1(folder, "node1") {
  connect({node0, "wire", "10.77.0.10/24"}, {node1, "wire", "10.77.0.11/24"});
  for (const Host* host : {&node0, &node1}) {
    host->set_names("127.0.0.1 localhost\n10.77.0.10 node0\n10.77.0.11 node1\n");
  }
}

}  // namespace tandem::testing
