// An elastic job's lock in etcd: a key with a lease. If nodes become unreachable, the holder
// continues. Next to the lock, every agent keeps its address for nodes that join after the
// endpoint's host is gone.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tandem/elastic/lock/etcd_client.h"
#include "tandem/elastic/lock/external_lock.h"

namespace tandem::elastic {

struct EtcdLockOptions {
  EtcdOptions etcd;
  std::string prefix = "/tandem";
  std::string job;                           // what distinguishes it from other jobs
  int lease_seconds = 10;                    // at least 2
  std::chrono::milliseconds timeout{30000};  // for etcd's first answer
  std::function<void(const std::string&)> log;
};

// The member functions are for one thread; a thread of its own communicates with etcd.
//
// Fencing: the lease is renewed four times in its time. held() is false once three quarters have
// passed since the last renewal was *asked* for, so before etcd can give the lock to another.
class EtcdLock final : public ExternalLock {
 public:
  // Asks for a lease. Throws ConfigError when etcd refuses, or has not answered within
  // options.timeout.
  explicit EtcdLock(EtcdLockOptions options);
  ~EtcdLock() override;
  EtcdLock(const EtcdLock&) = delete;
  EtcdLock& operator=(const EtcdLock&) = delete;

  void join(membership::NodeId self, const std::string& address) override;
  void want(bool wanted) override;
  void note_dead(membership::NodeId node) override;
  bool held() override;
  std::chrono::milliseconds interval() const override { return std::chrono::milliseconds(50); }
  std::vector<std::string> addresses() override;

 private:
  using Clock = std::chrono::steady_clock;

  std::string lock_key() const { return root_ + "lock"; }
  std::chrono::milliseconds round() const;
  void first_answer();
  void run();
  void serve();
  void renew();
  void seek_lock();
  void give_back();
  void log_problem(const std::string& problem);

  const EtcdLockOptions options_;
  const std::string root_;  // root of the job's keys
  // The thread's, after the constructor.
  EtcdClient etcd_;
  struct Lease {
    std::int64_t id = 0;
    Clock::time_point asked{};
    bool published = false;  // this node's address
  };
  Lease lease_;
  bool logged_ = false;  // whether a problem that is not over was logged

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  struct Requests {
    bool wanted = false;  // the lock
    bool ends = false;
    bool news = false;
  };
  Requests requests_;
  std::string self_, address_;
  std::set<std::string> dead_;
  std::optional<Clock::time_point> held_until_;
  std::vector<std::string> addresses_;
  std::thread thread_;
};

// Options from --rdzv-conf etcd=URL|URL, etcd_lease=SECONDS and etcd_prefix=/KEY, and from
// etcdctl's ETCDCTL_USER, ETCDCTL_CACERT, ETCDCTL_CERT and ETCDCTL_KEY; empty if etcd is not among
// the keys. Throws ConfigError.
std::optional<EtcdLockOptions> etcd_lock_options(
    const std::map<std::string, std::string>& rdzv_conf, const Environment& environment,
    const std::string& job_id, const std::string& job_token);

}  // namespace tandem::elastic
