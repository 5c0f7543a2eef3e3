// mpirun's side of one host: starts the helper there, through ssh or as a child, and speaks to it.
#pragma once

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tandem/launch/frame_stream.h"
#include "tandem/launch/mpi_line.h"
#include "tandem/launch/worker.h"

namespace tandem::launch {

struct HostLinkParts {
  std::string host;
  std::vector<std::string> command;  // that becomes the helper
  EnvironmentMap environment;        // of that command
  bool remote = false;               // worth trying again when it cannot be reached
};

// The command that becomes the helper of mpirun on `host`: ssh, or `self` where that is this
// machine. `word` is what makes `tandem mpirun` the helper.
std::vector<std::string> helper_command(const MpiLine& line, const std::string& self,
                                        const std::string& word, const std::string& host,
                                        bool remote, const HostSettings& settings = {});

// One thread.
class HostLink {
 public:
  using Clock = std::chrono::steady_clock;
  // A host may come up later than mpirun, as pods do.
  static constexpr std::chrono::seconds kStartLimit{120};
  static constexpr std::chrono::seconds kSilence{15};

  // Throws ConfigError when the command cannot be started.
  explicit HostLink(HostLinkParts parts);

  const std::string& host() const { return parts_.host; }
  void send(const Frame& frame);
  std::optional<Frame> take();
  // Moves what can be moved, says what has to be said, looks at the clock. `listen`: whether what
  // the ranks print can be taken.
  void serve(bool listen);
  void add_to(std::vector<pollfd>& waits, bool listen) const;
  // The daemon has not answered yet. What ssh and the daemon have said last; may be empty.
  bool starting() const { return lost_.empty() && !closed_ && (!stream_ || !stream_->greeted()); }
  std::string last_words() const;
  // Why the host is no longer there; empty while it is.
  const std::string& lost() const { return lost_; }
  // What ssh and the helper have said so far beside the frames: their last lines.
  const std::string& words() const { return words_; }
  // The job is over here: the helper may go. Whether it has.
  void close();
  bool gone();

 private:
  void start();
  void hear_words();
  void look_at_end();
  void lose(const std::string& reason);

  HostLinkParts parts_;
  std::unique_ptr<Worker> process_;
  std::unique_ptr<FrameStream> stream_;
  rendezvous::FileDescriptor err_;
  std::vector<Frame> early_;           // frames for a helper that is not there yet
  std::string words_, earlier_words_;  // the second: of the try before
  std::string lost_;
  Clock::time_point begun_, heard_, spoke_;
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
