#include "tandem/elastic/lock/etcd_lock.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "tandem/comm/failure/block_signals.h"
#include "tandem/net/job_token.h"

namespace tandem::elastic {
namespace {

using std::chrono::milliseconds;

constexpr int kShortestLease = 2;
constexpr int kLongestLease = 3600;
constexpr milliseconds kAgain{500};  // after etcd did not answer

std::string name_of(membership::NodeId node) { return fmt::format("{:016x}", node); }

std::vector<std::string> urls_of(const std::string& text) {
  std::vector<std::string> urls;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('|', begin), text.size());
    std::string url = text.substr(begin, end - begin);
    while (url.ends_with('/')) url.pop_back();
    if (!url.starts_with("http://") && !url.starts_with("https://")) {
      raise<ConfigError>(
          "--rdzv-conf etcd={}: '{}' is not a URL; expected http://HOST:2379, or https; "
          "several members with | between them",
          text, url);
    }
    urls.push_back(std::move(url));
    begin = end + 1;
  }
  return urls;
}

int lease_of(const std::string& text) {
  int seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error == std::errc() && end == text.data() + text.size() && seconds >= kShortestLease &&
      seconds <= kLongestLease)
    return seconds;
  raise<ConfigError>("--rdzv-conf etcd_lease={} is not a number of seconds from {} to {}", text,
                     kShortestLease, kLongestLease);
}

// Jobs with another name or another token have keys of their own.
std::string keys_of(const std::string& id, const std::string& token) {
  std::string text;
  for (const auto byte : net::prove(token, {"tandem etcd", id}))
    text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text.substr(0, 32);
}

constexpr std::string_view kCertificates =
    "; ETCDCTL_CACERT is to name the authority that signed etcd's certificate, ETCDCTL_CERT and "
    "ETCDCTL_KEY "
    "what it wants to see here";

bool uses_tls(const EtcdOptions& options) {
  return std::any_of(options.urls.begin(), options.urls.end(),
                     [](const std::string& url) { return url.starts_with("https:"); });
}

}  // namespace

std::optional<EtcdLockOptions> etcd_lock_options(
    const std::map<std::string, std::string>& rdzv_conf, const Environment& environment,
    const std::string& job_id, const std::string& job_token) {
  const auto conf = [&](const char* key) -> std::optional<std::string> {
    const auto found = rdzv_conf.find(key);
    return found == rdzv_conf.end() ? std::nullopt : std::optional(found->second);
  };
  const auto urls = conf("etcd");
  if (!urls) return std::nullopt;
  EtcdLockOptions options;
  options.etcd.urls = urls_of(*urls);
  options.job = keys_of(job_id, job_token);
  if (const auto lease = conf("etcd_lease")) options.lease_seconds = lease_of(*lease);
  if (const auto prefix = conf("etcd_prefix"); prefix && !prefix->empty()) options.prefix = *prefix;
  options.etcd.request_limit =
      std::min(milliseconds(2000), milliseconds(options.lease_seconds * 1000 / 4));
  options.etcd.http.connect_timeout = options.etcd.request_limit;
  options.etcd.http.ca_bundle = environment.get("ETCDCTL_CACERT").value_or("");
  options.etcd.http.client_certificate = environment.get("ETCDCTL_CERT").value_or("");
  options.etcd.http.client_key = environment.get("ETCDCTL_KEY").value_or("");
  const std::string user = environment.get("ETCDCTL_USER").value_or("");
  const std::size_t colon = std::min(user.find(':'), user.size());
  options.etcd.user = user.substr(0, colon);
  options.etcd.password = colon < user.size() ? user.substr(colon + 1) : "";
  return options;
}

EtcdLock::EtcdLock(EtcdLockOptions options)
    : options_(std::move(options)),
      root_(fmt::format("{}/{}/", options_.prefix, options_.job)),
      etcd_(options_.etcd) {
  first_answer();
  const comm::BlockSignals blocked;  // they are for the agent
  thread_ = std::thread([this] { run(); });
}

EtcdLock::~EtcdLock() {
  {
    const std::lock_guard lock(mutex_);
    requests_.ends = true;
  }
  changed_.notify_one();
  thread_.join();
}

