#include "tandem/elastic/protocol/wire.h"

#include <algorithm>
#include <concepts>
#include <type_traits>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::membership {
namespace {

template <class M, class T>
concept Is = std::same_as<std::remove_const_t<M>, T>;

// The fields of every type in their order, once for both directions: a Writer takes const objects,
// a Reader fills others.
template <class A, Is<ViewNumber> M>
void fields(A& a, M& m) {
  a(m.counter, m.proposer);
}
template <class A, Is<Peer> M>
void fields(A& a, M& m) {
  a(m.id, m.address);
}
template <class A, Is<NodeState> M>
void fields(A& a, M& m) {
  a(m.step, m.workers, m.leaving);
}
template <class A, Is<Member> M>
void fields(A& a, M& m) {
  a(m.peer, m.workers, m.step);
}
template <class A, Is<Fault> M>
void fields(A& a, M& m) {
  a(m.node, m.occurrence, m.step, m.how);
}
template <class A, Is<View> M>
void fields(A& a, M& m) {
  a(m.number, m.after, m.members, m.step, m.source, m.paused, m.faults);
}
template <class A, Is<Credentials> M>
void fields(A& a, M& m) {
  a(m.name, m.kernels, m.files, m.shards, m.inputs);
}
template <class A, Is<Ask> M>
void fields(A& a, M& m) {
  a(m.who, m.node_state);
}
template <class A, Is<AskReply> M>
void fields(A& a, M& m) {
  a(m.verdict, m.reason, m.step, m.view);
}
template <class A, Is<Propose> M>
void fields(A& a, M& m) {
  a(m.number, m.installed);
}
template <class A, Is<Answer> M>
void fields(A& a, M& m) {
  a(m.number, m.promised, m.node_state, m.installed, m.accepted, m.dead, m.unreachable, m.faults);
}
template <class A, Is<Offer> M>
void fields(A& a, M& m) {
  a(m.view, m.pending);
}
template <class A, Is<Accept> M>
void fields(A& a, M& m) {
  a(m.number);
}
template <class A, Is<Install> M>
void fields(A& a, M& m) {
  a(m.number);
}
template <class A, Is<Beat> M>
void fields(A& a, M& m) {
  a(m.number, m.step);
}
template <class A, Is<Suspect> M>
void fields(A& a, M& m) {
  a(m.number, m.dead, m.silent);
}
template <class A, Is<Ended> M>
void fields(A& a, M& m) {
  a(m.code, m.message);
}
template <class A, Is<AppMessage> M>
void fields(A& a, M& m) {
  a(m.kind, m.number, m.text);
}

class Writer {
 public:
  explicit Writer(std::string& bytes) : bytes_(bytes) {}

  template <class... T>
  void operator()(const T&... values) {
    (put(values), ...);
  }

 private:
  template <class T>
  void put(const T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      put(static_cast<std::uint8_t>(value));
    } else if constexpr (std::is_enum_v<T>) {
      put(static_cast<std::underlying_type_t<T>>(value));
    } else if constexpr (std::is_integral_v<T>) {
      const auto bits = static_cast<std::make_unsigned_t<T>>(value);
      for (std::size_t i = 0; i < sizeof(T); ++i) {
        bytes_.push_back(static_cast<char>(static_cast<std::uint64_t>(bits) >> (8 * i)));
      }
    } else {
      fields(*this, value);
    }
  }
  void put(const std::string& text) {
    check(text.size(), kMostText, "bytes of a text");
    put(static_cast<std::uint16_t>(text.size()));
    bytes_ += text;
  }
  void put(const Fingerprint& print) { bytes_.append(print.begin(), print.end()); }
  template <class T>
  void put(const std::vector<T>& list) {
    check(list.size(), kMostMembers, "elements of a list");
    put(static_cast<std::uint32_t>(list.size()));
    for (const T& element : list) put(element);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  static void check(std::size_t n, std::size_t most, const char* of_what) {
    if (n > most) raise<InvalidArgument>("membership: {} {}; at most {}", n, of_what, most);
  }

  std::string& bytes_;
};

class Reader {
 public:
  explicit Reader(std::string_view bytes) : bytes_(bytes) {}

