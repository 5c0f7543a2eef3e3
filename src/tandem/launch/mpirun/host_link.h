// mpirun's side of one host: starts the daemon there, through ssh or as a child, and exchanges
// frames with it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/mpirun/daemon_stream.h"
#include "tandem/launch/mpirun/mpi_line.h"
#include "tandem/launch/process/worker.h"
#include "tandem/net/event_loop.h"

namespace tandem::launch {

struct HostLinkParts {
  std::string host;
  std::vector<std::string> command;  // the daemon's command
  EnvironmentMap environment;        // environment of that command
  bool remote = false;               // worth a retry if the host is unreachable
};

// The command of mpirun's daemon on `host`: ssh, or `self` if the host is this machine. `word`
// makes `tandem mpirun` the daemon.
std::vector<std::string> daemon_command(const MpiLine& line, const std::string& self,
                                        const std::string& word, const std::string& host,
                                        bool remote, const HostSettings& settings = {});

// One thread.
class HostLink {
 public:
  using Clock = std::chrono::steady_clock;
  // A host may start later than mpirun, as pods do.
  static constexpr std::chrono::seconds kStartLimit{120};
  static constexpr std::chrono::seconds kSilence{15};

  // Throws ConfigError if the command cannot be started.
  explicit HostLink(HostLinkParts parts);

  const std::string& host() const { return parts_.host; }
  void send(const DaemonMessage& frame);
  std::optional<DaemonMessage> take();
  // Moves as much as possible, sends what is due, checks timeouts. `listen`: true if output of the
  // ranks can be taken.
  void serve(bool listen);
  void add_to(net::EventLoop& loop, bool listen) const;
  // Whether the daemon has not answered yet.
  bool starting() const { return lost_.empty() && !closed_ && (!stream_ || !stream_->greeted()); }
  // The last output of ssh and the daemon; may be empty.
  std::string last_words() const;
  // The reason why the host is lost; empty otherwise.
  const std::string& lost() const { return lost_; }
  // Output of ssh and the daemon outside the frames so far: the last lines.
  const std::string& words() const { return words_; }
  // The job is over here: the daemon may exit. Returns true if it has.
  void close();
  bool gone();

 private:
  void start();
  void handle_lines();
  void look_at_end();
  void lose(const std::string& reason);

  HostLinkParts parts_;
  std::unique_ptr<Worker> process_;
  std::unique_ptr<DaemonStream> stream_;
  net::FileDescriptor err_;
  std::vector<DaemonMessage> early_;   // frames for a daemon that has not started yet
  std::string words_, earlier_words_;  // the second: those of the attempt before
  std::string lost_;
  Clock::time_point begun_, last_received_, last_sent_;
  std::optional<Clock::time_point> again_at_;
  bool closed_ = false;
};

// A host with ranks that have not started.
struct HostWait {
  const HostLink& link;
  std::vector<int> ranks;
};

// "waiting for host b with ranks 2, 3: its daemon has not answered yet (…); …", for people.
std::string describe_waits(const std::vector<HostWait>& waits);

}  // namespace tandem::launch
