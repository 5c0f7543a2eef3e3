#include "tandem/formats/arrow_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/formats/arrow_batch.h"
#include "tandem/formats/arrow_schema.h"
#include "tandem/formats/checked_bytes.h"
#include "tandem/formats/flatbuffer.h"

namespace tandem::formats {
namespace {

constexpr std::string_view kFileMagic = "ARROW1";
constexpr std::uint32_t kContinuation = 0xffffffff;

// Message.fbs: the union MessageHeader.
enum HeaderType : std::uint8_t { kSchema = 1, kDictionaryBatch = 2, kRecordBatch = 3 };

struct Message {
  FlatTable header;
  HeaderType type;
  CheckedBytes body;
};

class ArrowStream final : public TableSource {
 public:
  explicit ArrowStream(std::span<const std::byte> bytes)
      : bytes_(bytes, "the Arrow stream"), budget_(bytes.size()) {
    if (bytes_.text().starts_with(kFileMagic)) {
      position_ = 8;
      if (!bytes_.text().ends_with(kFileMagic)) {
        raise<DataError>("the Arrow file does not end with {}: it was cut off", kFileMagic);
      }
    }
    const auto message = next_message();
    if (!message || message->type != kSchema) {
      raise<DataError>("not an Arrow stream: it does not begin with a schema");
    }
    fields_ = read_arrow_schema(message->header);
    huggingface_ = arrow_schema_metadata(message->header, "huggingface");
    for (const ArrowField& field : fields_) names_.push_back(field.name);
  }

  std::span<const std::string> column_names() const override { return names_; }

  bool next(std::span<const std::size_t> columns, Table& table) override {
    while (const auto message = next_message()) {
      if (message->type == kSchema) raise<DataError>("a second schema in the Arrow stream");
      if (message->type != kRecordBatch) continue;  // dictionaries: only unread columns use them
      ++num_batches_;
      try {
        batch_ = std::make_unique<ArrowBatch>(message->header, message->body, budget_);
        table = batch_->read(fields_, columns);
      } catch (const DataError& error) {
        raise<DataError>("record batch {}: {}", num_batches_, error.what());
      }
      return true;
    }
    return false;
  }

  std::string_view metadata(std::string_view key) const override {
    return key == "huggingface" ? huggingface_ : std::string_view();
  }

  std::string location(std::size_t row) const override {
    return fmt::format("record batch {}, row {}", num_batches_, row + 1);
  }

 private:
  // A message: the marker 0xffffffff (absent before Arrow 0.15), the size of the metadata, the
  // metadata, the body. No metadata is the end of the stream.
  std::optional<Message> next_message() {
    if (has_ended_) return std::nullopt;
    if (position_ == bytes_.size()) {
      raise<DataError>(
          "the Arrow stream has no end mark after record batch {}: it was cut off, or its writer "
          "was "
          "never closed; write the file again",
          num_batches_);
    }
    auto size = bytes_.read<std::uint32_t>(position_);
    position_ += 4;
    if (size == kContinuation) {
      size = bytes_.read<std::uint32_t>(position_);
      position_ += 4;
    }
    if (size == 0) {
      has_ended_ = true;
      return std::nullopt;
    }
    const CheckedBytes metadata = bytes_.part(position_, size, "the metadata of an Arrow message");
    position_ += size;
    const FlatTable message = FlatTable::root(metadata);
    const auto header = message.table(2);
    if (!header) raise<DataError>("an Arrow message without content");
    const auto body_size = message.number<std::int64_t>(3);
    const CheckedBytes body =
        bytes_.part(position_, static_cast<std::uint64_t>(body_size), "the body of a record batch");
    position_ += static_cast<std::uint64_t>(body_size);
    return Message{*header, static_cast<HeaderType>(message.number<std::uint8_t>(1)), body};
  }

  CheckedBytes bytes_;
  ReadBudget budget_;
  std::uint64_t position_ = 0;
  std::vector<ArrowField> fields_;
  std::vector<std::string> names_;
  std::string_view huggingface_;
  std::unique_ptr<ArrowBatch> batch_;  // keeps decompressed buffers for the texts of the table
  std::size_t num_batches_ = 0;
  bool has_ended_ = false;
};

}  // namespace

std::unique_ptr<TableSource> open_arrow(std::span<const std::byte> bytes) {
  return std::make_unique<ArrowStream>(bytes);
}

}  // namespace tandem::formats
