// A host program in the shape of those written for oneCCL: ranks and the address of the kvs
// come from MPI, or, without USE_MPI, from the launcher. tests/checks/check_oneccl.py compiles and
// runs it.
#include <cstdio>
#include <numeric>
#include <oneapi/ccl.hpp>
#include <vector>

#ifdef USE_MPI
#include <mpi.h>

ccl::communicator meet() {
  int size, rank;
  MPI_Init(nullptr, nullptr);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  ccl::shared_ptr_class<ccl::kvs> kvs;
  ccl::kvs::address_type main_addr;
  if (rank == 0) {
    kvs = ccl::create_main_kvs();
    main_addr = kvs->get_address();
    MPI_Bcast((void*)main_addr.data(), main_addr.size(), MPI_BYTE, 0, MPI_COMM_WORLD);
  } else {
    MPI_Bcast((void*)main_addr.data(), main_addr.size(), MPI_BYTE, 0, MPI_COMM_WORLD);
    kvs = ccl::create_kvs(main_addr);
  }
  return ccl::create_communicator(size, rank, kvs);
}
void leave() { MPI_Finalize(); }
#else
ccl::communicator meet() { return ccl::create_communicator(); }
void leave() {}
#endif

int main() {
  ccl::init();
  {
    auto comm = meet();
    const int rank = comm.rank(), size = comm.size();
    const size_t count = 4096;
    bool good = true;

    std::vector<int> send_buf(count, rank + 1), recv_buf(count);
    ccl::allreduce(send_buf.data(), recv_buf.data(), count, ccl::reduction::sum, comm).wait();
    for (int found : recv_buf) good = good && found == size * (size + 1) / 2;

    std::vector<size_t> recv_counts(size, count);
    std::vector<int> gathered(size * count);
    ccl::allgatherv(send_buf.data(), count, gathered.data(), recv_counts, comm).wait();
    for (size_t i = 0; i < gathered.size(); i++) good = good && gathered[i] == int(i / count) + 1;

    std::vector<float> part(count), whole(size * count, float(rank));
    auto attr = ccl::create_operation_attr<ccl::reduce_scatter_attr>();
    ccl::event request = ccl::reduce_scatter(whole.data(), part.data(), count, ccl::reduction::sum,
                                             comm, ccl::create_stream(), attr);
    while (!request.test()) {
    }
    for (float found : part) good = good && found == float(size * (size - 1)) / 2;

    ccl::barrier(comm);
    if (rank == 0) std::printf("%d ranks: %s\n", size, good ? "PASSED" : "FAILED");
  }
  leave();
  return 0;
}
