#include "tandem/comm/texts.h"

#include <algorithm>

#include "tandem/core/disagreement.h"
#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

// The stream of messages that gather_texts uses: the last one.
constexpr int kTextChannel = Communicator::kChannels - 1;

// Far above any real text: the answers to a million questions take about 1 GiB.
constexpr std::uint64_t kLongestText = std::uint64_t{1} << 32;

void check_length(std::uint64_t length, const std::string& rank) {
  if (length <= kLongestText) return;
  raise<CommError>("{} announced a text of {} bytes: different versions, or damage", rank, length);
}

}  // namespace

std::string broadcast_text(Communicator& comm, std::string_view text, int root) {
  std::uint64_t length = text.size();
  comm.broadcast(std::span(&length, 1), root);
  check_length(length, comm.describe_rank(root));
  std::string result = comm.rank() == root ? std::string(text) : std::string(length, '\0');
  comm.broadcast(std::span(result), root);
  return result;
}

// All ranks know the lengths after an all_gather, so each message can state its length.
std::vector<std::string> all_gather_texts(Communicator& comm, std::string_view text) {
  std::vector<std::uint64_t> lengths(static_cast<std::size_t>(comm.size()));
  const std::uint64_t length = text.size();
  comm.all_gather(std::span(&length, 1), std::span(lengths));
  std::vector<std::string> texts(lengths.size());
  if (comm.size() == 1) return {std::string(text)};
  // Blocks of one size for the collective: that of the longest text.
  for (std::size_t r = 0; r < lengths.size(); ++r) {
    check_length(lengths[r], comm.describe_rank(static_cast<int>(r)));
  }
  const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
  std::vector<char> own(longest);
  std::vector<char> all(longest * lengths.size());
  std::copy(text.begin(), text.end(), own.begin());
  comm.all_gather(std::span<const char>(own), std::span(all));
  for (std::size_t r = 0; r < texts.size(); ++r)
    texts[r].assign(all.data() + r * longest, lengths[r]);
  return texts;
}

// If lengths differ widely (one rank has the answers to all questions), the texts are sent as
// separate messages.
std::vector<std::string> gather_texts(Communicator& comm, std::string_view text, int root) {
  std::vector<std::uint64_t> lengths(comm.rank() == root ? static_cast<std::size_t>(comm.size())
                                                         : 0);
  const std::uint64_t length = text.size();
  comm.gather(std::span(&length, 1), std::span(lengths), root);
  std::vector<std::string> texts(lengths.size());
  if (comm.rank() != root) {
    comm.send(std::span<const char>(text.data(), text.size()), root, kTextChannel);
    return texts;
  }
  texts[static_cast<std::size_t>(root)] = text;
  std::vector<Request> receives;
  for (int peer = 0; peer < comm.size(); ++peer) {
    if (peer == root) continue;
    std::string& theirs = texts[static_cast<std::size_t>(peer)];
    check_length(lengths[static_cast<std::size_t>(peer)], comm.describe_rank(peer));
    theirs.resize(lengths[static_cast<std::size_t>(peer)]);
    receives.push_back(comm.start_receive(std::span(theirs), peer, kTextChannel));
  }
  for (const Request& receive : receives) comm.wait(receive);
  return texts;
}

void agree(Communicator& comm, std::string_view name, std::string_view value) {
  const std::string differences = describe_disagreement(
      all_gather_texts(comm, value), [&](int rank) { return comm.describe_rank(rank); });
  if (differences.empty()) return;
  // A rank that leaves ends the wait of a rank that still gathers, and that rank would report
  // itself as the cause. So no rank leaves before all have the result; a rank that fails here
  // already has it.
  try {
    comm.barrier();
  } catch (const CommError&) {
  }
  raise<ConfigError>(
      "the ranks disagree on the {}; start all ranks with the same settings and files:\n  {}", name,
      differences);
}

}  // namespace tandem::comm
