#include "tandem/text/sentencepiece_file.h"

#include <protozero/pbf_reader.hpp>

#include "tandem/core/error.h"
#include "tandem/text/utf8.h"

namespace tandem::text {
namespace {

using protozero::pbf_wire_type;
using protozero::tag_and_type;

std::string_view view_of(protozero::data_view data) { return {data.data(), data.size()}; }

// The messages of one file; errors name the file and the byte.
class ModelReader {
 public:
  ModelReader(std::string_view bytes, const std::string& path) : bytes_(bytes), path_(path) {}

  // Calls `take` with the reader at each field of a message; `take` reads or skips the field.
  template <class Take>
  void each_field(std::string_view bytes, Take take) const {
    protozero::pbf_reader message(bytes.data(), bytes.size());
    try {
      while (message.next()) take(message);
    } catch (const protozero::end_of_buffer_exception&) {
      fail("it is cut off", message);
    } catch (const protozero::exception& error) {
      fail(error.what(), message);
    }
  }

  SentencePieceFile::Piece read_piece(std::string_view bytes) const {
    SentencePieceFile::Piece piece;
    each_field(bytes, [&](protozero::pbf_reader& message) {
      switch (message.tag_and_type()) {
        case tag_and_type(1, pbf_wire_type::length_delimited):
          piece.text = view_of(message.get_view());
          if (find_invalid_utf8(piece.text)) fail("a piece is not UTF-8", message);
          break;
        case tag_and_type(2, pbf_wire_type::fixed32):
          piece.score = message.get_float();
          break;
        case tag_and_type(3, pbf_wire_type::varint):
          piece.type = message.get_uint64();
          break;
        default:
          message.skip();
      }
    });
    return piece;
  }

  // The integer of a message with that tag, the last one if there are several.
  void read_integer(std::string_view bytes, protozero::pbf_tag_type tag,
                    std::uint64_t& value) const {
    each_field(bytes, [&](protozero::pbf_reader& message) {
      if (message.tag() == tag && message.has_wire_type(pbf_wire_type::varint)) {
        value = message.get_uint64();
      } else {
        message.skip();
      }
    });
  }

  // The same for bytes.
  void read_bytes(std::string_view bytes, protozero::pbf_tag_type tag,
                  std::string_view& value) const {
    each_field(bytes, [&](protozero::pbf_reader& message) {
      if (message.tag() == tag && message.has_wire_type(pbf_wire_type::length_delimited)) {
        value = view_of(message.get_view());
      } else {
        message.skip();
      }
    });
  }

 private:
  [[noreturn]] void fail(std::string_view problem, const protozero::pbf_reader& message) const {
    raise<DataError>(
        "'{}' is not a SentencePiece model: {} before byte {}; expected the file that "
        "sentencepiece "
        "writes, for example sentencepiece.bpe.model or spm.model",
        path_, problem, message.data().data() - bytes_.data());
  }

  std::string_view bytes_;
  const std::string& path_;
};

}  // namespace

SentencePieceFile read_sentencepiece_file(std::string_view bytes, const std::string& path) {
  SentencePieceFile file;
  const ModelReader reader(bytes, path);
  reader.each_field(bytes, [&](protozero::pbf_reader& message) {
    switch (message.tag_and_type()) {
      case tag_and_type(1, pbf_wire_type::length_delimited):
        file.pieces.push_back(reader.read_piece(view_of(message.get_view())));
        break;
      case tag_and_type(2, pbf_wire_type::length_delimited):  // TrainerSpec.model_type
        reader.read_integer(view_of(message.get_view()), 3, file.model_type);
        break;
      case tag_and_type(3, pbf_wire_type::length_delimited):  // NormalizerSpec.precompiled_charsmap
        reader.read_bytes(view_of(message.get_view()), 2, file.precompiled_charsmap);
        break;
      default:
        message.skip();
    }
  });
  return file;
}

}  // namespace tandem::text
