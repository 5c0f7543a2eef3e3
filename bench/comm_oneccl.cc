// The rival's side of compare_comm.py for oneCCL's C++ interface (rival_clock.h describes the
// timing).
//   g++ -O2 -std=c++17 -I DIR/include -o comm_oneccl comm_oneccl.cc -L DIR/lib -lccl
//   -Wl,--allow-shlib-undefined RANK=r WORLD_SIZE=n ./comm_oneccl FILE in_place|out_of_place
//   SECONDS ROUNDS OPERATION BYTES ...
// FILE names a start line and, with ".store" behind it, a folder that rank 0 puts the address of
// its store into; neither may exist before.
#include <sched.h>
#include <sys/stat.h>

#include <fstream>
#include <oneapi/ccl.hpp>
#include <thread>

#include "rival_clock.h"

namespace {

using Address = ccl::kvs::address_type;

ccl::shared_ptr_class<ccl::kvs> meet(const rival::Work& work) {
  const std::string folder = work.file + ".store";
  mkdir(folder.c_str(), 0700);
  if (work.rank == 0) {
    auto store = ccl::create_main_kvs();
    const Address address = store->get_address();
    std::ofstream(folder + "/new", std::ios::binary).write(address.data(), address.size());
    std::rename((folder + "/new").c_str(), (folder + "/address").c_str());
    return store;
  }
  Address address;
  for (int tries = 0; tries < 1000; ++tries) {
    std::ifstream file(folder + "/address", std::ios::binary);
    if (file.read(address.data(), address.size())) return ccl::create_kvs(address);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  std::exit(4);
}

void call(const ccl::communicator& comm, const rival::Work& work, const rival::Buffers& buffers) {
  const auto [count, in, out] = buffers;
  const std::size_t part = count / static_cast<std::size_t>(work.size);
  constexpr auto kFloat = ccl::datatype::float32;
  if (work.operation == "all_reduce") {
    ccl::allreduce(work.in_place ? out : in, out, count, kFloat, ccl::reduction::sum, comm).wait();
  } else if (work.operation == "broadcast") {
    ccl::broadcast(out, count, kFloat, 0, comm).wait();
  } else if (work.operation == "reduce") {
    ccl::reduce(in, out, count, kFloat, ccl::reduction::sum, 0, comm).wait();
  } else if (work.operation == "all_gather") {
    ccl::allgather(in, out, part, kFloat, comm).wait();
  } else if (work.operation == "reduce_scatter") {
    ccl::reduce_scatter(in, out, part, kFloat, ccl::reduction::sum, comm).wait();
  } else if (work.operation == "all_to_all") {
    ccl::alltoall(in, out, part, kFloat, comm).wait();
  } else if (work.operation == "barrier") {
    ccl::barrier(comm);
  } else {
    rival::no_operation(work);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const rival::Work work(argc, argv);
  // A core each; the additional thread that oneCCL would start is turned off
  // (CCL_WORKER_OFFLOAD=0).
  cpu_set_t cores;
  CPU_ZERO(&cores);
  CPU_SET(work.rank, &cores);
  sched_setaffinity(0, sizeof cores, &cores);
  ccl::init();
  const ccl::communicator comm = ccl::create_communicator(work.size, work.rank, meet(work));
  rival::time_calls(
      work, rival::Start::kTogether,
      [&](const rival::Buffers& buffers) { call(comm, work, buffers); },
      [&](std::vector<double>& times) {
        ccl::allreduce(times.data(), times.data(), times.size(), ccl::datatype::float64,
                       ccl::reduction::max, comm)
            .wait();
      });
}
