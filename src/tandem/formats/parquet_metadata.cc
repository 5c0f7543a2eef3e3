#include "tandem/formats/parquet_metadata.h"

#include "tandem/core/error.h"

namespace tandem::formats {
namespace {

using Type = CompactReader::Type;

constexpr int kMaxSchemaDepth = 16;
constexpr std::size_t kMaxNodes = 10000;

// ConvertedType and the members of the union LogicalType that matter.
constexpr std::int64_t kConvertedMap = 1, kConvertedMapKeyValue = 2, kConvertedList = 3;
constexpr int kLogicalMap = 2, kLogicalList = 3, kLogicalInteger = 10;

ParquetMeaning meaning_of_converted(std::int64_t type) {
  if (type >= 11 && type <= 14) return ParquetMeaning::kUnsigned;
  switch (type) {
    case 5:
      return ParquetMeaning::kDecimal;
    case 6:
      return ParquetMeaning::kDate;
    case 7:
    case 8:
      return ParquetMeaning::kTime;
    case 9:
    case 10:
      return ParquetMeaning::kTimestamp;
    case 20:
      return ParquetMeaning::kBinary;
    case 21:
      return ParquetMeaning::kInterval;
    default:
      return ParquetMeaning::kPlain;
  }
}

ParquetMeaning meaning_of_logical(int type) {
  switch (type) {
    case 5:
      return ParquetMeaning::kDecimal;
    case 6:
      return ParquetMeaning::kDate;
    case 7:
      return ParquetMeaning::kTime;
    case 8:
      return ParquetMeaning::kTimestamp;
    case 11:
      return ParquetMeaning::kNull;
    case 13:
    case 16:
    case 17:
    case 18:
      return ParquetMeaning::kBinary;
    case 14:
      return ParquetMeaning::kUuid;
    case 15:
      return ParquetMeaning::kFloat16;
    default:
      return ParquetMeaning::kPlain;
  }
}

std::uint64_t positive(std::int64_t value, std::string_view what,
                       std::uint64_t most = std::uint64_t{1} << 62) {
  if (value >= 0 && static_cast<std::uint64_t>(value) <= most) {
    return static_cast<std::uint64_t>(value);
  }
  raise<DataError>("metadata with {} {}, expected 0 to {}", what, value, most);
}

// A SchemaElement: a node, and how many of the following elements are its children.
struct Element {
  ParquetNode node;
  std::uint64_t num_children = 0;
};

// LogicalType: a union of structs, of which only IntType's isSigned matters.
void read_logical_type(CompactReader& reader, ParquetNode& node) {
  reader.read_struct([&](int logical, Type type) {
    node.is_list |= logical == kLogicalList;
    node.is_map |= logical == kLogicalMap;
    if (const ParquetMeaning meaning = meaning_of_logical(logical);
        meaning != ParquetMeaning::kPlain)
      node.meaning = meaning;
    if (logical != kLogicalInteger) return false;
    reader.require_struct(type);
    reader.read_struct([&](int field, Type boolean) {
      if (field != 2) return false;
      if (!reader.boolean(boolean)) node.meaning = ParquetMeaning::kUnsigned;
      return true;
    });
    return true;
  });
}

Element read_element(CompactReader& reader) {
  Element element;
  ParquetNode& node = element.node;
  reader.read_struct([&](int field, Type type) {
    switch (field) {
      case 1:
        node.type = static_cast<ParquetType>(positive(reader.integer(type), "a type", 7));
        return true;
      case 2:
        node.width = positive(reader.integer(type), "a width of values");
        return true;
      case 3:
        node.repetition =
            static_cast<ParquetRepetition>(positive(reader.integer(type), "a repetition", 2));
        return true;
      case 4:
        node.name = reader.binary(type);
        return true;
      case 5:
        element.num_children = positive(reader.integer(type), "a number of children", kMaxNodes);
        return true;
      case 6: {
        const std::int64_t converted = reader.integer(type);
        node.is_list |= converted == kConvertedList;
        node.is_map |= converted == kConvertedMap || converted == kConvertedMapKeyValue;
        if (node.meaning == ParquetMeaning::kPlain) node.meaning = meaning_of_converted(converted);
        return true;
      }
      case 10:
        reader.require_struct(type);
        read_logical_type(reader, node);
        return true;
      default:
        return false;
    }
  });
  return element;
}

// The elements are the schema's tree, depth first.
class TreeBuilder {
 public:
  explicit TreeBuilder(std::vector<Element> elements) : elements_(std::move(elements)) {}

