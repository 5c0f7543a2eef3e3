// The server of PMI-1, through which the ranks of an MPI job find each other: a key-value space and
// a barrier. A state machine without sockets: lines of ranks are inputs, lines for ranks are
// outputs. The protocol is MPICH's (src/pmi/src/pmi_v1.c and Hydra's pmip_pmi_v1.c).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tandem::launch {

struct PmiRules {
  int size = 1;
  int universe_size = 1;
  std::string mapping;          // PMI_process_mapping; empty: not sent
  std::vector<int> program_of;  // by rank: its program's number on the command line (appnum)
  std::string space = "kvs_0";  // name of the key-value space
};

class PmiServer {
 public:
  static constexpr std::size_t kMaxName = 256, kMaxKey = 64, kMaxValue = 1024;
  static constexpr std::size_t kMaxLine = 8192;
  // Bytes of all ranks together.
  static constexpr std::size_t kMaxBytes = std::size_t{256} << 20;

  struct Reply {
    int rank = 0;
    std::string line;  // without its end
  };
  struct Abort {
    int rank = 0;
    int exit_code = 1;
    std::string reason;  // the rank's message, or empty
  };

  explicit PmiServer(PmiRules rules);

  // A line from a rank, without its end. An invalid line is answered with an error, or breaks the
  // rank's connection (broken()).
  std::vector<Reply> take(int rank, std::string_view line);
  // The rank has ended: it enters no barrier any more.
  void left(int rank);

  // The first request to end the job.
  const std::optional<Abort>& aborted() const { return aborted_; }
  // The reason why the rank's lines are ignored; empty otherwise.
  const std::string& broken(int rank) const { return entry(rank).broken; }
  bool began(int rank) const { return entry(rank).began; }
  bool finalized(int rank) const { return entry(rank).finalized; }
  // A rank that waits for an ended rank, and that rank.
  struct Stuck {
    int waiting = 0;
    int ended = 0;
  };
  std::optional<Stuck> stuck() const;

 private:
  struct RankEntry {
    bool began = false;
    bool finalized = false;
    bool left = false;
    bool in_barrier = false;
    std::string broken;
  };
  using Fields = std::map<std::string, std::string, std::less<>>;
  const RankEntry& entry(int rank) const { return entries_[static_cast<std::size_t>(rank)]; }
  RankEntry& entry(int rank) { return entries_[static_cast<std::size_t>(rank)]; }
  std::vector<Reply> obey(int rank, const std::string& command, const Fields& fields,
                          std::string_view line);
  std::string put(const Fields& fields);
  std::string get(const Fields& fields) const;
  std::vector<Reply> enter_barrier(int rank);
  void take_abort(int rank, const Fields& fields);

  PmiRules rules_;
  std::vector<RankEntry> entries_;
  std::map<std::string, std::string, std::less<>> values_;
  std::size_t bytes_ = 0;
  int num_in_barrier_ = 0;
  std::optional<Abort> aborted_;
};

}  // namespace tandem::launch
