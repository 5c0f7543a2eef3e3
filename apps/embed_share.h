// The embeddings of a file's lines, computed by one or several ranks.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>

#include "apps/answering/embedding_output.h"
#include "tandem/comm/communicator.h"

namespace tandem::apps {

struct LineRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
};

// The lines of a rank: contiguous shares whose sizes differ by at most one.
LineRange share_of(std::size_t lines, int rank, int ranks);

// A rank computes its share and keeps the embeddings in a file beside the output, where a later
// process with the same `job` and as many ranks finds them. At the end rank 0 takes all of them,
// through the communicator where they are those of other ranks.
class EmbeddingShare {
 public:
  // `ranks`: null for a process alone. `size`: values of an embedding. Throws IoError, as its
  // functions do.
  EmbeddingShare(const std::string& output, std::size_t size, const std::string& job,
                 std::size_t lines, comm::Communicator* ranks);

  LineRange lines() const { return share_of(all_lines_, rank_, size_of_world_); }
  // Lines of the share that this process or an earlier one has embedded.
  std::size_t done() const { return file_.rows(); }
  void append(std::span<const float> embeddings) { file_.append(embeddings); }

  // Calls take(embeddings [rows, size]) on rank 0 with the lines from its `first` on, in order and
  // `at_once` of them at most. Collective; throws CommError.
  void collect(std::size_t first, std::size_t at_once,
               const std::function<void(std::span<const float>)>& take);
  // Removes the file, once the output is whole. Collective.
  void remove();

 private:
  comm::Communicator* ranks_;
  int rank_, size_of_world_;
  std::size_t size_, all_lines_;
  NpyFile file_;
};

}  // namespace tandem::apps
