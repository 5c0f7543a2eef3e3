// Tasks made of messages, and tasks made of tasks.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "tandem/comm/algorithms/task.h"
#include "tandem/comm/network/transport.h"

namespace tandem::comm {

// Messages of one operation that are in flight together.
class Messages {
 public:
  Messages(Transport& transport, const Header& header) : transport_(transport), header_(header) {}
  void reserve(std::size_t messages) { messages_.reserve(messages); }
  void send(int peer, std::span<const std::byte> bytes);
  void receive(int peer, std::span<std::byte> bytes);
  bool done() const;
  // Moves as much as possible; returns true if anything moved.
  bool progress() { return transport_.progress({}); }
  // The rank of the job with a message to or from it in flight, otherwise −1.
  int waiting_for() const;
  void clear() { messages_.clear(); }

 private:
  Transport& transport_;
  Header header_;
  std::vector<std::shared_ptr<const Message>> messages_;
};

// Messages that start together, and a completion function for the time when all are done.
struct Round {
  struct Transfer {
    int peer = 0;  // rank of the job
    bool sending = false;
    std::span<std::byte> bytes;
  };
  std::vector<Transfer> transfers;
  std::function<void()> then;

  void send(int peer, std::span<const std::byte> bytes) {
    transfers.push_back({peer, true, {const_cast<std::byte*>(bytes.data()), bytes.size()}});
  }
  void receive(int peer, std::span<std::byte> bytes) { transfers.push_back({peer, false, bytes}); }
};

class MessageTask final : public CommTask {
 public:
  MessageTask(const Messages& messages, Round round)
      : messages_(messages), round_(std::move(round)) {}
  Progress advance() override;
  int waiting_for() const override { return messages_.waiting_for(); }
  bool waits_for_messages() const override { return true; }

 private:
  void start();

  Messages messages_;
  Round round_;
  bool started_ = false;
};

// Tasks in sequence; each is created when the previous one is done.
class ChainTask : public CommTask {
 public:
  Progress advance() final;
  int waiting_for() const final { return task_ ? task_->waiting_for() : -1; }
  bool waits_for_messages() const final { return task_ && task_->waits_for_messages(); }

 protected:
  virtual std::size_t parts() const = 0;
  // May return null: no task to wait for.
  virtual std::unique_ptr<CommTask> make(std::size_t part) = 0;

 private:
  std::size_t next_ = 0;
  std::unique_ptr<CommTask> task_;
};

class SequenceTask final : public ChainTask {
 public:
  using Part = std::function<std::unique_ptr<CommTask>()>;  // may return null: no work
  void add(Part part) { parts_.push_back(std::move(part)); }
  // A part that needs no waiting.
  void then(std::function<void()> work);
  // Keeps memory alive as long as the task.
  void keep(std::shared_ptr<void> object) { kept_.push_back(std::move(object)); }

 protected:
  std::size_t parts() const override { return parts_.size(); }
  std::unique_ptr<CommTask> make(std::size_t part) override { return parts_[part](); }

 private:
  std::vector<Part> parts_;
  std::vector<std::shared_ptr<void>> kept_;
};

}  // namespace tandem::comm
