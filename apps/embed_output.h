// The outputs of `tandem embed`: NumPy arrays, Parquet files and JSON lines.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "apps/answering/embedding_output.h"
#include "tandem/core/thread_pool.h"

namespace tandem::apps {

class Output {
 public:
  virtual ~Output() = default;
  virtual std::size_t rows_before() const { return 0; }  // rows of an earlier process
  virtual void write(std::span<const std::string> texts, std::span<const float> embeddings) = 0;
  virtual void commit() {}
  // Before write(), where the format lacks them.
  virtual void set_ranges(const ValueRanges&) {}
};

struct OutputOptions {
  std::string path = "-";     // standard output; else a file, whose name decides what is written
  bool npy_in_pipes = false;  // standard output gets an array unless it is a terminal
};

// Whether the file is written row by row and resumes by itself.
bool is_npy(const std::string& path);

// `job` describes what decides the bytes of a .npy file: a file of another job begins anew. Throws
// IoError. `threads` format what is text; they outlive the output, and do nothing else while it
// writes.
std::unique_ptr<Output> open_output(const OutputOptions& options, const std::string& job,
                                    const EmbeddingFormat& format, ThreadPool& threads);

}  // namespace tandem::apps
