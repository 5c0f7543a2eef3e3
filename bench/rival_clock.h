// Shared by the rivals of compare_comm.py in C++ (comm_gloo.cc, comm_oneccl.cc). A timed call
// starts from a barrier in a file that the ranks map, so one rank's lateness is not another one's
// time. A round's figure is the median over its calls of the slowest rank's time. comm_mpi.c does
// the same in C, for whatever compiler an MPI wraps.
#pragma once

#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "rival_buffers.h"

namespace rival {

struct alignas(64) Line {
  std::atomic<unsigned> value;
};

// How a timed call begins: at a barrier on which the ranks spin, which needs a core for each; or
// when the one before is done, as in a training loop, where the rival has threads of its own. Such
// a thread gets no core while ranks spin on all of them, until the system's time slice ends (4 ms),
// and each call would take that; a rank that yields instead can still be run, so it is not better
// on a busy machine. Without a barrier a waiting rank sleeps inside the rival's call.
enum class Start { kTogether, kAsTheyCome };

class StartLine {
 public:
  StartLine(const std::string& path, int rank, int size) : rank_(rank), size_(size) {
    const int file = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    if (file < 0 || ftruncate(file, 4096) != 0) std::exit(4);
    lines_ = static_cast<Line*>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
  }
  void wait() {
    lines_[rank_].value.store(++round_);
    for (int i = 0; i < size_; ++i) {
      while (static_cast<int>(lines_[i].value.load(std::memory_order_acquire) - round_) < 0) {
        __builtin_ia32_pause();
      }
    }
  }

 private:
  int rank_;
  int size_;
  Line* lines_;
  unsigned round_ = 0;
};

inline int number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) std::exit(2);
  return std::atoi(text);
}

// Arguments of main(): FILE in_place|out_of_place SECONDS ROUNDS OPERATION BYTES ...
struct Work {
  std::string file;
  bool in_place;
  double seconds;
  int rounds;
  std::string operation;
  std::vector<std::size_t> sizes;
  int rank = number("RANK");
  int size = number("WORLD_SIZE");

  Work(int argc, char** argv) {
    if (argc < 7) std::exit(2);
    file = argv[1];
    in_place = std::string(argv[2]) == "in_place";
    seconds = std::atof(argv[3]);
    rounds = std::atoi(argv[4]);
    operation = argv[5];
    for (int a = 6; a < argc; ++a) sizes.push_back(std::strtoull(argv[a], nullptr, 10));
  }
};

// The buffers of a call: `count` floats each; `out` is also the input of a call in place.
struct Buffers {
  std::size_t count;
  float* in;
  float* out;
};

// Once before anything is timed: every element that the operation writes.
template <class Call>
void verify(const Work& work, const Buffers& buffers, const Call& call) {
  rival_fill(work.rank, buffers.count, buffers.in, buffers.out);
  call(buffers);
  if (!rival_right(work.operation.c_str(), work.rank, work.size, buffers.count, buffers.out))
    std::exit(3);
}

// Times `call(buffers)` for every size; `slowest(times)` replaces each time by the largest of all
// ranks. The result is checked first.
template <class Call, class Slowest>
void time_calls(const Work& work, Start start_of_call, const Call& call, const Slowest& slowest) {
  StartLine line(work.file, work.rank, work.size);
  const auto timed = [&](std::size_t calls, const Buffers& buffers) {
    std::vector<double> times(calls);
    for (double& time : times) {
      if (start_of_call == Start::kTogether) line.wait();
      const auto start = std::chrono::steady_clock::now();
      call(buffers);
      time = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    }
    slowest(times);
    std::sort(times.begin(), times.end());
    return times[calls / 2];
  };
  for (const std::size_t bytes : work.sizes) {
    float* const in = rival_map(bytes);
    if (in == nullptr) std::exit(4);
    const Buffers buffers{bytes / sizeof(float), in, rival_out(in, bytes, work.in_place)};
    verify(work, buffers, call);
    std::memset(buffers.in, 0, bytes);
    std::memset(buffers.out, 0, bytes);
    const double trial = timed(5, buffers);
    const int calls = std::clamp(static_cast<int>(work.seconds / std::max(trial, 1e-7)), 5, 2000);
    for (int round = 0; round < work.rounds; ++round) {
      const double seconds = timed(static_cast<std::size_t>(calls), buffers);
      if (work.rank == 0)
        std::printf("%s %zu %.3f\n", work.operation.c_str(), bytes, seconds * 1e6);
    }
    rival_unmap(in, bytes);
  }
  line.wait();
  if (work.rank == 0) unlink(work.file.c_str());
}

[[noreturn]] inline void no_operation(const Work& work) {
  std::fprintf(stderr, "no operation %s here\n", work.operation.c_str());
  std::exit(2);
}

}  // namespace rival
