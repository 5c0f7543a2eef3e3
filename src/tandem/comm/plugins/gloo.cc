// Transport plugin over Gloo's tcp device: unbound buffers sent and received by slot. A thread of
// Gloo moves the bytes.
//
// Gloo can wait for a send or receive but cannot test it, and a wait that times out closes every
// connection. So threads of the plugin wait, without a limit, and add completed operations to a
// list:
//   packets  one thread for all ranks: packets are received from any rank and distributed by sender
//   bodies   one thread for all ranks: a body was sent before its receive is posted, so a wait for
//            one of them delays others only for the time of the transfer
//   sends    one thread per destination rank: a send may have to wait for that rank's actions
// Every pair of ranks has a separate socket with its own address; address() is the list of this
// rank's, by peer.
#include <gloo/transport/context.h>
#include <gloo/transport/tcp/device.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <ctime>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "tandem/comm/plugins/support.h"

namespace tandem::comm::plugins {
namespace {

namespace transport = ::gloo::transport;

// A wait ends with the completion, with a failure of the connection, or with abortWait…() at the
// end of the plugin.
constexpr std::chrono::hours kNoLimit{24 * 365};

// Gloo writes to sockets that the other rank may have closed, which raises SIGPIPE in the writing
// thread and would end the process. While such an object lives the signal is blocked; threads
// started meanwhile, including Gloo's own, never receive it.
class NoBrokenPipes {
 public:
  NoBrokenPipes() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipes() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    constexpr timespec kNow{};
    while (::sigtimedwait(&pipe_, nullptr, &kNow) == SIGPIPE) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipes(const NoBrokenPipes&) = delete;
  NoBrokenPipes& operator=(const NoBrokenPipes&) = delete;

 private:
  sigset_t pipe_;
  sigset_t before_;
};

// Completions to be passed from the threads to poll().
class Ended {
 public:
  Ended() : event_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (event_ < 0) throw std::runtime_error("no descriptor is left for eventfd");
  }
  ~Ended() { ::close(event_); }
  Ended(const Ended&) = delete;
  Ended& operator=(const Ended&) = delete;

  void add(void* context, const std::string& error) {
    const std::lock_guard lock(mutex_);
    list_.push_back({context, error.empty() ? 0 : 1});
    if (!error.empty()) error_ = error;
    if (list_.size() == 1) ::eventfd_write(event_, 1);
  }
  int take(tandem_fabric_completion* completions, int capacity) {
    const std::lock_guard lock(mutex_);
    if (list_.empty()) return 0;
    int count = 0;
    for (; count < capacity && !list_.empty(); list_.pop_front()) {
      completions[count++] = list_.front();
    }
    if (list_.empty()) {
      eventfd_t ignored = 0;
      ::eventfd_read(event_, &ignored);
    }
    return count;
  }
  int event() const { return event_; }
  std::string error() {
    const std::lock_guard lock(mutex_);
    return error_;
  }

 private:
  const int event_;
  std::mutex mutex_;
  std::deque<tandem_fabric_completion> list_;
  std::string error_;
};

// A thread that waits for sends or receives in the order in which it received them.
class Waiter {
 public:
  Waiter(bool sends, Ended& ended) : sends_(sends), ended_(ended), thread_([this] { run(); }) {}
  ~Waiter() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      for (const Waiting& one : queue_) abort(*one.buffer);
      changed_.notify_all();
    }
    thread_.join();
  }
  Waiter(const Waiter&) = delete;
  Waiter& operator=(const Waiter&) = delete;

  void add(std::unique_ptr<transport::UnboundBuffer> buffer, void* context) {
    const std::lock_guard lock(mutex_);
    queue_.push_back({std::move(buffer), context});
    changed_.notify_all();
  }

 private:
  struct Waiting {
    std::unique_ptr<transport::UnboundBuffer> buffer;
    void* context;
  };

  void abort(transport::UnboundBuffer& buffer) const {
    sends_ ? buffer.abortWaitSend() : buffer.abortWaitRecv();
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || !queue_.empty(); });
      if (stop_) return;
      const Waiting& front = queue_.front();  // stays valid: only this thread removes the front
      lock.unlock();
      std::string error;
      bool completed = false;
      try {
        completed = sends_ ? front.buffer->waitSend(kNoLimit) : front.buffer->waitRecv(kNoLimit);
      } catch (const std::exception& exception) {
        error = exception.what();
      }
      if (completed || !error.empty()) ended_.add(front.context, error);
      lock.lock();
      if (stop_) return;
      queue_.pop_front();
    }
  }

  const bool sends_;
  Ended& ended_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Waiting> queue_;  // references to its elements stay valid when others are added
  bool stop_ = false;
  std::thread thread_;
};

