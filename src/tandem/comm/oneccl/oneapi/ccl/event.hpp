// An operation under way. Include oneapi/ccl.hpp.
#pragma once

#include "types.hpp"

namespace ccl {

// Moved, never copied. An event that is dropped waits for its operation first, whose buffers are
// in use; its error is then that of the communicator's next call.
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

  // Returns when the operation has ended. An event without one has ended. Throws its error.
  void wait() const {
    if (state_ != nullptr) state_->wait();
  }
  // Whether it has ended; moves what can be moved.
  bool test() const { return state_ == nullptr || state_->test(); }
  bool cancel() const { throw unsupported("an operation that was started cannot be cancelled"); }
  explicit operator bool() const { return state_ != nullptr; }

  // A started operation of the library, whose communicator stays as long as it. `finish` runs once,
  // when it has ended; what it holds lives until then.
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
