#include "apps/embed_share.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace tandem::apps {
namespace {

std::string file_name(const std::string& output, int rank, int ranks) {
  if (ranks == 1) return output + ".rows";
  return fmt::format("{}.rows-{}-of-{}", output, rank, ranks);
}

}  // namespace

LineRange share_of(std::size_t lines, int rank, int ranks) {
  const auto at = [&](int index) {
    return lines * static_cast<std::size_t>(index) / static_cast<std::size_t>(ranks);
  };
  return {at(rank), at(rank + 1)};
}

EmbeddingShare::EmbeddingShare(const std::string& output, std::size_t size, const std::string& job,
                               std::size_t lines, comm::Communicator* ranks)
    : ranks_(ranks),
      rank_(ranks == nullptr ? 0 : ranks->rank()),
      size_of_world_(ranks == nullptr ? 1 : ranks->size()),
      size_(size),
      all_lines_(lines),
      file_(file_name(output, rank_, size_of_world_), {EmbeddingPrecision::kFloat32, size},
            fmt::format("{}lines={}\n", job, lines)) {}

void EmbeddingShare::collect(std::size_t first, std::size_t at_once,
                             const std::function<void(std::span<const float>)>& take) {
  std::uint64_t begin = first;
  if (ranks_ != nullptr) ranks_->broadcast(std::span(&begin, 1), 0);
  std::vector<float> received;
  for (int owner = 0; owner < size_of_world_; ++owner) {
    const LineRange share = share_of(all_lines_, owner, size_of_world_);
    for (std::size_t line = std::max<std::size_t>(begin, share.begin); line < share.end;
         line += at_once) {
      const std::size_t count = std::min(at_once, share.end - line);
      if (owner == rank_) {
        const std::vector<float> own = file_.read(line - share.begin, count);
        if (rank_ == 0)
          take(own);
        else
          ranks_->send(std::span<const float>(own), 0);
      } else if (rank_ == 0) {
        received.resize(count * size_);
        ranks_->receive(std::span(received), owner);
        take(received);
      }
    }
  }
}

void EmbeddingShare::remove() {
  if (ranks_ != nullptr) ranks_->barrier();
  file_.discard();
}

}  // namespace tandem::apps
