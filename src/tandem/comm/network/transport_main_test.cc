// The tests of comm with another transport: --transport=ofi, gloo, …. Without its plugin or library
// no test runs: the program prints the reason and ends with 77, which ctest takes for skipped.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstring>
#include <iostream>

#include "tandem/comm/collectives/test_ranks.h"
#include "tandem/comm/network/plugin_fabric.h"

namespace tandem::comm {
namespace {

// In a separate process, for libraries that do not survive a fork: the tests fork.
bool can_be_loaded(const TransportOptions& options) {
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    try {
      PluginFabric(options, 0, 1, std::chrono::seconds(10), "127.0.0.1");
    } catch (const Error& error) {
      std::cout << "SKIPPED: " << error.what() << std::endl;
      ::_exit(1);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

}  // namespace
}  // namespace tandem::comm

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  tandem::comm::TransportOptions& transport = tandem::comm::testing::test_transport();
  constexpr const char* kFlag = "--transport=";
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], kFlag, std::strlen(kFlag)) == 0)
      transport.name = argv[i] + std::strlen(kFlag);
  }
  if (!GTEST_FLAG_GET(list_tests) && transport.is_plugin() &&
      !tandem::comm::can_be_loaded(transport))
    return 77;
  return RUN_ALL_TESTS();
}
