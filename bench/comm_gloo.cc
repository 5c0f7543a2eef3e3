// The rival's side of compare_comm.py for Gloo: times its collectives as comm_mpi.c times those of an MPI (which says how).
//   g++ -O2 -std=c++17 -o comm_gloo comm_gloo.cc -lgloo -pthread
//   RANK=r WORLD_SIZE=n ./comm_gloo FILE in_place|out_of_place SECONDS ROUNDS OPERATION BYTES ...
// FILE names a start line and, with ".store" behind it, the folder in which the ranks meet; neither may exist before. GLOO_HOST: this
// rank's address, 127.0.0.1 without it.
#include <fcntl.h>
#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/gather.h>
#include <gloo/math.h>
#include <gloo/reduce.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

struct alignas(64) Line {
  std::atomic<unsigned> value;
};

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
      while (static_cast<int>(lines_[i].value.load(std::memory_order_acquire) - round_) < 0)
        __builtin_ia32_pause();
    }
  }

 private:
  int rank_;
  int size_;
  Line* lines_;
  unsigned round_ = 0;
};

float* pages(std::size_t bytes) {
  return static_cast<float*>(
      mmap(nullptr, bytes + 64, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
}

struct Job {
  std::shared_ptr<gloo::Context> context;
  std::string operation;
  bool in_place;
  std::size_t count;
  float* in;
  float* out;

  void call() const {
    const auto sum =
        static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::sum<float>);
    const std::size_t part = count / static_cast<std::size_t>(context->size);
    if (operation == "all_reduce") {
      gloo::AllreduceOptions options(context);
      if (!in_place) options.setInput(in, count);
      options.setOutput(out, count);
      options.setReduceFunction(sum);
      gloo::allreduce(options);
    } else if (operation == "broadcast") {
      gloo::BroadcastOptions options(context);
      options.setOutput(out, count);
      options.setRoot(0);
      gloo::broadcast(options);
    } else if (operation == "reduce") {
      gloo::ReduceOptions options(context);
      options.setInput(in, count);
      options.setOutput(out, count);
      options.setRoot(0);
      options.setReduceFunction(sum);
      gloo::reduce(options);
    } else if (operation == "all_gather") {
      gloo::AllgatherOptions options(context);
      options.setInput(in, part);
      options.setOutput(out, count);
      gloo::allgather(options);
    } else if (operation == "all_to_all") {
      gloo::AlltoallOptions options(context);
      options.setInput(in, count);
      options.setOutput(out, count);
      gloo::alltoall(options);
    } else if (operation == "gather") {
      gloo::GatherOptions options(context);
      options.setInput(in, part);
      options.setOutput(out, count);
      options.setRoot(0);
      gloo::gather(options);
    } else if (operation == "barrier") {
      gloo::BarrierOptions options(context);
      gloo::barrier(options);
    } else {
      std::fprintf(stderr, "comm_gloo: no operation %s\n", operation.c_str());
      std::exit(2);
    }
  }

  // Sums of (i + rank) mod 7 must come out.
  void verify() const {
    if (operation != "all_reduce") return;
    for (std::size_t i = 0; i < count; ++i)
      in[i] = out[i] = static_cast<float>((i + static_cast<std::size_t>(context->rank)) % 7);
    call();
    for (std::size_t i = 0; i < count; ++i) {
      float expected = 0;
      for (std::size_t r = 0; r < static_cast<std::size_t>(context->size); ++r)
        expected += static_cast<float>((i + r) % 7);
      if (out[i] == expected) continue;
      std::fprintf(stderr, "comm_gloo: wrong sum at %zu of %zu\n", i, count);
      std::exit(3);
    }
  }

  double seconds() const {
    const auto start = std::chrono::steady_clock::now();
    call();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }
};

// The slowest rank's time of each call.
void slowest(const std::shared_ptr<gloo::Context>& context, std::vector<double>& times) {
  gloo::AllreduceOptions options(context);
  options.setOutput(times.data(), times.size());
  options.setReduceFunction(
      static_cast<void (*)(void*, const void*, const void*, std::size_t)>(&gloo::max<double>));
  gloo::allreduce(options);
}

int number(const char* name) {
  const char* text = std::getenv(name);
  if (text == nullptr) std::exit(2);
  return std::atoi(text);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 7) return 2;
  const int rank = number("RANK");
  const int size = number("WORLD_SIZE");
  // Not bound to a core: Gloo's own thread would share it with its rank, and every call take a time slice of 4 ms.
  const std::string path = argv[1];
  mkdir((path + ".store").c_str(), 0700);
  gloo::rendezvous::FileStore store(path + ".store");
  gloo::transport::tcp::attr where;
  const char* host = std::getenv("GLOO_HOST");
  where.hostname = host == nullptr ? "127.0.0.1" : host;
  auto device = gloo::transport::tcp::CreateDevice(where);
  auto context = std::make_shared<gloo::rendezvous::Context>(rank, size);
  context->connectFullMesh(store, device);
  StartLine line(path, rank, size);
  const double seconds = std::atof(argv[3]);
  const int rounds = std::atoi(argv[4]);
  for (int a = 6; a < argc; ++a) {
    const std::size_t bytes = std::strtoull(argv[a], nullptr, 10);
    Job job{context,      argv[5],     std::string(argv[2]) == "in_place", bytes / sizeof(float),
            pages(bytes), pages(bytes)};
    job.verify();
    std::memset(job.in, 0, bytes);
    std::memset(job.out, 0, bytes);
    std::vector<double> trial(5);
    for (double& time : trial) {
      line.wait();
      time = job.seconds();
    }
    slowest(context, trial);
    std::sort(trial.begin(), trial.end());
    const int iterations =
        std::clamp(static_cast<int>(seconds / std::max(trial[2], 1e-7)), 5, 2000);
    for (int round = 0; round < rounds; ++round) {
      std::vector<double> times(static_cast<std::size_t>(iterations));
      for (double& time : times) {
        line.wait();
        time = job.seconds();
      }
      slowest(context, times);
      std::sort(times.begin(), times.end());
      if (rank == 0) std::printf("%s %zu %.3f\n", argv[5], bytes, times[times.size() / 2] * 1e6);
    }
    munmap(job.in, bytes + 64);
    munmap(job.out, bytes + 64);
  }
  line.wait();
  if (rank == 0) unlink(argv[1]);
  return 0;
}
