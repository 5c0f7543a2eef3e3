// Transport plugin over MPI: Isend, Irecv and Testsome on a separate communicator. Compiled once
// with the header of MPICH, whose binary interface Intel MPI and MVAPICH share, and once with that
// of Open MPI.
//
// MPI belongs to the process. The first communicator initialises it, and the end of the process
// finalises it (it cannot start again). After a failure it is not finalised, because that would
// wait for ranks that are gone. All calls are made under one lock, so MPI_THREAD_SERIALIZED is
// enough for any threads that use the communicators.
#include <mpi.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/plugins/support.h"

namespace tandem::comm::plugins {
namespace {

using Clock = std::chrono::steady_clock;

std::mutex mpi_mutex;          // every call of MPI is made under it
bool a_fabric_failed = false;  // then MPI_Finalize would wait forever

void finalize_at_exit() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  if (finalized == 0 && !a_fabric_failed) MPI_Finalize();
}

std::string text_of(int code) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  return {text.data(), static_cast<std::size_t>(length)};
}

void check(int code, const char* what) {
  if (code != MPI_SUCCESS) throw std::runtime_error(std::string(what) + ": " + text_of(code));
}

void start_mpi() {
  int initialized = 0;
  MPI_Initialized(&initialized);
  int level = MPI_THREAD_SINGLE;
  if (initialized != 0) {
    MPI_Query_thread(&level);
  } else {
    check(MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &level), "MPI_Init_thread");
    std::atexit(finalize_at_exit);
  }
  if (level < MPI_THREAD_SERIALIZED) {
    throw std::runtime_error("MPI runs at thread level " + std::to_string(level) +
                             ", needed is MPI_THREAD_SERIALIZED (" +
                             std::to_string(MPI_THREAD_SERIALIZED) +
                             "); a program that initialises MPI itself must ask "
                             "for it");
  }
}