// Receives packets from any rank and passes each sender's, in order, to the receives posted for it.
class PacketReceiver {
 public:
  PacketReceiver(transport::Context& context, Ended& ended)
      : context_(context), ended_(ended), peers_(static_cast<std::size_t>(context.size)) {
    for (int rank = 0; rank < context.size; ++rank) {
      if (rank != context.rank) others_.push_back(rank);
    }
    for (std::size_t i = 0; i < kPosted; ++i) post();
    thread_ = std::thread([this] { run(); });
  }
  ~PacketReceiver() {
    {
      const std::lock_guard lock(mutex_);
      stop_ = true;
      for (auto& slot : posted_) slot->buffer->abortWaitRecv();
      room_.notify_all();
    }
    thread_.join();
  }
  PacketReceiver(const PacketReceiver&) = delete;
  PacketReceiver& operator=(const PacketReceiver&) = delete;

  void receive(int peer, void* data, std::size_t bytes, void* context) {
    const std::lock_guard lock(mutex_);
    Peer& from = peers_[static_cast<std::size_t>(peer)];
    from.receives.push_back({data, bytes, context});
    deal_out(from);
  }

 private:
  static constexpr std::size_t kPosted = 16;
  // Packets without a posted receive; beyond this number senders wait.
  static constexpr std::size_t kKept = 1024;
  using Packet = std::array<char, TANDEM_FABRIC_PACKET_BYTES>;
  struct Slot {
    Packet packet;
    std::unique_ptr<transport::UnboundBuffer> buffer;
  };
  struct Receive {
    void* data;
    std::size_t bytes;
    void* context;
  };
  struct Peer {
    std::deque<Receive> receives;
    std::deque<std::unique_ptr<Slot>> packets;
  };

  void post() {
    auto slot = std::make_unique<Slot>();
    slot->buffer = context_.createUnboundBuffer(slot->packet.data(), slot->packet.size());
    slot->buffer->recv(others_, TANDEM_FABRIC_PACKET);
    posted_.push_back(std::move(slot));
  }

  void deal_out(Peer& from) {
    while (!from.receives.empty() && !from.packets.empty()) {
      const Receive& receive = from.receives.front();
      std::memcpy(receive.data, from.packets.front()->packet.data(),
                  std::min(receive.bytes, sizeof(Packet)));
      ended_.add(receive.context, "");
      from.receives.pop_front();
      from.packets.pop_front();
      --kept_;
      room_.notify_all();
    }
  }

  // Packets are matched with buffers in the order of posting, so the oldest buffer is filled next.
  void run() {
    std::unique_lock lock(mutex_);
    while (!stop_) {
      Slot& oldest = *posted_.front();
      lock.unlock();
      int rank = -1;
      bool completed = false;
      try {
        completed = oldest.buffer->waitRecv(&rank, kNoLimit);
      } catch (const std::exception&) {
        return;  // a connection broke: the sends and bodies to that rank report it
      }
      lock.lock();
      if (!completed || stop_) return;
      Peer& from = peers_[static_cast<std::size_t>(rank)];
      from.packets.push_back(std::move(posted_.front()));
      from.packets.back()->buffer.reset();
      posted_.pop_front();
      ++kept_;
      deal_out(from);
      room_.wait(lock, [this] { return stop_ || kept_ < kKept; });
      if (!stop_) post();
    }
  }

