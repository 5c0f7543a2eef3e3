// Several hosts on one machine: each has a network, host name, process ids, /etc/hosts and sshd of
// its own, as a machine has. Nothing of it has a name outside and all of it lives in namespaces
// that end with their first process, which ends with the test, however that ends: nothing can be
// left.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/process.h"

namespace tandem::testing {

// Why this machine cannot do it ("needs root", "needs sshd (package openssh-server)"); empty if it
// can.
std::string why_no_hosts(bool with_ssh);

class Host {
 public:
  // `folder` keeps its configuration files. Only the loopback interface is up.
  Host(const std::filesystem::path& folder, const std::string& name);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  const std::string& name() const { return name_; }
  pid_t init() const { return init_; }
  // `command` as it must be started from outside to run on this host.
  std::vector<std::string> inside(const std::vector<std::string>& command) const;
  // Runs to the end; a failure fails the test.
  std::string shell(const std::string& script) const;
  // Replaces /etc/hosts; programs that run see the new names at once.
  void set_names(const std::string& text) const;
  // A secure shell server that accepts the folder's key, and a client that uses it: `ssh NAME`
  // works between the hosts of one folder.
  void start_sshd();
  // Commands of the processes that still run on this host, without those that make it a host and
  // without the dead: its first process collects none. A process that is about to end has 5 s to
  // do so.
  std::vector<std::string> processes() const;
  // Sockets of tandem that are still there: connections, listeners and UNIX names. The other
  // host may need a moment to learn that one was closed: up to 5 s.
  std::string sockets() const;

 private:
  std::vector<std::string> processes_now() const;
  std::string sockets_now() const;

  std::filesystem::path folder_;
  std::string name_;
  std::unique_ptr<Process> first_;
  std::unique_ptr<Process> sshd_;
  pid_t init_ = -1;
};

// A cable between two hosts; both ends get a name and an address ("10.77.0.10/24") and are up.
struct CableEnd {
  const Host& host;
  std::string interface;
  std::string address;
};
void connect(const CableEnd& a, const CableEnd& b);

// Two hosts "node0" and "node1" that know each other's names, with one cable: 10.77.0.10 and
// 10.77.0.11 on interface "wire".
struct TwoHosts {
  explicit TwoHosts(const std::filesystem::path& folder);
  Host node0, node1;
};

}  // namespace tandem::testing
