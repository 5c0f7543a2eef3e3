#include "apps/bench/comm_work.h"

#include <cmath>
#include <cstring>

#include "tandem/comm/memory.h"
#include "tandem/core/error.h"
#include "tandem/core/float16.h"

namespace tandem::apps::bench {
namespace {

using comm::Call;
using comm::Communicator;
using comm::DataType;
using comm::Operation;
using comm::ReduceOp;

bool is_whole(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kReduce ||
         operation == Operation::kBroadcast || operation == Operation::kSend;
}

bool is_in_place(Operation operation) {
  return operation == Operation::kAllReduce || operation == Operation::kBroadcast;
}

// Bytes of one buffer, including the space to the next.
std::size_t room_of(std::size_t bytes) { return (bytes + 64) / 64 * 64; }

double given(int rank, std::size_t i) {
  return static_cast<double>((i + static_cast<std::size_t>(rank)) % 7);
}

template <class Visit>
auto visit_type(DataType type, Visit visit) {
  switch (type) {
    case DataType::kFloat64:
      return visit(double());
    case DataType::kInt32:
      return visit(std::int32_t());
    case DataType::kInt64:
      return visit(std::int64_t());
    case DataType::kUint64:
      return visit(std::uint64_t());
    case DataType::kInt8:
      return visit(std::int8_t());
    case DataType::kUint8:
      return visit(std::uint8_t());
    default:
      return visit(float());
  }
}

}  // namespace

// send_receive: every rank sends to the next one and receives from the one before.
void perform(Communicator& communicator, const Call& call) {
  if (call.operation != Operation::kSend) return communicator.call(call);
  const int size = communicator.size();
  const int rank = communicator.rank();
  if (size == 1) return;
  const auto receive = communicator.start_receive_bytes({call.out, call.block_bytes()}, call.type,
                                                        call.count, (rank + size - 1) % size);
  const auto send = communicator.start_send_bytes({call.in, call.block_bytes()}, call.type,
                                                  call.count, (rank + 1) % size);
  communicator.wait(receive);
  communicator.wait(send);
}

std::size_t WorkShape::memory_bytes() const {
  if (operation == Operation::kBarrier) return 0;
  return room_of(bytes) * (is_in_place(operation) ? 1 : 2);
}

Work::Work(Communicator& communicator, const WorkShape& shape, std::shared_ptr<Pages> pages)
    : size_(communicator.size()), rank_(communicator.rank()), pages_(std::move(pages)) {
  const auto ranks = static_cast<std::size_t>(size_);
  call_.operation = shape.operation;
  if (shape.operation == Operation::kBarrier) return;
  call_.type = shape.type;
  if (call_.reduces()) call_.op = shape.reduction;
  call_.count = shape.bytes / comm::size_of(shape.type) / (is_whole(shape.operation) ? 1 : ranks);
  if (!pages_) memory_ = mem_alloc(communicator, shape.memory_bytes());
  std::byte* const data = pages_ ? pages_->data() : memory_.bytes().data();
  call_.in = data;
  call_.out = data + (is_in_place(shape.operation) ? 0 : room_of(shape.bytes));
}

std::size_t Work::bytes() const {
  return call_.block_bytes() * (is_whole(call_.operation) ? 1 : static_cast<std::size_t>(size_));
}

void Work::verify(Communicator& communicator) {
  if (call_.operation == Operation::kBarrier) return communicator.call(call_);
  fill();
  perform(communicator, call_);
  const bool takes =
      (call_.operation != Operation::kReduce && call_.operation != Operation::kGather) ||
      rank_ == call_.root;
  for (std::size_t i = 0; takes && i < out_count(); ++i) {
    if (std::abs(value_at(i) - expected(i)) <= 1e-6) continue;
    raise<Error>("{}: rank {} has {} at element {}, expected {}", comm::describe(call_, 0), rank_,
                 value_at(i), i, expected(i));
  }
  communicator.barrier();
  std::memset(const_cast<std::byte*>(call_.in), 0, call_.in_bytes(size_));
  std::memset(call_.out, 0, call_.out_bytes(size_));
}

void Work::fill() {
  const std::size_t count = call_.in_bytes(size_) / comm::size_of(call_.type);
  for (std::size_t i = 0; i < count; ++i)
    store(const_cast<std::byte*>(call_.in), i, given(rank_, i));
}

double Work::expected(std::size_t i) const {
  const auto own = static_cast<std::size_t>(rank_);
  const std::size_t n = call_.count;
  switch (call_.operation) {
    case Operation::kBroadcast:
      return given(call_.root, i);
    case Operation::kSend:
      return given((rank_ + size_ - 1) % size_, i);
    case Operation::kAllGather:
    case Operation::kGather:
      return given(static_cast<int>(i / n), i % n);
    case Operation::kScatter:
      return given(call_.root, own * n + i);
    case Operation::kAllToAll:
      return given(static_cast<int>(i / n), own * n + i % n);
    default:
      return reduced(call_.operation == Operation::kReduceScatter ? own * n + i : i);
  }
}

double Work::reduced(std::size_t i) const {
  double result = given(0, i);
  for (int r = 1; r < size_; ++r) {
    const double x = given(r, i);
    if (call_.op == ReduceOp::kMin) result = std::min(result, x);
    if (call_.op == ReduceOp::kMax) result = std::max(result, x);
    if (call_.op == ReduceOp::kProduct) result *= x;
    if (call_.op == ReduceOp::kSum || call_.op == ReduceOp::kAverage) result += x;
  }
  if (call_.op != ReduceOp::kAverage) return rounded(result);
  const bool integer = call_.type != DataType::kFloat32 && call_.type != DataType::kFloat64 &&
                       call_.type != DataType::kBfloat16 && call_.type != DataType::kFloat16;
  return integer ? static_cast<double>(static_cast<long>(result) / size_) : rounded(result / size_);
}

// As the type holds it.
double Work::rounded(double x) const {
  std::byte one[8] = {};
  store(one, 0, x);
  return load(one, 0);
}

void Work::store(std::byte* to, std::size_t i, double x) const {
  if (call_.type == DataType::kBfloat16) {
    reinterpret_cast<bfloat16*>(to)[i] = to_bfloat16(static_cast<float>(x));
  } else if (call_.type == DataType::kFloat16) {
    reinterpret_cast<float16*>(to)[i] = to_float16(static_cast<float>(x));
  } else {
    visit_type(call_.type, [&](auto zero) {
      using T = decltype(zero);
      reinterpret_cast<T*>(to)[i] = static_cast<T>(x);
    });
  }
}

double Work::load(const std::byte* from, std::size_t i) const {
  if (call_.type == DataType::kBfloat16)
    return static_cast<double>(to_float(reinterpret_cast<const bfloat16*>(from)[i]));
  if (call_.type == DataType::kFloat16)
    return static_cast<double>(to_float(reinterpret_cast<const float16*>(from)[i]));
  return visit_type(call_.type, [&](auto zero) {
    return static_cast<double>(reinterpret_cast<const decltype(zero)*>(from)[i]);
  });
}

}  // namespace tandem::apps::bench
