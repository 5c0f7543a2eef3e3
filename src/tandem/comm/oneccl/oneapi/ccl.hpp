// oneCCL's C++ interface for programs whose buffers are in host memory, over tandem_comm.h: header
// only, C++17. A program written for oneCCL is compiled with the folder above `oneapi` in its
// include path and linked to libtandem_comm.so. Names, arguments and enumerators are oneCCL's
// (uxlfoundation.github.io/oneCCL); docs/comm_library.md lists what is not covered.
//
//   auto kvs = rank == 0 ? ccl::create_main_kvs() : ccl::create_kvs(address);
//   auto comm = ccl::create_communicator(size, rank, kvs);
//   ccl::allreduce(send, recv, count, ccl::reduction::sum, comm).wait();
//
// Errors are ccl::exception with tandem's message. Every wait has a deadline (tdmConfig_t). Every
// rank starts the same operations in the same order.
#pragma once

#include "ccl/attributes.hpp"
#include "ccl/communicator.hpp"
#include "ccl/event.hpp"
#include "ccl/operations.hpp"
#include "ccl/types.hpp"
