// The data that a rank moves in a large operation among the ranks of a node, through the staging
// ring (staging.h). All ranks and roots here are local.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "tandem/comm/algorithms/call.h"

namespace tandem::comm {

// Indexed by local rank; each span is cut into bands of one size. Each function sets the fields
// that it describes and leaves the others at their defaults: nothing is moved or read.
struct StagedPlan {
  StagedPlan(int local_rank, int ranks, std::size_t longest);

  std::size_t own;                               // this rank
  std::vector<std::span<const std::byte>> give;  // to each rank; own entry: all_to_all's own block
  // Data from each rank to this one; unused if it is reduced.
  std::vector<std::span<std::byte>> take;
  std::span<const std::byte> give_all;  // to every rank that reads it
  // Data from each rank to all; own entry: a copy, or empty.
  std::vector<std::span<std::byte>> take_all;
  std::vector<bool> read_by;             // ranks that read from this one
  std::vector<bool> reads;               // ranks from which this one reads, in the first step
  bool reduces = false;                  // the shares given to this rank are combined
  bool shares_result = false;            // give_all is the result of this rank's reduction
  std::span<const std::byte> own_share;  // own share of a reduction
  std::byte* result = nullptr;           // destination of the result; null: none
  std::size_t longest;                   // length of the longest span on any rank
  bool to_each = false;                  // some rank sends different data to different ranks

  int ranks() const { return static_cast<int>(give.size()); }
  // This rank reads from all others, or they read from it.
  void read_all() { mark_others(reads); }
  void be_read_by_all() { mark_others(read_by); }
  // Each rank combines the contributions of all to its share: share_of(i) is the part of this
  // rank's data that rank i combines. The result goes to `to`.
  template <class ShareOf>
  void combine_shares(ShareOf share_of, std::byte* to) {
    to_each = reduces = true;
    result = to;
    for (std::size_t i = 0; i < give.size(); ++i) (i == own ? own_share : give[i]) = share_of(i);
  }
  // Each rank offers its part to all: part_of(i) is the local destination of rank i's part.
  template <class PartOf>
  void show_parts(PartOf part_of) {
    for (std::size_t i = 0; i < take_all.size(); ++i) {
      if (i == own) {
        give_all = part_of(i);
      } else {
        take_all[i] = part_of(i);
      }
    }
  }

 private:
  void mark_others(std::vector<bool>& flags) const;
};

// The plan of a whole operation. Operations without data move nothing.
StagedPlan plan_staging(const Call& call, int local_rank, int size);

// [begin, end) of `count` elements that rank `part` of `parts` reduces, cut at cache lines.
struct Slice {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};
Slice slice_of(std::size_t count, std::size_t element_bytes, int part, int parts);

}  // namespace tandem::comm
