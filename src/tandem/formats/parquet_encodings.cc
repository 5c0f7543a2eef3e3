#include "tandem/formats/parquet_encodings.h"

#include <algorithm>

#include "tandem/core/error.h"

namespace tandem::formats {
namespace {

// Bytes one after another.
class Cursor {
 public:
  explicit Cursor(CheckedBytes data) : data_(data) {}

  std::size_t position() const { return position_; }
  bool at_end() const { return position_ == data_.size(); }
  CheckedBytes rest() const { return data_.from(position_); }

  CheckedBytes take(std::uint64_t size) {
    const CheckedBytes part = data_.part(position_, size);
    position_ += size;
    return part;
  }
  // Up to `size` bytes: the last group of a page may be cut.
  CheckedBytes take_up_to(std::uint64_t size) {
    return take(std::min<std::uint64_t>(size, data_.size() - position_));
  }
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto next = take(1).read<std::uint8_t>(0);
      value |= static_cast<std::uint64_t>(next & 0x7f) << shift;
      if (next < 0x80) return value;
    }
    raise<DataError>("a number of more than 64 bits");
  }
  std::uint64_t zigzag() {
    const std::uint64_t value = varint();
    return (value >> 1) ^ (~(value & 1) + 1);
  }

 private:
  CheckedBytes data_;
  std::size_t position_ = 0;
};

// Number `i` of bit-packed numbers of `width` (0 to 64) bits, the lowest bit first.
std::uint64_t unpack(CheckedBytes packed, std::size_t i, int width) {
  std::uint64_t value = 0;
  std::uint64_t bit = i * static_cast<std::uint64_t>(width);
  for (int done = 0; done < width;) {
    const int offset = static_cast<int>(bit % 8);
    const int take = std::min(8 - offset, width - done);
    const std::uint64_t bits = (packed.read<std::uint8_t>(bit / 8) >> offset) & ((1U << take) - 1);
    value |= bits << done;
    done += take;
    bit += static_cast<std::uint64_t>(take);
  }
  return value;
}

}  // namespace

void decode_rle(CheckedBytes data, int bit_width, std::size_t count,
                std::vector<std::uint32_t>& out) {
  if (bit_width < 0 || bit_width > 32) raise<DataError>("numbers of {} bits", bit_width);
  const auto width = static_cast<std::uint64_t>(bit_width);
  Cursor cursor(data);
  for (std::size_t left = count; left > 0;) {
    const std::uint64_t head = cursor.varint();
    if (head & 1) {  // (head >> 1) groups of eight bit-packed numbers
      const std::uint64_t groups = std::min<std::uint64_t>(head >> 1, left / 8 + 1);
      const std::size_t numbers = std::min<std::size_t>(groups * 8, left);
      if (numbers == 0) raise<DataError>("a run of no numbers");
      const CheckedBytes packed = cursor.take_up_to(groups * width);
      for (std::size_t i = 0; i < numbers; ++i) {
        out.push_back(static_cast<std::uint32_t>(unpack(packed, i, bit_width)));
      }
      left -= numbers;
    } else {  // one number, (head >> 1) times
      const std::size_t numbers = std::min<std::uint64_t>(head >> 1, left);
      if (numbers == 0) raise<DataError>("a run of no numbers");
      const CheckedBytes bytes = cursor.take((width + 7) / 8);
      const std::uint64_t value = unpack(bytes, 0, static_cast<int>(8 * bytes.size()));
      out.insert(out.end(), numbers, static_cast<std::uint32_t>(value));
      left -= numbers;
    }
  }
}

void decode_plain_integers(CheckedBytes data, std::size_t width, std::size_t count,
                           std::vector<std::int64_t>& out) {
  data.part(0, count * width);
  for (std::size_t i = 0; i < count; ++i) {
    out.push_back(width == 2   ? data.read<std::int16_t>(2 * i)
                  : width == 4 ? data.read<std::int32_t>(4 * i)
                               : data.read<std::int64_t>(8 * i));
  }
}

void decode_plain_texts(CheckedBytes data, std::size_t count, std::vector<std::string_view>& out) {
  Cursor cursor(data);
  for (std::size_t i = 0; i < count; ++i) {
    const auto size = cursor.take(4).read<std::uint32_t>(0);
    out.push_back(cursor.take(size).text());
  }
}

// A header: numbers in a block, miniblocks in a block, numbers in all, the first number. Then
// blocks:
// the least difference, the width of each miniblock, the miniblocks; those behind the last number
// are left out.
std::size_t decode_delta_integers(CheckedBytes data, std::size_t count,
                                  std::vector<std::int64_t>& out) {
  Cursor cursor(data);
  const std::uint64_t per_block = cursor.varint(), miniblocks = cursor.varint();
  const std::uint64_t total = cursor.varint();
  std::uint64_t value = cursor.zigzag();
  constexpr std::uint64_t kMost = 1 << 20;
  if (miniblocks == 0 || per_block == 0 || per_block > kMost || per_block % miniblocks != 0 ||
      per_block / miniblocks % 8 != 0) {
    raise<DataError>("blocks of {} numbers in {} parts", per_block, miniblocks);
  }
  if (total != count) raise<DataError>("{} numbers, expected {}", total, count);
  const std::size_t per_miniblock = per_block / miniblocks;
  if (count == 0) return cursor.position();
  out.push_back(static_cast<std::int64_t>(value));
  for (std::size_t left = count - 1; left > 0;) {
    const std::uint64_t least = cursor.zigzag();
    const CheckedBytes widths = cursor.take(miniblocks);
    for (std::size_t m = 0; m < miniblocks && left > 0; ++m) {
      const int width = widths.read<std::uint8_t>(m);
      if (width > 64) raise<DataError>("numbers of {} bits", width);
      const CheckedBytes packed = cursor.take(per_miniblock / 8 * static_cast<std::size_t>(width));
      const std::size_t numbers = std::min(per_miniblock, left);
      for (std::size_t i = 0; i < numbers; ++i) {
        value += least + unpack(packed, i, width);
        out.push_back(static_cast<std::int64_t>(value));
      }
      left -= numbers;
    }
  }
  return cursor.position();
}

void decode_delta_length_texts(CheckedBytes data, std::size_t count,
                               std::vector<std::string_view>& out) {
  std::vector<std::int64_t> lengths;
  Cursor cursor(data.from(decode_delta_integers(data, count, lengths)));
  for (const std::int64_t length : lengths) {
    out.push_back(cursor.take(static_cast<std::uint64_t>(length)).text());
  }
}

void decode_delta_texts(CheckedBytes data, std::size_t count, std::deque<std::string>& memory,
                        ReadBudget& budget, std::vector<std::string_view>& out) {
  std::vector<std::int64_t> prefixes;
  const std::size_t read = decode_delta_integers(data, count, prefixes);
  std::vector<std::string_view> suffixes;
  decode_delta_length_texts(data.from(read), count, suffixes);
  std::string_view last;
  for (std::size_t i = 0; i < count; ++i) {
    const auto prefix = static_cast<std::uint64_t>(prefixes[i]);
    if (prefix > last.size()) {
      raise<DataError>("a text shares {} bytes with one of {}", prefix, last.size());
    }
    budget.take_bytes(prefix + suffixes[i].size());  // prefixes of prefixes make a small page large
    std::string text(last.substr(0, prefix));
    text += suffixes[i];
    last = memory.emplace_back(std::move(text));
    out.push_back(last);
  }
}

}  // namespace tandem::formats
