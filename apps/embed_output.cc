#include "apps/embed_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <utility>

#include "apps/answering/embedding_spool.h"
#include "apps/command/line_output.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/formats/parquet_writer.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;

void write_whole(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EPIPE) throw OutputClosed();
    if (written < 0) throw io_error("cannot write", "standard output", errno);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

// {"text": …, "embedding": […]}, or the bytes of --precision. A file appears when it is whole. Its
// lines are in PATH.partial until then; an error removes that file.
class JsonOutput final : public Output {
 public:
  JsonOutput(const std::string& path, EmbeddingFormat format, ThreadPool& threads)
      : format_(std::move(format)), threads_(threads) {
    if (path == "-") {
      output_ = std::make_unique<LineOutput>(STDOUT_FILENO);
      return;
    }
    std::error_code ignored;
    const bool is_device =
        std::filesystem::exists(path, ignored) && !std::filesystem::is_regular_file(path, ignored);
    if (!is_device) path_ = path;
    const std::string written = is_device ? path : partial();
    output_ = std::make_unique<std::ofstream>(written, std::ios::trunc);
    if (!*output_) throw io_error("cannot write", path, errno);
  }
  ~JsonOutput() override {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove(partial(), ignored);
  }

  void write(std::span<const std::string> texts, std::span<const float> embeddings) override {
    std::vector<std::string> lines(texts.size());
    threads_.parallel_for(texts.size(), [&](std::size_t i, int) {
      lines[i] = line_of(texts[i], embeddings.subspan(i * format_.size, format_.size));
    });
    for (const std::string& line : lines) *output_ << line << '\n';
    output_->flush();
    if (!*output_) throw io_error("cannot write", "the output", errno);
  }
  void commit() override {
    if (path_.empty()) return;
    std::error_code error;
    std::filesystem::rename(partial(), path_, error);
    if (error) throw io_error("cannot write", path_, error.value());
  }
  void set_ranges(const ValueRanges& ranges) override { format_.ranges = ranges; }

 private:
  std::string partial() const { return path_ + ".partial"; }

  std::string line_of(const std::string& text, std::span<const float> embedding) const {
    ordered_json json = {{"text", text}};
    if (format_.precision == EmbeddingPrecision::kFloat32) {
      json["embedding"] = embedding;
    } else {
      std::string bytes;
      append_embeddings(format_, embedding, bytes);
      for (const char byte : bytes)
        json["embedding"].push_back(is_signed(format_.precision)
                                        ? static_cast<signed char>(byte)
                                        : static_cast<unsigned char>(byte));
    }
    return python_json(json);
  }

  std::unique_ptr<std::ostream> output_;
  std::string path_;  // path of a regular file; else empty
  EmbeddingFormat format_;
  ThreadPool& threads_;
};

// A pipe gets the number of rows before the rows, so all are kept until the end.
class NpyPipe final : public Output {
 public:
  explicit NpyPipe(EmbeddingFormat format) : format_(std::move(format)) {}

  void write(std::span<const std::string> texts, std::span<const float> embeddings) override {
    rows_ += texts.size();
    append_embeddings(format_, embeddings, bytes_);
  }
  void commit() override {
    write_whole(STDOUT_FILENO, npy_header(format_.precision, rows_, format_.size));
    write_whole(STDOUT_FILENO, bytes_);
  }
  void set_ranges(const ValueRanges& ranges) override { format_.ranges = ranges; }

 private:
  EmbeddingFormat format_;
  std::size_t rows_ = 0;
  std::string bytes_;
};

// Keeps all on disk until the ranges are known.
class WaitingOutput final : public Output {
 public:
  WaitingOutput(std::unique_ptr<Output> output, std::size_t size)
      : output_(std::move(output)), size_(size), spool_(size) {}

  void write(std::span<const std::string> texts, std::span<const float> embeddings) override {
    ranges_.add(embeddings, size_);
    spool_.append(texts, embeddings);
  }
  void commit() override {
    output_->set_ranges(ranges_);
    spool_.replay([&](std::span<const std::string> texts, std::span<const float> embeddings) {
      output_->write(texts, embeddings);
    });
    output_->commit();
  }

 private:
  std::unique_ptr<Output> output_;
  std::size_t size_;
  EmbeddingSpool spool_;
  ValueRanges ranges_;
};

formats::ParquetNumber number_of(EmbeddingPrecision precision) {
  if (precision == EmbeddingPrecision::kFloat32) return formats::ParquetNumber::kFloat;
  return is_signed(precision) ? formats::ParquetNumber::kInt8 : formats::ParquetNumber::kUint8;
}

// Columns text and embedding; a list has the values, or the bytes of --precision.
class ParquetOutput final : public Output {
 public:
  ParquetOutput(const std::string& path, EmbeddingFormat format)
      : format_(std::move(format)),
        bytes_of_row_(embedding_bytes(format_.precision, format_.size)),
        writer_(path, "text", "embedding", number_of(format_.precision),
                format_.precision == EmbeddingPrecision::kFloat32 ? format_.size : bytes_of_row_) {}

  void write(std::span<const std::string> texts, std::span<const float> embeddings) override {
    std::string bytes;
    append_embeddings(format_, embeddings, bytes);
    writer_.append(texts, bytes);
  }
  void commit() override { writer_.finish(); }
  void set_ranges(const ValueRanges& ranges) override { format_.ranges = ranges; }

 private:
  EmbeddingFormat format_;
  std::size_t bytes_of_row_;
  formats::ParquetWriter writer_;
};

class NpyOutput final : public Output {
 public:
  NpyOutput(const std::string& path, const EmbeddingFormat& format, const std::string& job)
      : file_(path, format, job) {}

  std::size_t rows_before() const override { return file_.rows(); }
  void write(std::span<const std::string>, std::span<const float> embeddings) override {
    file_.append(embeddings);
  }
  void commit() override { file_.commit(); }

 private:
  NpyFile file_;
};

}  // namespace

bool is_npy(const std::string& path) { return path.ends_with(".npy"); }

std::unique_ptr<Output> open_output(const OutputOptions& options, const std::string& job,
                                    const EmbeddingFormat& format, ThreadPool& threads) {
  const bool standard = options.path == "-";
  if (!standard && is_npy(options.path))
    return std::make_unique<NpyOutput>(options.path, format, job);
  std::unique_ptr<Output> output;
  if (standard && options.npy_in_pipes && ::isatty(STDOUT_FILENO) == 0)
    output = std::make_unique<NpyPipe>(format);
  else if (!standard && options.path.ends_with(".parquet"))
    output = std::make_unique<ParquetOutput>(options.path, format);
  else
    output = std::make_unique<JsonOutput>(options.path, format, threads);
  if (!format.lacks_ranges()) return output;
  return std::make_unique<WaitingOutput>(std::move(output), format.size);
}

}  // namespace tandem::apps