  template <class... T>
  void operator()(T&... values) {
    (get(values), ...);
  }
  void finish() const {
    if (!bytes_.empty()) bad("{} bytes too many", bytes_.size());
  }
  template <class... Args>
  [[noreturn]] static void bad(fmt::format_string<Args...> format, Args&&... args) {
    raise<CommError>("a message of an agent cannot be read: {}",
                     fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::string_view take(std::size_t n) {
    if (n > bytes_.size()) bad("it ends {} bytes too early", n - bytes_.size());
    const std::string_view result = bytes_.substr(0, n);
    bytes_.remove_prefix(n);
    return result;
  }
  template <class T>
  void get(T& value) {
    if constexpr (std::is_same_v<T, bool>) {
      std::uint8_t byte = 0;
      get(byte);
      if (byte > 1) bad("a flag is {}", byte);
      value = byte == 1;
    } else if constexpr (std::is_same_v<T, Verdict>) {
      value = choice(Verdict::kShow, "verdict");
    } else if constexpr (std::is_same_v<T, AppMessageKind>) {
      value = choice(AppMessageKind::kLearner, "fact");
    } else if constexpr (std::is_integral_v<T>) {
      std::uint64_t bits = 0;
      int shift = 0;
      for (const char c : take(sizeof(T))) {
        bits |= std::uint64_t{static_cast<unsigned char>(c)} << shift;
        shift += 8;
      }
      value = static_cast<T>(bits);
    } else {
      fields(*this, value);
    }
  }
  template <class T>
  T choice(T last, const char* what) {
    std::uint8_t byte = 0;
    get(byte);
    if (byte > static_cast<std::uint8_t>(last)) bad("{} {}", what, byte);
    return static_cast<T>(byte);
  }
  void get(std::string& text) {
    std::uint16_t size = 0;
    get(size);
    if (size > kMostText) bad("a text of {} bytes", size);
    text = take(size);
  }
  void get(Fingerprint& print) {
    const std::string_view bytes = take(print.size());
    std::copy(bytes.begin(), bytes.end(), print.begin());
  }
  template <class T>
  void get(std::vector<T>& list) {
    std::uint32_t size = 0;
    get(size);
    // Every element takes at least two bytes: a false count takes no memory.
    if (size > kMostMembers || size > bytes_.size() / 2) bad("a list of {}", size);
    list.clear();
    for (std::uint32_t i = 0; i < size; ++i) get(list.emplace_back());
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool there = false;
    get(there);
    if (there)
      get(value.emplace());
    else
      value.reset();
  }

  std::string_view bytes_;
};

// The fields before a message.
struct Header {
  std::uint16_t version = kWireVersion;
  std::uint64_t job = 0;
  Peer from;
  NodeId to = 0;
};
template <class A, Is<Header> M>
void fields(A& a, M& m) {
  a(m.version, m.job, m.from, m.to);
}

template <std::size_t... kKinds>
void read_message(std::size_t kind, Reader& reader, Message& message,
                  std::index_sequence<kKinds...>) {
  (void)((kind == kKinds && (reader(message.emplace<kKinds>()), true)) || ...);
}

std::string number_of(std::uint64_t count) {
  std::string result;
  Writer{result}(count);
  return result;
}

WireProof proof_of(const Channel& channel, std::string_view from, std::string_view to,
                   std::uint64_t count, std::uint32_t kind, std::string_view bytes) {
  const std::string numbers = number_of(count) + number_of(kind);
  return channel.prove({"tandem membership", from, to, numbers, bytes});
}

bool same(const WireProof& a, std::string_view b) {
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference |= a[i] ^ static_cast<unsigned>(static_cast<unsigned char>(b[i]));
  }
  return difference == 0;
}

}  // namespace

std::string encode(Channel& channel, const Frame& frame) {
  std::string bytes;
  Writer writer(bytes);
  writer(Header{.job = channel.job, .from = frame.from, .to = frame.to});
  std::visit([&](const auto& message) { writer(message); }, frame.message);
  const auto kind = static_cast<std::uint32_t>(frame.message.index());
  const WireProof proof =
      proof_of(channel, channel.own_nonce, channel.other_nonce, channel.sent, kind, bytes);
  std::string encoded = net::encode_frame(kAgentProtocol, kind, {bytes, net::view_of(proof)});
  ++channel.sent;
  return encoded;
}

Frame decode(Channel& channel, const net::Frame& frame) {
  std::string_view bytes = frame.payload;
  constexpr std::size_t kProofBytes = std::tuple_size_v<WireProof>;
  std::uint16_t version = 0;
  Reader{bytes}(version);
  if (version != kWireVersion) {
    Reader::bad("version {}, expected {}; use the same tandem on all hosts", version, kWireVersion);
  }
  if (bytes.size() < kProofBytes) Reader::bad("it has no proof");
  const std::string_view proof = bytes.substr(bytes.size() - kProofBytes);
  bytes.remove_suffix(kProofBytes);
  Reader reader(bytes);
  Header header;
  reader(header);
  if (header.job != channel.job) Reader::bad("it belongs to another job");
  const WireProof right = proof_of(channel, channel.other_nonce, channel.own_nonce,
                                   channel.received, frame.kind, bytes);
  if (!same(right, proof)) {
    Reader::bad("its sender does not prove that it knows the job's token (TANDEM_JOB_TOKEN)");
  }
  ++channel.received;
  Frame result{std::move(header.from), header.to, {}};
  read_message(frame.kind, reader, result.message,
               std::make_index_sequence<std::variant_size_v<Message>>());
  reader.finish();
  return result;
}

}  // namespace tandem::membership
