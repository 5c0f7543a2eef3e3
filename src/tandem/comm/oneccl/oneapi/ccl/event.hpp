// An operation in progress. Include oneapi/ccl.hpp.
#pragma once

#include "types.hpp"

namespace ccl {

// Movable, not copyable. The destructor of an event waits for its operation, whose buffers are in
// use; an error of it is thrown by the communicator's next call.
class event {
 public:
  event() = default;
  event(event&&) = default;
  event& operator=(event&& other) {
    drop();
    state_ = std::move(other.state_);
    return *this;
  }
  ~event() { drop(); }

  // Returns when the operation has ended. An event without an operation has ended. Throws its
  // error.
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }
  // Returns true if it has ended; moves as much as possible.
  bool test() const { return state_ == nullptr || state_->test(); }
  bool cancel() const { throw unsupported("an operation that was started cannot be cancelled"); }
  explicit operator bool() const { return state_ != nullptr; }

  // A started operation of the library; its communicator lives at least as long. `finish` runs
  // once, when the operation has ended; the data it owns live until then.
  event(std::shared_ptr<tdmComm> comm, tdmRequest_t request, std::function<void()> finish)
      : state_(std::make_unique<state>()) {
    state_->comm = std::move(comm);
    state_->request = request;
    state_->finish = std::move(finish);
  }

 private:
  struct state {
    std::shared_ptr<tdmComm> comm;
    tdmRequest_t request = nullptr;
    std::function<void()> finish;

    void end() {
      if (finish) std::exchange(finish, nullptr)();
    }
    void wait() {
      detail::check(tdmWait(&request), comm.get());
      end();
    }
    bool test() {
      int ended = 0;
      detail::check(tdmTest(&request, &ended), comm.get());
      if (ended == 0) return false;
      end();
      return true;
    }
  };

  void drop() {
    if (state_ != nullptr) tdmWait(&state_->request);
    state_.reset();
  }

  std::unique_ptr<state> state_;
};

}  // namespace ccl
