// The external lock against a real etcd: one holder, leases that run out, a dead etcd, users.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <thread>

#include "support/ports.h"
#include "support/process.h"
#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/elastic/lock/etcd_lock.h"

namespace tandem::elastic {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Process;
using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

template <class Condition>
bool within(std::chrono::milliseconds limit, Condition condition) {
  const auto end = Clock::now() + limit;
  while (Clock::now() < end) {
    if (condition()) return true;
    std::this_thread::sleep_for(5ms);
  }
  return condition();
}

class Etcd : public ::testing::Test {
 protected:
  void SetUp() override {
    if (testing::find_program("etcd").empty()) GTEST_SKIP() << "needs etcd (package etcd-server)";
    start();
  }
  void start(const std::vector<std::string>& more = {}) {
    const std::string peer = fmt::format("http://127.0.0.1:{}", peer_port_);
    std::vector<std::string> words = {testing::find_program("etcd"),
                                      "--data-dir",
                                      (folder_ / "etcd").native(),
                                      "--name",
                                      "one",
                                      "--listen-client-urls",
                                      url(),
                                      "--advertise-client-urls",
                                      url(),
                                      "--listen-peer-urls",
                                      peer,
                                      "--initial-advertise-peer-urls",
                                      peer,
                                      "--initial-cluster",
                                      "one=" + peer};
    words.insert(words.end(), more.begin(), more.end());
    server_ = std::make_unique<Process>(words);
  }
  std::string url() const { return fmt::format("{}://127.0.0.1:{}", scheme_, port_); }
  EtcdLockOptions options(int lease, const std::string& id = "job", const std::string& token = "t",
                          const std::string& user = "") const {
    return options(lease, Environment({{"ETCDCTL_USER", user}}), id, token);
  }
  EtcdLockOptions options(int lease, const Environment& environment, const std::string& id = "job",
                          const std::string& token = "t") const {
    auto all = etcd_lock_options({{"etcd", url()}, {"etcd_lease", std::to_string(lease)}},
                                 environment, id, token);
    all->log = [](const std::string& line) { GTEST_LOG_(INFO) << line; };
    return *all;
  }
  std::unique_ptr<EtcdLock> agent(membership::NodeId node, const EtcdLockOptions& options) const {
    auto lock = std::make_unique<EtcdLock>(options);
    lock->join(node, fmt::format("host{}:1", node));
    return lock;
  }

