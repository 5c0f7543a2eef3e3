#include "tandem/text/sentencepiece_file.h"

#include <bit>

#include "tandem/core/error.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

// The fields of one message, in order (protobuf.dev, "Encoding").
class Message {
 public:
  // `begin` is the byte of the file at which the message begins.
  Message(std::string_view bytes, std::size_t begin, const std::string& path)
      : bytes_(bytes), begin_(begin), path_(path) {}

  // Reads the next field; false at the end.
  bool next() {
    if (at_ == bytes_.size()) return false;
    const std::uint64_t key = varint();
    number_ = key >> 3;
    wire_ = key & 7;
    switch (wire_) {
      case 0:
        value_ = varint();
        break;
      case 1:
        text_ = take(8);
        break;
      case 2:
        text_ = take(varint());
        break;
      case 5:
        text_ = take(4);
        break;
      default:
        fail("a field of an unknown type");
    }
    return true;
  }

  bool is_text(std::uint64_t number) const { return number_ == number && wire_ == 2; }
  bool is_integer(std::uint64_t number) const { return number_ == number && wire_ == 0; }
  bool is_float(std::uint64_t number) const { return number_ == number && wire_ == 5; }

  std::uint64_t integer() const { return value_; }
  std::string_view text() const { return text_; }
  Message message() const { return {text_, begin_ + at_ - text_.size(), path_}; }
  float real() const {
    std::uint32_t bits = 0;
    for (std::size_t i = 0; i < 4; ++i)
      bits |= std::uint32_t{static_cast<unsigned char>(text_[i])} << (8 * i);
    return std::bit_cast<float>(bits);
  }

  [[noreturn]] void fail(std::string_view problem) const {
    raise<DataError>(
        "'{}' is no SentencePiece model: {} before byte {}; expected the file that sentencepiece "
        "writes, for example sentencepiece.bpe.model",
        path_, problem, begin_ + at_);
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (at_ == bytes_.size()) fail("it is cut off");
      const auto byte = static_cast<unsigned char>(bytes_[at_++]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    fail("a number of more than 64 bits");
  }

  std::string_view take(std::uint64_t size) {
    if (size > bytes_.size() - at_) fail("it is cut off");
    const std::string_view part = bytes_.substr(at_, size);
    at_ += size;
    return part;
  }

  std::string_view bytes_;
  std::size_t begin_;
  const std::string& path_;
  std::size_t at_ = 0;
  std::uint64_t number_ = 0, wire_ = 0, value_ = 0;
  std::string_view text_;
};

SentencePieceFile::Piece read_piece(Message message) {
  SentencePieceFile::Piece piece;
  while (message.next()) {
    if (message.is_text(1)) piece.text = message.text();
    if (message.is_float(2)) piece.score = message.real();
    if (message.is_integer(3)) piece.type = message.integer();
  }
  if (find_invalid_utf8(piece.text)) message.fail("a piece that is not UTF-8");
  return piece;
}

}  // namespace

SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& path) {
  SentencePieceFile file;
  Message message(bytes, 0, path);
  while (message.next()) {
    if (message.is_text(1)) file.pieces.push_back(read_piece(message.message()));
    if (message.is_text(2)) {
      for (Message trainer = message.message(); trainer.next();)
        if (trainer.is_integer(3)) file.model_type = trainer.integer();
    }
    if (message.is_text(3)) {
      for (Message normalizer = message.message(); normalizer.next();)
        if (normalizer.is_text(2)) file.precompiled_charsmap = normalizer.text();
    }
  }
  return file;
}

}  // namespace tandem::text
