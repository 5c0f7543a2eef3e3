// The collectives, written once over messages. Each is a few lines of "who sends what to whom"; order of additions is fixed.
#include <algorithm>
#include <cstring>

#include "tandem/comm/communicator_state.h"
#include "tandem/comm/reduce.h"
#include "tandem/comm/summation_tree.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

// Up to this size every rank sends its whole buffer to every other one: one step instead of two.
constexpr std::size_t kSmallReduceBytes = 2048;

// buffers[begin] = sum over tree(begin, end) of the buffers, which are used up.
void reduce_tree(DataType type, ReduceOp op, std::span<const std::span<std::byte>> buffers,
                 int begin, int end) {
  if (end - begin == 1) return;
  const int middle = begin + left_leaves(end - begin);
  reduce_tree(type, op, buffers, begin, middle);
  reduce_tree(type, op, buffers, middle, end);
  reduce(type, op, buffers[static_cast<std::size_t>(begin)],
         buffers[static_cast<std::size_t>(middle)]);
}

// Copies `result` to `data` unless it lies there already.
void store(std::span<std::byte> data, std::span<const std::byte> result) {
  if (!data.empty() && data.data() != result.data())
    std::memcpy(data.data(), result.data(), data.size());
}

}  // namespace

// Starts a collective: checks, takes the next sequence number.
Collective Communicator::begin(Operation operation, DataType type, std::size_t count, ReduceOp op,
                               int root) {
  state_->check_open();
  state_->check_peer(root, name_of(operation));
  Header header;
  header.operation = operation;
  header.type = type;
  header.op = op;
  header.root = root;
  header.sequence = state_->sequence++;
  state_->monitor->note_operations(state_->sequence);
  header.count = count;
  const FlightRecorder::Ticket ticket =
      state_->recorder->begin({header.sequence, operation, type, op, root, count});
  return Collective(*state_->transport, header, ticket);
}

void Communicator::finish(Collective& collective) {
  for (const auto& message : collective.messages()) state_->wait(*message);
  collective.clear();
  state_->recorder->end(collective.ticket());
}

// Dissemination (Hensgen et al. 1988): in round k rank r tells r + 2^k and hears from r − 2^k; after log2(size) rounds
// everybody has heard from all, directly or not.
void Communicator::barrier() {
  if (size() == 1) return state_->check_open();
  Collective collective = begin(Operation::kBarrier, DataType::kByte, 0, ReduceOp::kNone, 0);
  for (int distance = 1; distance < size(); distance *= 2) {
    collective.send((rank() + distance) % size(), {});
    collective.receive((rank() - distance + size()) % size(), {});
    finish(collective);
  }
}

// Binomial tree over the ranks counted from the root: r receives from r without its lowest set bit, then sends to r + 2^k
// for every 2^k below that bit.
void Communicator::broadcast_bytes(std::span<std::byte> data, DataType type, std::size_t count,
                                   int root) {
  if (size() == 1) return state_->check_open();
  Collective collective = begin(Operation::kBroadcast, type, count, ReduceOp::kNone, root);
  const int relative = (rank() - root + size()) % size();
  int bit = 1;
  while (bit < size() && (relative & bit) == 0) bit *= 2;
  if (relative != 0) {
    collective.receive((relative - bit + root) % size(), data);
    finish(collective);
  }
  for (bit /= 2; bit > 0; bit /= 2) {
    if (relative + bit < size()) collective.send((relative + bit + root) % size(), data);
  }
  finish(collective);
}

void Communicator::all_gather_bytes(std::span<const std::byte> in, std::span<std::byte> out,
                                    DataType type, std::size_t count) {
  if (out.size() != in.size() * static_cast<std::size_t>(size())) {
    raise<InvalidArgument>("all_gather: {} bytes from each of {} ranks do not fit {} bytes",
                           in.size(), size(), out.size());
  }
  const auto block = [&](int r) {
    return out.subspan(static_cast<std::size_t>(r) * in.size(), in.size());
  };
  if (size() == 1) {
    state_->check_open();
    return store(block(0), in);
  }
  Collective collective = begin(Operation::kAllGather, type, count, ReduceOp::kNone, 0);
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    collective.receive(peer, block(peer));
    collective.send(peer, in);
  }
  store(block(rank()), in);
  finish(collective);
}

void Communicator::gather_bytes(std::span<const std::byte> in, std::span<std::byte> out,
                                DataType type, std::size_t count, int root) {
  if (rank() == root && out.size() != in.size() * static_cast<std::size_t>(size())) {
    raise<InvalidArgument>("gather: {} bytes from each of {} ranks do not fit {} bytes", in.size(),
                           size(), out.size());
  }
  const auto block = [&](int r) {
    return out.subspan(static_cast<std::size_t>(r) * in.size(), in.size());
  };
  if (size() == 1) {
    state_->check_open();
    return store(block(0), in);
  }
  Collective collective = begin(Operation::kGather, type, count, ReduceOp::kNone, root);
  if (rank() == root) {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer != root) collective.receive(peer, block(peer));
    }
    store(block(root), in);
  } else {
    collective.send(root, in);
  }
  finish(collective);
}