void EtcdLock::first_answer() {
  const auto limit = Clock::now() + options_.timeout;
  while (true) {
    try {
      lease_.asked = Clock::now();
      lease_.id = etcd_.grant(options_.lease_seconds);
      addresses_ = etcd_.list(root_ + "agents/");
      return;
    } catch (const EtcdSilent& error) {
      log_problem(error.what());
      if (Clock::now() + kAgain >= limit) {
        raise<ConfigError>("{} within {} s; check --rdzv-conf etcd=URL{}", error.what(),
                           options_.timeout.count() / 1000,
                           uses_tls(options_.etcd) ? kCertificates : "");
      }
      std::this_thread::sleep_for(kAgain);
    }
  }
}

void EtcdLock::join(membership::NodeId self, const std::string& address) {
  const std::lock_guard lock(mutex_);
  self_ = name_of(self);
  address_ = address;
  requests_.news = true;
  changed_.notify_one();
}

void EtcdLock::want(bool wanted) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(requests_.wanted, wanted) == wanted) return;
  if (!wanted) held_until_.reset();
  requests_.news = true;
  changed_.notify_one();
}

void EtcdLock::note_dead(membership::NodeId node) {
  const std::lock_guard lock(mutex_);
  requests_.news = dead_.insert(name_of(node)).second || requests_.news;
  changed_.notify_one();
}

bool EtcdLock::held() {
  const std::lock_guard lock(mutex_);
  return held_until_ && Clock::now() < *held_until_;
}

std::vector<std::string> EtcdLock::addresses() {
  const std::lock_guard lock(mutex_);
  return addresses_;
}

// ---- the thread ----

milliseconds EtcdLock::round() const { return milliseconds(options_.lease_seconds * 1000 / 4); }

void EtcdLock::run() {
  std::unique_lock lock(mutex_);
  while (!requests_.ends) {
    requests_.news = false;
    lock.unlock();
    milliseconds pause = round();
    try {
      serve();
      log_problem("");
    } catch (const std::exception& error) {  // also an answer that makes no sense
      log_problem(error.what());
      pause = std::min(pause, kAgain);
    }
    lock.lock();
    changed_.wait_for(lock, pause, [this] { return requests_.ends || requests_.news; });
  }
  lock.unlock();
  give_back();
}

void EtcdLock::serve() {
  renew();
  seek_lock();
  auto found = etcd_.list(root_ + "agents/");
  const std::lock_guard lock(mutex_);
  std::erase(found, address_);
  addresses_ = std::move(found);
}

void EtcdLock::renew() {
  const auto asked = Clock::now();
  if (lease_.id != 0 && etcd_.keep_alive(lease_.id)) {
    lease_.asked = asked;
  } else {
    lease_.id = 0;
    lease_.published = false;
    lease_.asked = Clock::now();
    lease_.id = etcd_.grant(options_.lease_seconds);
  }
  std::unique_lock lock(mutex_);
  if (lease_.published || address_.empty()) return;
  const std::string key = root_ + "agents/" + self_, address = address_;
  lock.unlock();
  etcd_.put(key, address, lease_.id);
  lease_.published = true;
}

// Taken, kept or given back. That it is this node's may also be seen by its value: the answer to
// the first attempt may have been lost.
void EtcdLock::seek_lock() {
  std::unique_lock lock(mutex_);
  const std::string self = self_;
  const bool wanted = requests_.wanted && !self.empty();
  const auto dead = dead_;
  lock.unlock();
  if (self.empty()) return;
  bool mine = false;
  if (!wanted) {
    etcd_.erase_if(lock_key(), self);
  } else if (!(mine = etcd_.put_if(lock_key(), std::nullopt, self, lease_.id))) {
    const auto holder = etcd_.get(lock_key());
    if (holder && (*holder == self || dead.contains(*holder)))
      mine = etcd_.put_if(lock_key(), *holder, self, lease_.id);
  }
  lock.lock();
  if (!mine || !requests_.wanted) return held_until_.reset();
  held_until_ = lease_.asked + round() * 3;
}

// Others need not wait for the lease to run out.
void EtcdLock::give_back() {
  try {
    if (lease_.id != 0) etcd_.revoke(lease_.id);
  } catch (const std::exception&) {  // it runs out by itself
  }
}

// Once until it is over.
void EtcdLock::log_problem(const std::string& problem) {
  if (std::exchange(logged_, !problem.empty()) == !problem.empty() || !options_.log) return;
  options_.log(problem.empty() ? "etcd answers again"
                               : problem +
                                     "; it is asked again. Without it the job stops when "
                                     "the lease of the lock runs out");
}

}  // namespace tandem::elastic
