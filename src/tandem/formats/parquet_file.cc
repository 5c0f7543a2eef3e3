#include "tandem/formats/parquet_file.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tandem/core/error.h"
#include "tandem/core/float16.h"
#include "tandem/formats/checked_bytes.h"
#include "tandem/formats/parquet_column.h"
#include "tandem/formats/parquet_metadata.h"

namespace tandem::formats {
namespace {

constexpr std::size_t kNoLeaf = std::numeric_limits<std::size_t>::max();

bool is_readable(const ParquetNode& node) {
  switch (node.type) {
    case ParquetType::kInt96:
      return false;
    case ParquetType::kFixedLenByteArray:
      return node.meaning == ParquetMeaning::kFloat16 && node.width == 2;
    default:
      return node.meaning == ParquetMeaning::kPlain || node.meaning == ParquetMeaning::kUnsigned;
  }
}

Column::Kind kind_of(ParquetType type) {
  switch (type) {
    case ParquetType::kByteArray:
      return Column::Kind::kText;
    case ParquetType::kFloat:
    case ParquetType::kDouble:
    case ParquetType::kFixedLenByteArray:
      return Column::Kind::kNumber;
    case ParquetType::kBoolean:
      return Column::Kind::kBool;
    default:
      return Column::Kind::kInteger;
  }
}

// Value of the bits that read_parquet_leaf() gives for float16, float and double.
double number_of(ParquetType type, std::int64_t bits) {
  if (type == ParquetType::kDouble) return std::bit_cast<double>(bits);
  if (type == ParquetType::kFixedLenByteArray)
    return to_float(float16{static_cast<std::uint16_t>(bits)});
  return static_cast<double>(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
}

// Value of the bits that it gives for integers.
std::int64_t integer_of(const ParquetNode& node, std::int64_t bits) {
  if (node.meaning != ParquetMeaning::kUnsigned) return bits;
  if (node.type == ParquetType::kInt32) return static_cast<std::uint32_t>(bits);
  if (bits < 0)
    raise<DataError>("the integer {} does not fit into 63 bits", static_cast<std::uint64_t>(bits));
  return bits;
}

// The leaf whose levels show how a node is nested: the first one that is read.
std::size_t structure_leaf(const ParquetNode& node) {
  for (const ParquetNode& child : node.children) {
    const std::size_t leaf = structure_leaf(child);
    if (leaf != kNoLeaf) return leaf;
  }
  return node.is_leaf() && is_readable(node) ? node.leaf : kNoLeaf;
}

std::string type_name(const ParquetNode& node) {
  constexpr std::array<std::string_view, 8> kNames = {"boolean", "int32",  "int64",  "int96",
                                                      "float",   "double", "string", "fixed bytes"};
  constexpr std::array<std::string_view, 11> kMeanings = {
      "",     "u",         "float16",  "null", "decimal", "date",
      "time", "timestamp", "interval", "uuid", "binary"};
  if (node.is_leaf()) {
    const std::string_view name = kNames[static_cast<std::size_t>(node.type)];
    const std::string_view meaning = kMeanings[static_cast<std::size_t>(node.meaning)];
    if (node.meaning == ParquetMeaning::kUnsigned) return fmt::format("{}{}", meaning, name);
    return std::string(meaning.empty() ? name : meaning);
  }
  std::string fields;
  for (const ParquetNode& child : node.children) {
    fields += fmt::format("{}{}: {}", fields.empty() ? "" : ", ", child.name, type_name(child));
  }
  return fmt::format("{}<{}>", node.is_list ? "list" : "struct", fields);
}

// Turns the levels of leaves into columns. An instance of a node is a place where its parent is
// there; among the values of a leaf it is one whose repetition level is at most that of the node's
// parent (a list continues inside of it otherwise) and whose definition level means that the
// innermost list around the node has an element there.
class Assembler {
 public:
  explicit Assembler(std::span<ParquetLeaf> leaves) : leaves_(leaves) {}

  // `repetition`, `definition`: levels of the innermost list's elements around the node, 0 outside
  // of lists.
  Column assemble(const ParquetNode& node, int repetition, int definition) {
    if (structure_leaf(node) == kNoLeaf) return named(node);  // kOther
    if (node.repetition == ParquetRepetition::kRepeated) {
      // A list without annotation: always there, perhaps empty.
      return list(node, node, definition, repetition, definition,
                  [&] { return value(node, node.repetition_level, node.definition_level); });
    }
    return value(node, repetition, definition);
  }

 private:
  // A node that is not a list by itself, or an annotated one.
  Column value(const ParquetNode& node, int repetition, int definition) {
    if (node.is_leaf()) return leaf(node, repetition, definition);
    const bool one_repeated_child = node.children.size() == 1 && node.children.front().repetition ==
                                                                     ParquetRepetition::kRepeated;
    if (!node.is_list || !one_repeated_child) return structure(node, repetition, definition);
    const ParquetNode& repeated = node.children.front();
    const int r = repeated.repetition_level, d = repeated.definition_level;
    return list(node, repeated, node.definition_level, repetition, definition, [&] {
      return has_element_group(node, repeated) ? assemble(repeated.children.front(), r, d)
                                               : value(repeated, r, d);
    });
  }

  // Three levels, list > group of one > element, but for what old writers meant with two
  // (LogicalTypes.md, "Backward-compatibility rules").
  static bool has_element_group(const ParquetNode& list, const ParquetNode& repeated) {
    return repeated.children.size() == 1 && repeated.name != "array" &&
           repeated.name != list.name + "_tuple";
  }

  Column leaf(const ParquetNode& node, int repetition, int definition) {
    Column column = named(node);
    const ParquetLeaf& leaf = leaves_[node.leaf];
    column.kind = kind_of(node.type);
    std::size_t value = 0;  // index among the values that are not null
    for_instances(node, repetition, definition, [&](int level) {
      const bool there = level == node.definition_level;
      column.valid.push_back(there ? 1 : 0);
      if (column.kind == Column::Kind::kText) {
        column.texts.push_back(there ? leaf.texts[value] : std::string_view());
      } else if (column.kind == Column::Kind::kNumber) {
        column.numbers.push_back(there ? number_of(node.type, leaf.integers[value]) : 0);
      } else {
        column.integers.push_back(there ? integer_of(node, leaf.integers[value]) : 0);
      }
      value += there ? 1 : 0;
    });
    column.size = column.valid.size();
    return column;
  }

  Column structure(const ParquetNode& node, int repetition, int definition) {
    Column column = named(node);
    column.kind = Column::Kind::kStruct;
    for_instances(node, repetition, definition, [&](int level) {
      column.valid.push_back(level >= node.definition_level ? 1 : 0);
    });
    column.size = column.valid.size();
    for (const ParquetNode& child : node.children) {
      column.children.push_back(assemble(child, repetition, definition));
      const Column& last = column.children.back();
      if (last.kind != Column::Kind::kOther && last.size != column.size) {
        raise<DataError>("field \"{}\" of \"{}\" has {} values of {}", child.name, node.name,
                         last.size, column.size);
      }
    }
    return column;
  }

  template <class MakeElements>
  Column list(const ParquetNode& node, const ParquetNode& repeated, int there_level, int repetition,
              int definition, MakeElements&& make_elements) {
    Column column = named(node);
    column.kind = Column::Kind::kList;
    const ParquetLeaf& leaf = levels_of(node);
    std::size_t elements = 0;
    for (std::size_t i = 0; i < leaf.definition_levels.size(); ++i) {
      const int r = leaf.repetition_levels[i], d = leaf.definition_levels[i];
      if (r <= repetition && d >= definition) {
        column.begins.push_back(elements);
        column.valid.push_back(d >= there_level ? 1 : 0);
      }
      if (r <= repeated.repetition_level && d >= repeated.definition_level) ++elements;
    }
    column.size = column.begins.size();
    column.begins.push_back(elements);
    column.children.push_back(make_elements());
    const Column& child = column.children.front();
    if (child.kind != Column::Kind::kOther && child.size != elements) {
      raise<DataError>("the lists of \"{}\" have {} elements, but {} values", node.name, elements,
                       child.size);
    }
    return column;
  }

  template <class Visit>
  void for_instances(const ParquetNode& node, int repetition, int definition, Visit&& visit) const {
    const ParquetLeaf& leaf = levels_of(node);
    for (std::size_t i = 0; i < leaf.definition_levels.size(); ++i) {
      if (leaf.repetition_levels[i] <= repetition && leaf.definition_levels[i] >= definition) {
        visit(leaf.definition_levels[i]);
      }
    }
  }

  const ParquetLeaf& levels_of(const ParquetNode& node) const {
    const std::size_t leaf = structure_leaf(node);
    return leaves_[leaf == kNoLeaf ? node.leaf : leaf];
  }

  static Column named(const ParquetNode& node) {
    Column column;
    column.name = node.name;
    column.type = type_name(node);
    return column;
  }

  std::span<ParquetLeaf> leaves_;  // by number; those of other columns are empty
};

class ParquetFile final : public TableSource {
 public:
  explicit ParquetFile(std::span<const std::byte> bytes)
      : file_(bytes, "the Parquet file"),
        metadata_(read_parquet_metadata(file_)),
        memory_(bytes.size()) {
    for (const ParquetNode& node : metadata_.root.children) names_.push_back(node.name);
  }

  std::span<const std::string> column_names() const override { return names_; }

  bool next(std::span<const std::size_t> columns, Table& table) override {
    table = {};
    num_rows_before_ += num_rows_;
    num_rows_ = 0;
    if (next_group_ == metadata_.row_groups.size()) return false;
    const ParquetRowGroup& group = metadata_.row_groups[next_group_++];
    memory_.clear();
    if (columns.empty()) memory_.budget.take_values(group.num_rows);
    for (const std::size_t i : columns) {
      const ParquetNode& node = metadata_.root.children[i];
      try {
        table.columns.push_back(read_column(group, node));
      } catch (const DataError& error) {
        raise<DataError>("row group {}, column \"{}\": {}", next_group_, node.name, error.what());
      }
    }
    num_rows_ = table.num_rows = group.num_rows;
    return true;
  }

  std::string_view metadata(std::string_view key) const override {
    return key == "huggingface" ? metadata_.huggingface : std::string_view();
  }

  std::string location(std::size_t row) const override {
    return fmt::format("row {}", num_rows_before_ + row + 1);
  }

 private:
  Column read_column(const ParquetRowGroup& group, const ParquetNode& node) {
    std::vector<ParquetLeaf> leaves(metadata_.num_leaves);
    read_leaves(group, node, leaves);
    Column column = Assembler(leaves).assemble(node, 0, 0);
    if (structure_leaf(node) == kNoLeaf) {  // its rows are not read, but claimed
      memory_.budget.take_values(group.num_rows);
      column.size = group.num_rows;
    }
    if (column.size != group.num_rows) {
      raise<DataError>("{} values for {} rows", column.size, group.num_rows);
    }
    return column;
  }

  void read_leaves(const ParquetRowGroup& group, const ParquetNode& node,
                   std::span<ParquetLeaf> leaves) {
    for (const ParquetNode& child : node.children) read_leaves(group, child, leaves);
    if (!node.is_leaf() || !is_readable(node)) return;
    leaves[node.leaf] = read_parquet_leaf(file_, node, group.chunks[node.leaf], memory_);
  }

  const CheckedBytes file_;
  const ParquetMetadata metadata_;
  std::vector<std::string> names_;
  ParquetMemory memory_;  // memory of the row group that was read last
  std::size_t next_group_ = 0;
  std::uint64_t num_rows_before_ = 0, num_rows_ = 0;
};

}  // namespace

std::unique_ptr<TableSource> open_parquet(std::span<const std::byte> bytes) {
  return std::make_unique<ParquetFile>(bytes);
}

}  // namespace tandem::formats
