#include "tandem/formats/arrow_schema.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

#include "tandem/core/error.h"

namespace tandem::formats {
namespace {

constexpr int kMaxDepth = 16;
constexpr std::size_t kMaxFields = 10000;

constexpr std::array<std::string_view, 27> kTypeNames = {"none",
                                                         "null",
                                                         "int",
                                                         "float",
                                                         "binary",
                                                         "utf8",
                                                         "bool",
                                                         "decimal",
                                                         "date",
                                                         "time",
                                                         "timestamp",
                                                         "interval",
                                                         "list",
                                                         "struct",
                                                         "union",
                                                         "fixed_size_binary",
                                                         "fixed_size_list",
                                                         "map",
                                                         "duration",
                                                         "large_binary",
                                                         "large_utf8",
                                                         "large_list",
                                                         "run_end_encoded",
                                                         "binary_view",
                                                         "utf8_view",
                                                         "list_view",
                                                         "large_list_view"};

class SchemaReader {
 public:
  ArrowField read(const FlatTable& table, int depth) {
    if (depth > kMaxDepth || ++num_fields_ > kMaxFields) {
      raise<DataError>("the schema has more than {} fields or more than {} levels", kMaxFields,
                       kMaxDepth);
    }
    ArrowField field;
    field.name = table.text(0);
    const auto type = table.number<std::uint8_t>(2);
    const std::string_view name = type < kTypeNames.size() ? kTypeNames[type] : "unknown";
    if (type == 0 || type > static_cast<int>(ArrowType::kLargeListView)) {
      raise<DataError>(
          "column \"{}\" has the type {} (number {}), which is not supported; write it with list, "
          "struct, string and integer columns, as `datasets` does",
          field.name, name, type);
    }
    field.type = static_cast<ArrowType>(type);
    field.dictionary = table.table(4).has_value();
    const FlatVector children = table.vector(5);
    for (std::uint32_t i = 0; i < children.size(); ++i) {
      field.children.push_back(read(children.table(i), depth + 1));
    }
    if (field.type == ArrowType::kInt) {
      if (const auto integer = table.table(3)) {
        field.bit_width = integer->number<std::int32_t>(0);
        field.is_signed = integer->number<std::uint8_t>(1) != 0;
      }
    }
    if (field.type == ArrowType::kFloatingPoint) {
      const auto precision = table.table(3) ? table.table(3)->number<std::int16_t>(0) : 0;
      field.bit_width = 16 << std::clamp<int>(precision, 0, 2);
    }
    if (field.type == ArrowType::kUnion && table.table(3))
      field.dense = table.table(3)->number<std::int16_t>(0) == 1;
    field.type_name = describe(field, name);
    check(field);
    return field;
  }

 private:
  static std::string describe(const ArrowField& field, std::string_view name) {
    if (field.dictionary) return fmt::format("dictionary of {}", name);
    if (field.type == ArrowType::kInt) {
      return fmt::format("{}int{}", field.is_signed ? "" : "u", field.bit_width);
    }
    if (field.type == ArrowType::kFloatingPoint) return fmt::format("float{}", field.bit_width);
    if (field.children.empty()) return std::string(name);
    std::string children;
    for (const ArrowField& child : field.children) {
      const bool is_list = field.type != ArrowType::kStruct;
      children += fmt::format("{}{}{}", children.empty() ? "" : ", ",
                              is_list ? "" : child.name + ": ", child.type_name);
    }
    return fmt::format("{}<{}>", name, children);
  }

  static void check(const ArrowField& field) {
    const bool is_list = field.type == ArrowType::kList || field.type == ArrowType::kLargeList ||
                         field.type == ArrowType::kFixedSizeList || field.type == ArrowType::kMap;
    if (is_list && field.children.size() != 1) {
      raise<DataError>("column \"{}\" is a {} of {} children, expected 1", field.name,
                       field.type_name, field.children.size());
    }
    const int width = field.bit_width;
    if (field.type == ArrowType::kInt && width != 8 && width != 16 && width != 32 && width != 64) {
      raise<DataError>("column \"{}\" has integers of {} bits", field.name, width);
    }
  }

  std::size_t num_fields_ = 0;
};

}  // namespace

std::vector<ArrowField> read_arrow_schema(const FlatTable& schema) {
  if (schema.number<std::int16_t>(0) != 0) {
    raise<DataError>("the Arrow data are big-endian, which is not supported");
  }
  SchemaReader reader;
  std::vector<ArrowField> fields;
  const FlatVector children = schema.vector(1);
  for (std::uint32_t i = 0; i < children.size(); ++i) {
    fields.push_back(reader.read(children.table(i), 0));
  }
  return fields;
}

std::string_view arrow_schema_metadata(const FlatTable& schema, std::string_view key) {
  const FlatVector entries = schema.vector(2);
  for (std::uint32_t i = 0; i < entries.size(); ++i) {
    if (entries.table(i).text(0) == key) return entries.table(i).text(1);
  }
  return {};
}

}  // namespace tandem::formats
