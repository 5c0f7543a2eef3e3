// The schema of an Arrow stream (Schema.fbs of the Arrow format, version 1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/formats/flatbuffer.h"

namespace tandem::formats {

// Type of a field's buffers; the numbers are those of Arrow's union Type.
enum class ArrowType : std::uint8_t {
  kNull = 1,
  kInt = 2,
  kFloatingPoint = 3,
  kBinary = 4,
  kUtf8 = 5,
  kBool = 6,
  kDecimal = 7,
  kDate = 8,
  kTime = 9,
  kTimestamp = 10,
  kInterval = 11,
  kList = 12,
  kStruct = 13,
  kUnion = 14,
  kFixedSizeBinary = 15,
  kFixedSizeList = 16,
  kMap = 17,
  kDuration = 18,
  kLargeBinary = 19,
  kLargeUtf8 = 20,
  kLargeList = 21,
  kRunEndEncoded = 22,
  kBinaryView = 23,
  kUtf8View = 24,
  kListView = 25,
  kLargeListView = 26,
};

struct ArrowField {
  std::string name;
  ArrowType type = ArrowType::kNull;
  std::string type_name;  // for messages: "int32", "list<utf8>"
  int bit_width = 0;      // bits of integers and of floating-point numbers
  bool is_signed = true;
  bool dictionary = false;  // its buffers hold indices of a dictionary
  bool dense = false;       // for a union: it has offsets
  std::vector<ArrowField> children;
};

// The fields of a message's schema. Throws DataError for a big-endian schema and for types whose
// buffers this reader does not know.
std::vector<ArrowField> read_arrow_schema(const FlatTable& schema);
// The value under `key` in its custom metadata; empty without the key.
std::string_view arrow_schema_metadata(const FlatTable& schema, std::string_view key);

}  // namespace tandem::formats
