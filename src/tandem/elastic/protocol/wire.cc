#include "tandem/elastic/protocol/wire.h"

#include <algorithm>
#include <bit>
#include <concepts>
#include <type_traits>
#include <utility>

#include "tandem/core/crc32c.h"
#include "tandem/core/error.h"

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

struct Header {
  std::uint32_t magic = kWireMagic;
  std::uint16_t version = kWireVersion;
  std::uint16_t kind = 0;
  std::uint32_t body_bytes = 0;  // bytes between the two checksums
  std::uint64_t job = 0;
};
template <class A, Is<Header> M>
void fields(A& a, M& m) {
  a(m.magic, m.version, m.kind, m.body_bytes, m.job);
}

constexpr std::size_t kChecksumBytes = sizeof(std::uint32_t);

// `bytes` end with the checksum of what is before it.
bool is_whole(std::string_view bytes) {
  std::uint32_t checksum = 0;
  Reader{bytes.substr(bytes.size() - kChecksumBytes)}(checksum);
  return checksum == crc32c(bytes.substr(0, bytes.size() - kChecksumBytes));
}

void append_checksum(std::string& bytes) {
  const std::uint32_t checksum = crc32c(bytes);
  Writer{bytes}(checksum);
}

// Foreign bytes, and those of an older version, have no checksum.
bool is_damaged(const Header& header, std::string_view bytes) {
  constexpr int kFewBits = 4;
  return std::popcount(header.magic ^ kWireMagic) <= kFewBits &&
         header.version != kWireVersionWithoutChecksums && !is_whole(bytes);
}

Header read_header(const Channel& channel, std::string_view bytes) {
  Header header;
  std::uint32_t checksum = 0;
  Reader{bytes.substr(0, kHeaderBytes)}(header, checksum);
  if (is_damaged(header, bytes.substr(0, kHeaderBytes)))
    raise<DamagedFrame>("the header of a frame arrived with a wrong checksum");
  if (header.magic != kWireMagic)
    Reader::bad("it is not a frame (it begins with {:#x})", header.magic);
  if (header.version != kWireVersion) {
    Reader::bad("version {}, expected {}; use the same tandem on all hosts", header.version,
                kWireVersion);
  }
  if (header.job != channel.job) Reader::bad("it belongs to another job");
  if (header.kind >= std::variant_size_v<Message>) Reader::bad("kind {}", header.kind);
  if (header.body_bytes > kMostBody) Reader::bad("{} bytes", header.body_bytes);
  return header;
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
                   std::uint64_t count, std::string_view bytes) {
  const std::string number = number_of(count);
  return channel.prove({"tandem membership", from, to, number, bytes});
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
  std::string body;
  Writer writer(body);
  writer(frame.from, frame.to);
  std::visit([&](const auto& message) { writer(message); }, frame.message);
  if (body.size() > kMostBody) {
    raise<InvalidArgument>("membership: a message of {} bytes; at most {}", body.size(), kMostBody);
  }
  Header header;
  header.kind = static_cast<std::uint16_t>(frame.message.index());
  header.body_bytes = static_cast<std::uint32_t>(body.size());
  header.job = channel.job;
  std::string bytes;
  Writer{bytes}(header);
  append_checksum(bytes);
  bytes += body;
  append_checksum(bytes);
  const WireProof proof =
      proof_of(channel, channel.own_nonce, channel.other_nonce, channel.sent++, bytes);
  bytes.append(proof.begin(), proof.end());
  return bytes;
}

std::size_t frame_bytes(const Channel& channel, std::string_view header) {
  return kHeaderBytes + read_header(channel, header).body_bytes + kChecksumBytes +
         std::tuple_size_v<WireProof>;
}

Frame decode(Channel& channel, std::string_view bytes) {
  const std::size_t expected = frame_bytes(channel, bytes);
  if (bytes.size() != expected) Reader::bad("{} bytes, expected {}", bytes.size(), expected);
  const std::string_view proof = bytes.substr(expected - std::tuple_size_v<WireProof>);
  const std::string_view proved = bytes.substr(0, bytes.size() - proof.size());
  if (!is_whole(proved)) raise<DamagedFrame>("a frame arrived with a wrong checksum");
  const WireProof right =
      proof_of(channel, channel.other_nonce, channel.own_nonce, channel.received, proved);
  if (!same(right, proof)) {
    Reader::bad("its sender does not prove that it knows the job's token (TANDEM_JOB_TOKEN)");
  }
  ++channel.received;
  Frame frame;
  Reader reader(proved.substr(kHeaderBytes, proved.size() - kHeaderBytes - kChecksumBytes));
  reader(frame.from, frame.to);
  read_message(read_header(channel, bytes).kind, reader, frame.message,
               std::make_index_sequence<std::variant_size_v<Message>>());
  reader.finish();
  return frame;
}

}  // namespace tandem::membership
