// What gradients cost on the cable between two hosts.
#include "multihost/two_hosts_job.h"

namespace tandem::testing {
namespace {

class GradientBytes : public TwoHostsJob {
 protected:
  // Bytes that node0 sent through its only cable while the job ran, without what TCP sent twice: on a busy machine a
  // late acknowledgement makes it do so, by the megabyte.
  double sent(const TwoHosts& hosts, const std::string& output, const Words& more) {
    constexpr double kSegment = 1514;  // Ethernet's header and 1500 bytes; the last of a message is shorter
    const auto number = [&](const std::string& command) {
      return std::stod(hosts.node0.shell(command));
    };
    const auto count = [&] {
      return number("cat /proc/net/dev | sed -n 's/^ *wire: *//p' | awk '{ print $9 }'") -
             kSegment * number("awk '/^Tcp: [0-9]/ { print $13 }' /proc/net/snmp");
    };
    const double before = count();
    run_on_both(hosts, output, more);
    return count() - before;
  }
};

// Each host sends the half of its gradient that the other one sums, and the sums of its own half: the
// whole gradient once a step, 12 steps. The rest (the weights at the start, headers, heartbeats) is
// the same for both types.
TEST_F(GradientBytes, Bfloat16SendsHalf) {
  const TwoHosts hosts(path(""));
  const Words rounded = {"--gradient_dtype", "bf16"};
  const double f32 = sent(hosts, "f32", {});
  const double bf16 = sent(hosts, "bf16", rounded);
  const double gradients =
      12.0 * static_cast<double>(std::filesystem::file_size(kDemo / "model" / "model.safetensors"));
  EXPECT_GT(f32, gradients);
  EXPECT_NEAR(f32 - bf16, gradients / 2, 0.1 * gradients);
  run_ok(train_command("alone", with(rounded, {"--logical_shards", "2"})));
  EXPECT_TRUE(weights("bf16") == weights("alone"));
  EXPECT_FALSE(weights("f32") == weights("bf16"));
}

}  // namespace
}  // namespace tandem::testing
