#include "apps/embed_output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <utility>

#include "apps/answering/embedding_spool.h"
#include "apps/command/line_output.h"
#include "apps/command/text_output.h"
#include "tandem/core/error.h"
#include "tandem/core/json.h"
#include "tandem/core/python_json.h"
#include "tandem/formats/parquet_writer.h"

namespace tandem::apps {
namespace {

using nlohmann::ordered_json;

// {"text": …, "embedding": […]}, or the bytes of --precision.
class JsonOutput final : public Output {
 public:
  JsonOutput(const std::string& path, EmbeddingFormat format, ThreadPool& threads)
      : output_(path), format_(std::move(format)), threads_(threads) {}

  void write(std::span<const std::string> texts, std::span<const float> embeddings) override {
    std::vector<std::string> lines(texts.size());
    threads_.parallel_for(texts.size(), [&](std::size_t i, int) {
      lines[i] = line_of(texts[i], embeddings.subspan(i * format_.size, format_.size));
    });
    output_.write(fmt::format("{}\n", fmt::join(lines, "\n")));
  }
  void commit() override { output_.commit(); }
  void set_ranges(const ValueRanges& ranges) override { format_.ranges = ranges; }

 private:
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

  TextOutput output_;
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
    const std::string header = npy_header(format_.precision, rows_, format_.size);
    for (const std::string_view part : {std::string_view(header), std::string_view(bytes_)})
      write_whole(STDOUT_FILENO, part, "standard output");
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
