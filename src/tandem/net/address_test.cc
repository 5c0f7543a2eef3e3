#include "tandem/net/address.h"

#include <gtest/gtest.h>

namespace tandem::net {
namespace {

TEST(Address, HostsAreTakenApartAndPutTogether) {
  const auto expect = [](const char* text, const std::string& host, std::optional<int> number) {
    const auto split = split_host(text);
    ASSERT_TRUE(split) << text;
    EXPECT_EQ(split->host, host);
    EXPECT_EQ(split->number, number);
    EXPECT_EQ(join_host(host, number.value_or(1)), number ? text : join_host(host, 1));
  };
  expect("node0", "node0", std::nullopt);
  expect("node0.cluster:29500", "node0.cluster", 29500);
  expect("10.0.0.5:0", "10.0.0.5", 0);
  expect("fe80::1", "fe80::1", std::nullopt);
  expect("[fe80::1]", "fe80::1", std::nullopt);
  expect("[fe80::1%eth0]:9", "fe80::1%eth0", 9);
  for (const char* text : {"", ":9", "[]:9", "[fe80::1", "[fe80::1]9", "host:", "host:x", "host:9x",
                           "host:-1", "host:99999999999"}) {
    EXPECT_FALSE(split_host(text)) << text;
  }
}

TEST(Address, AddressesNeedNoLookupAndAreThereOnce) {
  for (const std::string text : {"127.0.0.1", "::1"}) {
    const Resolved resolved = resolve(text, 80, AI_NUMERICHOST);
    ASSERT_EQ(resolved.addresses.size(), 1u) << resolved.failure;
    EXPECT_EQ(resolved.addresses[0].text, text);
  }
  const Resolved name = resolve("localhost", 80, AI_NUMERICHOST);
  EXPECT_TRUE(name.addresses.empty());
  EXPECT_NE(name.failure, "");
}

}  // namespace
}  // namespace tandem::net