  testing::TemporaryFolder folder_;
  std::string scheme_ = "http";
  int port_ = testing::free_port();
  int peer_port_ = testing::free_port();
  std::unique_ptr<Process> server_;
};

TEST_F(Etcd, OneHasTheLockAndEachFindsTheOthers) {
  const auto first = agent(1, options(4)), second = agent(2, options(4));
  first->want(true);
  ASSERT_TRUE(within(10s, [&] { return first->held(); }));
  second->want(true);
  EXPECT_FALSE(within(2s, [&] { return second->held(); }));
  EXPECT_TRUE(first->held());
  EXPECT_TRUE(
      within(10s, [&] { return first->addresses() == std::vector<std::string>{"host2:1"}; }));
  // Another job, or the same name with another token, has a lock of its own.
  const auto other = agent(3, options(4, "job", "u"));
  other->want(true);
  EXPECT_TRUE(within(10s, [&] { return other->held(); }));
  EXPECT_TRUE(other->addresses().empty());
  first->want(false);
  EXPECT_FALSE(first->held());
  EXPECT_TRUE(within(10s, [&] { return second->held(); }));
}

// Its lease lasts another hour; the second agent does not wait for that.
TEST_F(Etcd, ACertainlyDeadHolderHasLostIt) {
  const auto first = agent(1, options(3600)), second = agent(2, options(8));
  first->want(true);
  ASSERT_TRUE(within(10s, [&] { return first->held(); }));
  second->want(true);
  second->note_dead(1);
  EXPECT_TRUE(within(10s, [&] { return second->held(); }));
}

// The fence: an agent that cannot renew its lease knows before etcd gives the lock to another.
TEST_F(Etcd, WithoutEtcdTheLockIsLostInTimeAndComesBack) {
  constexpr int kLease = 2;
  const auto first = agent(1, options(kLease));
  first->want(true);
  ASSERT_TRUE(within(10s, [&] { return first->held(); }));
  server_->signal(SIGKILL);
  server_->wait();
  EXPECT_TRUE(within(std::chrono::seconds(kLease), [&] { return !first->held(); }));
  start();
  EXPECT_TRUE(within(20s, [&] { return first->held(); }));
  // The whole server stands still, as behind a cut: the connection is there, no answer comes.
  server_->signal(SIGSTOP);
  EXPECT_TRUE(within(std::chrono::seconds(kLease), [&] { return !first->held(); }));
  server_->signal(SIGCONT);
  EXPECT_TRUE(within(20s, [&] { return first->held(); }));
}

std::string why_not(EtcdLockOptions options) {
  options.timeout = 1s;
  try {
    const EtcdLock lock(options);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST_F(Etcd, AServerThatIsNotEtcdIsNamed) {
  EtcdLockOptions wrong = options(2);
  wrong.etcd.urls = {fmt::format("http://127.0.0.1:{}", testing::free_port())};
  EXPECT_THAT(why_not(wrong), HasSubstr("check --rdzv-conf etcd=URL"));
  wrong.etcd.urls.push_back(url());  // one of several members is enough
  EXPECT_TRUE(within(10s, [&] { return why_not(wrong).empty(); }));
}

TEST_F(Etcd, UsersHaveToAuthenticate) {
  const std::string control = testing::find_program("etcdctl");
  if (control.empty()) GTEST_SKIP() << "needs etcdctl (package etcd-client)";
  ASSERT_TRUE(within(10s, [&] { return why_not(options(2)).empty(); }));
  for (const char* const words :
       {"user add root:secret", "user grant-role root root", "auth enable"}) {
    const auto result =
        testing::run({"/bin/sh", "-c", fmt::format("{} --endpoints {} {}", control, url(), words)},
                     {{"ETCDCTL_API", "3"}});
    EXPECT_EQ(result.exit_code, 0) << words << result.err;
  }
  // A busy etcd takes a while to compare a password, and a request may take a quarter of the lease.
  EXPECT_THAT(why_not(options(8)), HasSubstr("ETCDCTL_USER"));
  EXPECT_THAT(why_not(options(8, "job", "t", "root:wrong")), HasSubstr("ETCDCTL_USER"));
  const auto first = agent(1, options(8, "job", "t", "root:secret"));
  first->want(true);
  EXPECT_TRUE(within(10s, [&] { return first->held(); }));
}

// Certificates of its own: an authority, what it has signed for the server and for a client, and an
// authority that signed neither.
class EtcdOverTls : public Etcd {
 protected:
  void SetUp() override {
    if (testing::find_program("etcd").empty()) GTEST_SKIP() << "needs etcd (package etcd-server)";
    if (testing::find_program("openssl").empty()) GTEST_SKIP() << "needs openssl";
    scheme_ = "https";
    make_authority("ca");
    make_authority("other");
    for (const char* const name : {"server", "client"}) sign(name);
    start({"--cert-file", file("server.pem"), "--key-file", file("server.key"), "--trusted-ca-file",
           file("ca.pem"), "--client-cert-auth"});
  }
  std::string file(const std::string& name) const { return (folder_ / name).native(); }
  void openssl(const std::string& words) const {
    const auto result = testing::run({"/bin/sh", "-c", "openssl " + words});
    ASSERT_EQ(result.exit_code, 0) << words << result.err;
  }
  void make_authority(const std::string& name) const {
    openssl(
        fmt::format("req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
                    "-subj /CN={} -keyout {} -out {}",
                    name, file(name + ".key"), file(name + ".pem")));
  }
  void sign(const std::string& name) const {
    write_file(file(name + ".ext"), "subjectAltName=IP:127.0.0.1\n");
    openssl(
        fmt::format("req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj /CN={} "
                    "-keyout {} -out {}",
                    name, file(name + ".key"), file(name + ".csr")));
    openssl(
        fmt::format("x509 -req -in {} -CA {} -CAkey {} -CAcreateserial -days 2 -extfile {} "
                    "-out {}",
                    file(name + ".csr"), file("ca.pem"), file("ca.key"), file(name + ".ext"),
                    file(name + ".pem")));
  }
  Environment with(const std::string& authority, bool own_certificate) const {
    std::map<std::string, std::string, std::less<>> variables{
        {"ETCDCTL_CACERT", file(authority + ".pem")}};
    if (own_certificate) {
      variables["ETCDCTL_CERT"] = file("client.pem");
      variables["ETCDCTL_KEY"] = file("client.key");
    }
    return Environment(variables);
  }
};

TEST_F(EtcdOverTls, BothSidesShowCertificates) {
  const auto first = agent(1, options(4, with("ca", true)));
  first->want(true);
  ASSERT_TRUE(within(10s, [&] { return first->held(); }));
  EXPECT_THAT(why_not(options(8, with("ca", false))), HasSubstr("ETCDCTL_CERT"));
  EXPECT_THAT(why_not(options(8, with("other", true))),
              AllOf(HasSubstr("SSL certificate problem"), HasSubstr("ETCDCTL_CACERT")));
}

TEST(EtcdOptions, AreReadFromTheCommandLine) {
  const Environment none;
  EXPECT_FALSE(etcd_lock_options({}, none, "job", ""));
  const auto two = etcd_lock_options({{"etcd", "http://a:2379/|https://b:1"}}, none, "job", "");
  EXPECT_THAT(two->etcd.urls, ElementsAre("http://a:2379", "https://b:1"));
  EXPECT_THROW(etcd_lock_options({{"etcd", "a:2379"}}, none, "job", ""), ConfigError);
  EXPECT_THROW(etcd_lock_options({{"etcd", "http://a"}, {"etcd_lease", "1"}}, none, "job", ""),
               ConfigError);
}

}  // namespace
}  // namespace tandem::elastic
