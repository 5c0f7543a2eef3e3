// Bytes of gradients on the cable between two hosts.
#include "multihost/two_hosts_job.h"

namespace tandem::testing {
namespace {

class GradientBytes : public TwoHostsJob {
 protected:
  // Sent by node0 through its only cable while the job ran, with the fixed table of algorithms: one
  // that is measured at the start may, on a busy machine, take one that sends more in fewer rounds.
  double sent(const TwoHosts& hosts, const std::string& output, const Words& more) {
    const auto count = [&] {
      return std::stod(
          hosts.node0.shell("cat /proc/net/dev | sed -n 's/^ *wire: *//p'"
                            " | awk '{ print $9 }'"));
    };
    const double before = count();
    run_on_both(hosts, output, more, {{"TANDEM_COMM_TUNING", "0"}});
    return count() - before;
  }
};

// Each host sends the half of its gradient that the other one sums, and the sums of its own half:
// the whole gradient once a step, 12 steps. The rest (the weights at the start, headers,
// heartbeats) is the same for both types.
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
