// One record batch of an Arrow stream: from buffers to columns.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "tandem/formats/arrow_schema.h"
#include "tandem/formats/checked_bytes.h"
#include "tandem/formats/flatbuffer.h"
#include "tandem/formats/read_budget.h"
#include "tandem/formats/table.h"

namespace tandem::formats {

class ArrowBatch {
 public:
  // `header` is the message's RecordBatch, `body` what its buffers point into; both must outlive
  // the batch. Its allocations are charged to `budget`, the file's.
  ArrowBatch(const FlatTable& header, CheckedBytes body, ReadBudget& budget);

  // The wanted columns, in the order of `columns`. Their texts lie in the body or in the batch.
  // Throws DataError that names the column.
  Table read(std::span<const ArrowField> fields, std::span<const std::size_t> columns);

 private:
  struct FieldNode {
    std::size_t length = 0, null_count = 0;
  };

  FieldNode next_node();
  CheckedBytes next_buffer();
  // The next buffer, which must hold `count` values of `width` bytes.
  CheckedBytes next_values(const ArrowField& field, std::size_t count, std::size_t width);
  CheckedBytes decompress(CheckedBytes buffer);
  Column read_column(const ArrowField& field);
  void read_validity(const FieldNode& node, Column& column);
  void read_texts(const ArrowField& field, Column& column);
  void read_text_views(const ArrowField& field, Column& column);
  std::uint32_t next_view_buffers();
  void read_integers(const ArrowField& field, Column& column);
  void read_numbers(const ArrowField& field, Column& column);
  void read_bools(Column& column);
  void read_list(const ArrowField& field, Column& column);
  void read_struct(const ArrowField& field, Column& column);
  std::vector<std::uint64_t> read_offsets(const ArrowField& field, std::size_t length);
  void skip_column(const ArrowField& field);

  const FlatVector nodes_, buffers_, view_counts_;
  const CheckedBytes body_;
  ReadBudget& budget_;
  const bool compressed_;
  std::size_t num_rows_ = 0;
  std::uint32_t node_ = 0, buffer_ = 0, view_ = 0;  // the next ones
  std::vector<std::unique_ptr<std::byte[]>> decompressed_;
  std::uint64_t decompressed_bytes_ = 0;
};

}  // namespace tandem::formats