void Communicator::all_reduce_bytes(std::span<std::byte> data, DataType type, std::size_t count,
                                    ReduceOp op) {
  check_reducible(type, op);
  if (size() == 1) return state_->check_open();
  Collective collective = begin(Operation::kAllReduce, type, count, op, 0);
  const std::size_t element = size_of(type);
  const bool small = data.size() <= kSmallReduceBytes;
  // Slice r of the elements is reduced by rank r; all of them by everybody when there are few.
  const auto slice = [&](int r) {
    const auto cut = [&](int i) {
      return count * static_cast<std::size_t>(i) / static_cast<std::size_t>(size()) * element;
    };
    return small ? data : data.subspan(cut(r), cut(r + 1) - cut(r));
  };
  const std::span<std::byte> own = slice(rank());
  std::vector<std::byte> received(own.size() * static_cast<std::size_t>(size()));
  std::vector<std::span<std::byte>> parts;
  for (int peer = 0; peer < size(); ++peer) {
    const auto part =
        std::span(received).subspan(static_cast<std::size_t>(peer) * own.size(), own.size());
    parts.push_back(peer == rank() ? own : part);
  }
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    collective.receive(peer, parts[static_cast<std::size_t>(peer)]);
    collective.send(peer, slice(peer));
  }
  finish(collective);
  reduce_tree(type, op, parts, 0, size());
  store(own, parts[0]);
  if (small) return;
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    collective.receive(peer, slice(peer));
    collective.send(peer, own);
  }
  finish(collective);
}

// ---- texts ----

std::string Communicator::broadcast_text(std::string_view text, int root) {
  std::uint64_t length = text.size();
  broadcast(std::span(&length, 1), root);
  std::string result = rank() == root ? std::string(text) : std::string(length, '\0');
  broadcast(std::span(result), root);
  return result;
}

// The lengths are known to all after an all_gather, so each message can state its own.
std::vector<std::string> Communicator::all_gather_texts(std::string_view text) {
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(size()));
  const std::uint64_t length = text.size();
  all_gather(std::span(&length, 1), std::span(lengths));
  std::vector<std::string> texts(lengths.size());
  texts[static_cast<std::size_t>(rank())] = text;
  if (size() == 1) return texts;
  Collective collective = begin(Operation::kAllGather, DataType::kByte, 0, ReduceOp::kNone, 0);
  for (int step = 1; step < size(); ++step) {
    const int peer = (rank() + step) % size();
    std::string& theirs = texts[static_cast<std::size_t>(peer)];
    theirs.resize(lengths[static_cast<std::size_t>(peer)]);
    collective.receive(peer, std::as_writable_bytes(std::span(theirs)));
    collective.send(peer, std::as_bytes(std::span(text)));
  }
  finish(collective);
  return texts;
}

std::vector<std::string> Communicator::gather_texts(std::string_view text, int root) {
  std::vector<std::uint64_t> lengths(rank() == root ? static_cast<std::size_t>(size()) : 0);
  const std::uint64_t length = text.size();
  gather(std::span(&length, 1), std::span(lengths), root);
  std::vector<std::string> texts(lengths.size());
  if (rank() == root) texts[static_cast<std::size_t>(root)] = text;
  if (size() == 1) return texts;
  Collective collective = begin(Operation::kGather, DataType::kByte, 0, ReduceOp::kNone, root);
  if (rank() != root) {
    collective.send(root, std::as_bytes(std::span(text)));
  } else {
    for (int peer = 0; peer < size(); ++peer) {
      if (peer == root) continue;
      std::string& theirs = texts[static_cast<std::size_t>(peer)];
      theirs.resize(lengths[static_cast<std::size_t>(peer)]);
      collective.receive(peer, std::as_writable_bytes(std::span(theirs)));
    }
  }
  finish(collective);
  return texts;
}

void Communicator::agree(std::string_view name, std::string_view value) {
  const std::vector<std::string> values = all_gather_texts(value);
  const auto shown = [&](std::size_t r) {
    return values[r].size() <= 200 ? values[r] : values[r].substr(0, 197) + "...";
  };
  for (std::size_t r = 1; r < values.size(); ++r) {
    if (values[r] == values[0]) continue;
    // A rank that leaves ends the wait of one that still gathers and would take itself for the
    // cause. So nobody leaves before all know; who fails here knows already.
    try {
      barrier();
    } catch (const CommError&) {
    }
    raise<ConfigError>(
        "the ranks disagree on the {}: {} has '{}', {} has '{}'; start all ranks with the same "
        "settings and files",
        name, describe_rank(0), shown(0), describe_rank(static_cast<int>(r)), shown(r));
  }
}

}  // namespace tandem::comm