class Fabric {
 public:
  explicit Fabric(const tandem_fabric_config& config)
      : rank_(config.rank), size_(config.world_size), timeout_(config.timeout_ms) {
    const std::lock_guard lock(mpi_mutex);
    start_mpi();
    check_world();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Comm_idup(MPI_COMM_WORLD, &comm_, &request), "MPI_Comm_idup");
    wait(request, "MPI_Comm_idup");
    MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN);
    std::array<char, MPI_MAX_LIBRARY_VERSION_STRING> version{};
    int length = 0;
    MPI_Get_library_version(version.data(), &length);
    description_ = "MPI, " + first_words(version.data());
  }

  void exchange(const std::string& text, tandem_fabric_sink sink, void* sink_context) {
    const std::lock_guard lock(mpi_mutex);
    const int own = static_cast<int>(text.size());
    std::vector<int> lengths(static_cast<std::size_t>(size_));
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallgather(&own, 1, MPI_INT, lengths.data(), 1, MPI_INT, comm_, &request),
          "MPI_Iallgather");
    wait(request, "the lengths of the ranks' addresses");
    std::vector<int> begins(lengths.size());
    int total = 0;
    for (std::size_t i = 0; i < lengths.size(); ++i) {
      begins[i] = total;
      total += lengths[i];
    }
    std::vector<char> all(static_cast<std::size_t>(total));
    check(MPI_Iallgatherv(text.data(), own, MPI_CHAR, all.data(), lengths.data(), begins.data(),
                          MPI_CHAR, comm_, &request),
          "MPI_Iallgatherv");
    wait(request, "the ranks' addresses");
    for (int rank = 0; rank < size_; ++rank) {
      const auto i = static_cast<std::size_t>(rank);
      sink(sink_context, rank, all.data() + begins[i], static_cast<std::size_t>(lengths[i]));
    }
  }

  std::string address() const { return {}; }
  void connect(const void* const* /*addresses*/, const std::size_t* /*bytes*/) {}
  const char* describe() const { return description_.c_str(); }
  const char* last_error() const { return error_.c_str(); }
  std::size_t max_message_bytes() const { return std::size_t{1} << 30; }  // counts are int
  int wait_descriptor() const { return -1; }

  int send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, void* context) {
    const std::lock_guard lock(mpi_mutex);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(tag),
                               comm_, &request);
    return started(code, request, {context, true});
  }
  int receive(int peer, std::uint32_t tag, void* data, std::size_t bytes, void* context) {
    const std::lock_guard lock(mpi_mutex);
    MPI_Request request = MPI_REQUEST_NULL;
    const int code = MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(tag),
                               comm_, &request);
    return started(code, request, {context, false});
  }

  int poll(tandem_fabric_completion* completions, int capacity) {
    if (requests_.empty()) return 0;
    const std::lock_guard lock(mpi_mutex);
    indices_.resize(requests_.size());
    statuses_.resize(requests_.size());
    while (ended_.size() < static_cast<std::size_t>(capacity)) {
      int count = 0;
      const int code = MPI_Testsome(static_cast<int>(requests_.size()), requests_.data(), &count,
                                    indices_.data(), statuses_.data());
      if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) {
        error_ = text_of(code);
        return 0;
      }
      if (count <= 0) break;
      take_ended(count, code == MPI_ERR_IN_STATUS);
    }
    const auto given = std::min(ended_.size(), static_cast<std::size_t>(capacity));
    std::copy_n(ended_.begin(), given, completions);
    ended_.erase(ended_.begin(), ended_.begin() + static_cast<long>(given));
    return static_cast<int>(given);
  }

  // No rank may free the communicator or finalise while others still send: a barrier that is
  // polled, not waited in.
  int finish() {
    const std::lock_guard lock(mpi_mutex);
    if (!finishing_ && MPI_Ibarrier(comm_, &finish_request_) != MPI_SUCCESS)
      return TANDEM_FABRIC_FAILED;
    finishing_ = true;
    int done = 0;
    if (MPI_Test(&finish_request_, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS)
      return TANDEM_FABRIC_FAILED;
    return done != 0 ? TANDEM_FABRIC_OK : TANDEM_FABRIC_AGAIN;
  }

  bool close(bool in_order) {
    const std::lock_guard lock(mpi_mutex);
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (pending_[i].sending) continue;
      MPI_Cancel(&requests_[i]);  // affects this rank only
      MPI_Request_free(&requests_[i]);
    }
    a_fabric_failed = a_fabric_failed || !in_order;
    if (in_order) MPI_Comm_free(&comm_);
    return true;
  }

 private:
  void check_world() const {
    int rank = 0;
    int size = 1;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == rank_ && size == size_) return;
    throw std::runtime_error(
        "the launcher's variables have rank " + std::to_string(rank_) + " of " +
        std::to_string(size_) + ", MPI reports rank " + std::to_string(rank) + " of " +
        std::to_string(size) +
        "; the job must be started by the mpirun of the MPI library that is loaded");
  }

  void wait(MPI_Request& request, const char* what) const {
    const auto end = Clock::now() + timeout_;
    for (int done = 0; done == 0;) {
      check(MPI_Test(&request, &done, MPI_STATUS_IGNORE), what);
      if (done != 0) return;
      if (Clock::now() > end) throw std::runtime_error(std::string("waited too long for ") + what);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  }

  struct Pending {
    void* context = nullptr;
    bool sending = false;
  };

  int started(int code, MPI_Request request, const Pending& pending) {
    if (code != MPI_SUCCESS) {
      error_ = text_of(code);
      return TANDEM_FABRIC_FAILED;
    }
    requests_.push_back(request);
    pending_.push_back(pending);
    return TANDEM_FABRIC_OK;
  }

  // Testsome has set the completed requests to null; they are removed, and the others keep their
  // order.
  void take_ended(int count, bool errors) {
    for (int i = 0; i < count; ++i) {
      const auto index = static_cast<std::size_t>(indices_[static_cast<std::size_t>(i)]);
      const int code = errors ? statuses_[static_cast<std::size_t>(i)].MPI_ERROR : MPI_SUCCESS;
      if (code != MPI_SUCCESS) error_ = text_of(code);
      ended_.push_back({pending_[index].context, code == MPI_SUCCESS ? 0 : 1});
      requests_[index] = MPI_REQUEST_NULL;
      pending_[index].context = nullptr;
    }
    std::size_t kept = 0;
    for (std::size_t i = 0; i < requests_.size(); ++i) {
      if (pending_[i].context == nullptr) continue;
      requests_[kept] = requests_[i];
      pending_[kept++] = pending_[i];
    }
    requests_.resize(kept);
    pending_.resize(kept);
  }

  // "MPICH Version: 4.0.2" out of several lines.
  static std::string first_words(const std::string& version) {
    std::string line = version.substr(0, version.find_first_of("\n,"));
    std::replace(line.begin(), line.end(), '\t', ' ');
    line.erase(
        std::unique(line.begin(), line.end(), [](char a, char b) { return a == ' ' && b == ' '; }),
        line.end());
    return line;
  }

  const int rank_;
  const int size_;
  const std::chrono::milliseconds timeout_;
  MPI_Comm comm_ = MPI_COMM_NULL;
  std::vector<MPI_Request> requests_;
  std::vector<Pending> pending_;  // for requests_
  std::vector<int> indices_;
  std::vector<MPI_Status> statuses_;
  std::vector<tandem_fabric_completion> ended_;
  MPI_Request finish_request_ = MPI_REQUEST_NULL;
  bool finishing_ = false;
  std::string description_;
  std::string error_;
};

}  // namespace
}  // namespace tandem::comm::plugins

const tandem_transport_plugin* tandem_transport_plugin_table() {
  return tandem::comm::plugins::table_of<tandem::comm::plugins::Fabric>(TANDEM_MPI_NAME);
}