  transport::Context& context_;
  Ended& ended_;
  std::vector<int> others_;
  std::mutex mutex_;
  std::condition_variable room_;
  std::deque<std::unique_ptr<Slot>> posted_;
  std::vector<Peer> peers_;
  std::size_t kept_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

class Fabric {
 public:
  explicit Fabric(const tandem_fabric_config& config)
      : rank_(config.rank), size_(config.world_size) {
    const NoBrokenPipes guard;
    transport::tcp::attr where;
    where.iface = config.interface_name;
    if (where.iface.empty()) where.hostname = config.source_address;
    const auto device = transport::tcp::CreateDevice(where);
    context_ = device->createContext(rank_, size_);
    context_->setTimeout(std::chrono::milliseconds(config.timeout_ms));
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) context_->createPair(peer);
    }
    description_ = "Gloo, " + device->str();
  }

  std::string address() const {
    std::string all;
    for (int peer = 0; peer < size_; ++peer) {
      std::vector<char> bytes;
      if (peer != rank_) bytes = context_->getPair(peer)->address().bytes();
      const auto length = static_cast<std::uint32_t>(bytes.size());
      all.append(reinterpret_cast<const char*>(&length), sizeof length);
      all.append(bytes.data(), bytes.size());
    }
    return all;
  }

  void connect(const void* const* addresses, const std::size_t* bytes) {
    const NoBrokenPipes guard;
    for (int peer = 0; peer < size_; ++peer) {
      if (peer == rank_) continue;
      const auto index = static_cast<std::size_t>(peer);
      const std::string theirs(static_cast<const char*>(addresses[index]), bytes[index]);
      context_->getPair(peer)->connect(entry(theirs, rank_));
    }
    packets_ = std::make_unique<PacketReceiver>(*context_, ended_);
    bodies_ = std::make_unique<Waiter>(/*sends=*/false, ended_);
    sends_.resize(static_cast<std::size_t>(size_));
  }

  const char* describe() const { return description_.c_str(); }
  const char* last_error() {
    error_ = ended_.error();
    return error_.c_str();
  }
  std::size_t max_message_bytes() const { return std::size_t{1} << 40; }

  int send(int peer, std::uint32_t tag, const void* data, std::size_t bytes, void* context) {
    const NoBrokenPipes guard;
    std::unique_ptr<Waiter>& waiter = sends_[static_cast<std::size_t>(peer)];
    if (!waiter) waiter = std::make_unique<Waiter>(/*sends=*/true, ended_);
    auto buffer = context_->createUnboundBuffer(const_cast<void*>(data), bytes);
    try {
      buffer->send(peer, tag);
    } catch (const std::exception& exception) {
      return failed(exception);
    }
    waiter->add(std::move(buffer), context);
    return TANDEM_FABRIC_OK;
  }

  int receive(int peer, std::uint32_t tag, void* data, std::size_t bytes, void* context) {
    const NoBrokenPipes guard;
    if (tag == TANDEM_FABRIC_PACKET) {
      packets_->receive(peer, data, bytes, context);
      return TANDEM_FABRIC_OK;
    }
    auto buffer = context_->createUnboundBuffer(data, bytes);
    try {
      buffer->recv(peer, tag);
    } catch (const std::exception& exception) {
      return failed(exception);
    }
    bodies_->add(std::move(buffer), context);
    return TANDEM_FABRIC_OK;
  }

  int poll(tandem_fabric_completion* completions, int capacity) {
    return ended_.take(completions, capacity);
  }
  int wait_descriptor() const { return ended_.event(); }

  bool close(bool /*in_order*/) {
    const NoBrokenPipes guard;
    sends_.clear();
    bodies_.reset();
    packets_.reset();
    for (int peer = 0; peer < size_; ++peer) {
      if (peer != rank_) context_->getPair(peer)->close();
    }
    return true;
  }

 private:
  int failed(const std::exception& exception) {
    error_ = exception.what();
    return TANDEM_FABRIC_FAILED;
  }

  static std::vector<char> entry(const std::string& all, int wanted) {
    std::size_t at = 0;
    for (int i = 0;; ++i) {
      std::uint32_t length = 0;
      if (at + sizeof length > all.size()) break;
      std::memcpy(&length, all.data() + at, sizeof length);
      at += sizeof length;
      if (at + length > all.size()) break;
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      if (i == wanted) return {begin, begin + length};
      at += length;
    }
    throw std::runtime_error("a list of addresses is too short; use one version on all hosts");
  }

  const int rank_;
  const int size_;
  std::shared_ptr<transport::Context> context_;
  Ended ended_;
  std::unique_ptr<PacketReceiver> packets_;
  std::unique_ptr<Waiter> bodies_;
  std::vector<std::unique_ptr<Waiter>> sends_;
  std::string description_;
  std::string error_;
};

}  // namespace
}  // namespace tandem::comm::plugins

const tandem_transport_plugin* tandem_transport_plugin_table() {
  return tandem::comm::plugins::table_of<tandem::comm::plugins::Fabric>("gloo");
}