  ParquetNode build(int definition_level, int repetition_level, int depth) {
    if (next_ >= elements_.size() || depth > kMaxSchemaDepth) {
      raise<DataError>("a schema that is not complete, or of more than {} levels", kMaxSchemaDepth);
    }
    Element& element = elements_[next_++];
    ParquetNode node = std::move(element.node);
    if (depth == 0) node.repetition = ParquetRepetition::kRequired;
    node.definition_level =
        definition_level + (node.repetition == ParquetRepetition::kRequired ? 0 : 1);
    node.repetition_level =
        repetition_level + (node.repetition == ParquetRepetition::kRepeated ? 1 : 0);
    node.leaf = num_leaves_;
    for (std::uint64_t i = 0; i < element.num_children; ++i) {
      node.children.push_back(build(node.definition_level, node.repetition_level, depth + 1));
    }
    if (node.is_leaf()) ++num_leaves_;
    return node;
  }

  bool complete() const { return next_ == elements_.size(); }
  std::size_t num_leaves() const { return num_leaves_; }

 private:
  std::vector<Element> elements_;
  std::size_t next_ = 0;
  std::size_t num_leaves_ = 0;
};

ParquetChunk read_column_metadata(CompactReader& reader) {
  ParquetChunk chunk;
  std::uint64_t dictionary = 0;
  reader.read_struct([&](int field, Type type) {
    switch (field) {
      case 4:
        chunk.codec = static_cast<ParquetCodec>(positive(reader.integer(type), "a codec", 255));
        return true;
      case 5:
        chunk.num_values = positive(reader.integer(type), "a number of values");
        return true;
      case 7:
        chunk.bytes = positive(reader.integer(type), "a size");
        return true;
      case 9:
        chunk.offset = positive(reader.integer(type), "an offset");
        return true;
      case 11:
        dictionary = positive(reader.integer(type), "an offset");
        return true;
      default:
        return false;
    }
  });
  // Some writers give 0 for "no dictionary".
  if (dictionary != 0 && dictionary < chunk.offset) chunk.offset = dictionary;
  return chunk;
}

ParquetChunk read_chunk(CompactReader& reader) {
  ParquetChunk chunk;
  bool encrypted = false;
  std::string_view other_file;
  reader.read_struct([&](int field, Type type) {
    encrypted |= field == 8;
    if (field == 1) {
      other_file = reader.binary(type);
      return true;
    }
    if (field != 3) return false;
    reader.require_struct(type);
    chunk = read_column_metadata(reader);
    return true;
  });
  chunk.encrypted = encrypted;
  chunk.other_file = other_file;
  return chunk;
}

ParquetRowGroup read_row_group(CompactReader& reader) {
  ParquetRowGroup group;
  reader.read_struct([&](int field, Type type) {
    if (field == 3) {
      group.num_rows = positive(reader.integer(type), "a number of rows", kMaxParquetValues);
      return true;
    }
    if (field != 1) return false;
    reader.read_list(type, [&](Type element) {
      reader.require_struct(element);
      group.chunks.push_back(read_chunk(reader));
    });
    return true;
  });
  return group;
}

void read_key_value(CompactReader& reader, ParquetMetadata& metadata) {
  std::string_view key, value;
  reader.read_struct([&](int field, Type type) {
    if (field != 1 && field != 2) return false;
    (field == 1 ? key : value) = reader.binary(type);
    return true;
  });
  if (key == "huggingface") metadata.huggingface = value;
}

// The bytes of the footer: "PAR1" … footer, its size, "PAR1".
CheckedBytes find_footer(CheckedBytes file) {
  if (file.size() < 12 || !file.text().starts_with(kParquetMagic)) {
    raise<DataError>("not a Parquet file: it does not begin with PAR1");
  }
  const std::string_view end = file.part(file.size() - 4, 4).text();
  if (end == "PARE") raise<DataError>("an encrypted Parquet file, which is not supported");
  if (end != kParquetMagic) {
    raise<DataError>("it does not end with PAR1: cut off, perhaps an interrupted download");
  }
  const auto size = file.read<std::uint32_t>(file.size() - 8);
  if (size > file.size() - 12) {
    raise<DataError>("its footer claims {} bytes of a file of {}", size, file.size());
  }
  return file.part(file.size() - 8 - size, size, "the footer");
}

// DataPageHeader and, with fewer of its fields, DictionaryPageHeader.
void read_page_of_version_1(CompactReader& reader, ParquetPage& page) {
  reader.read_struct([&](int field, Type type) {
    switch (field) {
      case 1:
        page.num_values = positive(reader.integer(type), "a number of values", kMaxParquetValues);
        return true;
      case 2:
        page.encoding = static_cast<int>(positive(reader.integer(type), "an encoding", 255));
        return true;
      case 3:
      case 4:
        if (page.kind != ParquetPage::Kind::kData) return false;
        if (const std::int64_t encoding = reader.integer(type); encoding != 3) {
          page.level_encoding = static_cast<int>(positive(encoding, "an encoding", 255));
        }
        return true;
      default:
        return false;
    }
  });
}

// DataPageHeaderV2.
void read_page_of_version_2(CompactReader& reader, ParquetPage& page) {
  reader.read_struct([&](int field, Type type) {
    switch (field) {
      case 1:
        page.num_values = positive(reader.integer(type), "a number of values", kMaxParquetValues);
        return true;
      case 4:
        page.encoding = static_cast<int>(positive(reader.integer(type), "an encoding", 255));
        return true;
      case 5:
        page.definition_bytes = positive(reader.integer(type), "a size");
        return true;
      case 6:
        page.repetition_bytes = positive(reader.integer(type), "a size");
        return true;
      case 7:
        page.is_compressed = reader.boolean(type);
        return true;
      default:
        return false;
    }
  });
}

}  // namespace

ParquetMetadata read_parquet_metadata(CheckedBytes file) {
  ParquetMetadata metadata;
  std::vector<Element> elements;
  CompactReader reader(find_footer(file));
  reader.read_struct([&](int field, Type type) {
    if (field != 2 && field != 4 && field != 5) return false;
    reader.read_list(type, [&](Type element) {
      reader.require_struct(element);
      if (field == 5) {
        read_key_value(reader, metadata);
      } else if (field == 4) {
        metadata.row_groups.push_back(read_row_group(reader));
      } else if (elements.size() < kMaxNodes) {
        elements.push_back(read_element(reader));
      } else {
        raise<DataError>("a schema of more than {} nodes", kMaxNodes);
      }
    });
    return true;
  });
  TreeBuilder builder(std::move(elements));
  metadata.root = builder.build(0, 0, 0);
  metadata.num_leaves = builder.num_leaves();
  if (!builder.complete()) raise<DataError>("a schema with nodes that belong to nothing");
  for (const ParquetRowGroup& group : metadata.row_groups) {
    if (group.chunks.size() != metadata.num_leaves) {
      raise<DataError>("a row group of {} columns, but the schema has {}", group.chunks.size(),
                       metadata.num_leaves);
    }
  }
  return metadata;
}

ParquetPage read_parquet_page_header(CheckedBytes bytes, std::size_t& header_bytes) {
  ParquetPage page;
  CompactReader reader(bytes);
  reader.read_struct([&](int field, Type type) {
    switch (field) {
      case 1:
        page.kind =
            static_cast<ParquetPage::Kind>(positive(reader.integer(type), "a kind of page", 3));
        return true;
      case 2:
        page.bytes = positive(reader.integer(type), "a size");
        return true;
      case 3:
        page.compressed_bytes = positive(reader.integer(type), "a size");
        return true;
      case 4:
        page.checksum = static_cast<std::uint32_t>(reader.integer(type));
        return true;
      case 5:
      case 7:
        reader.require_struct(type);
        read_page_of_version_1(reader, page);
        return true;
      case 8:
        reader.require_struct(type);
        read_page_of_version_2(reader, page);
        return true;
      default:
        return false;
    }
  });
  header_bytes = reader.position();
  return page;
}

}  // namespace tandem::formats
