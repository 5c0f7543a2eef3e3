// The rival's side of compare_comm.py for Gloo (rival_clock.h describes the timing).
//   g++ -O2 -std=c++17 -o comm_gloo comm_gloo.cc -lgloo -pthread
//   RANK=r WORLD_SIZE=n ./comm_gloo FILE in_place|out_of_place SECONDS ROUNDS OPERATION BYTES ...
// FILE names a start line and, with ".store" behind it, the folder in which the ranks meet; neither
// may exist before. GLOO_HOST: this rank's address, 127.0.0.1 without it.
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
#include <sys/stat.h>

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "rival_clock.h"

namespace {

using ReduceFunction = void (*)(void*, const void*, const void*, std::size_t);

void call(const std::shared_ptr<gloo::Context>& context, const rival::Work& work,
          const rival::Buffers& buffers) {
  const auto [count, in, out] = buffers;
  const std::string& operation = work.operation;
  const auto sum = static_cast<ReduceFunction>(&gloo::sum<float>);
  const std::size_t part = count / static_cast<std::size_t>(context->size);
  if (operation == "all_reduce") {
    gloo::AllreduceOptions options(context);
    if (!work.in_place) options.setInput(in, count);
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
    rival::no_operation(work);
  }
}

void slowest(const std::shared_ptr<gloo::Context>& context, std::vector<double>& times) {
  gloo::AllreduceOptions options(context);
  options.setOutput(times.data(), times.size());
  options.setReduceFunction(static_cast<ReduceFunction>(&gloo::max<double>));
  gloo::allreduce(options);
}

// Makes the calls one after the other while the caller sleeps, as ProcessGroupGloo does.
class CallingThread {
 public:
  CallingThread() : thread_([this] { work(); }) {}
  ~CallingThread() {
    run(nullptr);
    thread_.join();
  }
  void run(const std::function<void()>& call) {
    std::unique_lock lock(mutex_);
    call_ = &call;
    changed_.notify_all();
    changed_.wait(lock, [&] { return call_ == nullptr; });
  }

 private:
  void work() {
    for (bool more = true; more;) {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return call_ != nullptr; });
      more = static_cast<bool>(*call_);
      if (more) (*call_)();
      call_ = nullptr;
      changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  const std::function<void()>* call_ = nullptr;  // an empty one ends the thread
  std::thread thread_;
};

}  // namespace

int main(int argc, char** argv) {
  const rival::Work work(argc, argv);
  // Not bound to a core: Gloo has threads of its own. comm_torch.py shows whether the figures do it
  // justice; compare_comm.py starts this several times.
  mkdir((work.file + ".store").c_str(), 0700);
  gloo::rendezvous::FileStore store(work.file + ".store");
  gloo::transport::tcp::attr where;
  const char* host = std::getenv("GLOO_HOST");
  where.hostname = host == nullptr ? "127.0.0.1" : host;
  auto device = gloo::transport::tcp::CreateDevice(where);
  auto context = std::make_shared<gloo::rendezvous::Context>(work.rank, work.size);
  context->connectFullMesh(store, device);
  CallingThread calls;
  rival::time_calls(
      work, rival::Start::kAsTheyCome,
      [&](const rival::Buffers& buffers) { calls.run([&] { call(context, work, buffers); }); },
      [&](std::vector<double>& times) { slowest(context, times); });
}
