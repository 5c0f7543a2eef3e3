// Features in a file: written once, mapped by every process that needs them, so that the ranks of a
// node share their memory.
//
// A set of features lists its fields by a static function template
// each_field(set, visit), which calls visit() for each of its fields, always in the same order: a
// StoredArray, warnings (a vector of texts), or something trivially copyable.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "tandem/core/file.h"
#include "tandem/tasks/stored_array.h"

namespace tandem::tasks {

using FieldBytes = std::span<const std::byte>;

// Writes a file of fields piece by piece, so that a field may be larger than memory. The file has a
// temporary name until publish(); without it the destructor removes the file. The file is not
// synced: what a crash leaves of it is noticed by its checksum. `key` names what the features were
// made of, see FeatureFields. Every function throws IoError.
class FeatureFileWriter {
 public:
  FeatureFileWriter(std::filesystem::path path, std::string_view key);

  // Adds bytes to the current field.
  void append(FieldBytes bytes);
  void end_field();
  // Gives the file its name after the last field, unless there is such a file: that one stays, for
  // others may have mapped it.
  void publish();

 private:
  void put(FieldBytes bytes);
  void pad();
  void flush();

  AtomicFile file_;
  std::string key_;
  std::vector<std::uint64_t> sizes_;  // sizes of the fields that are complete
  std::uint64_t field_bytes_ = 0;     // bytes of the current field
  std::uint64_t file_bytes_ = 0;
  std::uint64_t checksum_ = 0;
  std::vector<std::byte> buffer_;  // not written yet
};

// Writes all fields with a FeatureFileWriter. Throws IoError.
void write_fields(const std::filesystem::path& path, std::string_view key,
                  std::span<const FieldBytes> fields);

// The fields of a file, in order.
class FeatureFields {
 public:
  // Nothing if the file is missing. Throws DataError for a file of another format or key, and one
  // that is cut off or changed, and IoError, also for a file that another user wrote or may have
  // written: the consistency of the fields is not checked.
  static std::optional<FeatureFields> map(const std::filesystem::path& path, std::string_view key);
  // The bytes of such a file, which `memory` keeps; `name` is for messages. Whatever they are, no
  // field lies outside of them. Throws DataError as map() does.
  static FeatureFields parse(FieldBytes bytes, std::shared_ptr<const void> memory,
                             std::string_view key, std::string_view name);

  // Each takes the next field; throws DataError if its type is another.
  template <class T>
  void take(StoredArray<T>& field) {
    const FieldBytes bytes = next(sizeof(T), /*array=*/true);
    field = {{reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)}, memory_};
  }
  void take(std::vector<std::string>& field);
  template <class T>
  void take(T& field) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::memcpy(&field, next(sizeof(T), /*array=*/false).data(), sizeof(T));
  }

 private:
  FieldBytes next(std::size_t element_bytes, bool array);

  std::shared_ptr<const void> memory_;  // memory of the mapping; stays while an array of it lives
  std::vector<FieldBytes> fields_;
  std::size_t taken_ = 0;
};

// Bytes of fields, with the memory of those that are put together for it.
class CollectedFields {
 public:
  template <class T>
  void add(const StoredArray<T>& field) {
    fields_.push_back(std::as_bytes(field.view()));
  }
  void add(const std::vector<std::string>& field);
  template <class T>
  void add(const T& field) {
    static_assert(std::is_trivially_copyable_v<T>);
    fields_.push_back(std::as_bytes(std::span(&field, 1)));
  }
  std::span<const FieldBytes> fields() const { return fields_; }

 private:
  std::vector<FieldBytes> fields_;
  std::deque<std::string> texts_;
};

template <class Set>
void write_feature_file(const std::filesystem::path& path, std::string_view key, const Set& set) {
  CollectedFields collected;
  Set::each_field(set, [&](const auto& field) { collected.add(field); });
  write_fields(path, key, collected.fields());
}

// The features of the file, which stays mapped while a copy of them lives; nothing if the file is
// missing. Throws what FeatureFields does.
template <class Set>
std::optional<Set> read_feature_file(const std::filesystem::path& path, std::string_view key) {
  std::optional<FeatureFields> fields = FeatureFields::map(path, key);
  if (!fields) return std::nullopt;
  std::optional<Set> set(std::in_place);
  Set::each_field(*set, [&](auto& field) { fields->take(field); });
  return set;
}

}  // namespace tandem::tasks
