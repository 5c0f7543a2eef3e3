#include "tandem/tasks/corpus/piece_builder.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/tasks/encode_in_chunks.h"
#include "tandem/text/utf8.h"

namespace tandem::corpus {
namespace {

// Enough for all threads, and little compared with a model.
constexpr std::size_t kBlockBytes = std::size_t{4} << 20;

constexpr std::uint32_t kFrame = StoredToken::kSpecial | StoredToken::kWordBegin;

// Python: len(text) == 0 or text.isspace().
bool is_blank(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    if (!text::is_python_space(text::next_code_point(text, at))) return false;
  }
  return true;
}

// Some rows that one thread tokenizes.
struct Chunk {
  std::vector<std::uint32_t> tokens;
  std::vector<std::size_t> sizes;    // tokens of each row; 0: a blank row that is left out
  std::vector<std::size_t> dropped;  // dropped tokens of each row that was cut
};

// Throws DataError for a decoder's tokenizer where pieces have the frame of an encoder.
text::TextFrame frame_of(const text::Tokenizer& tokenizer, const PieceOptions& options) {
  if (!options.blocks) tokenizer.sequence_template();
  return tokenizer.text_frame();
}

std::size_t size_of(const text::TextFrame& frame) {
  return std::size_t{frame.begin.has_value()} + std::size_t{frame.end.has_value()};
}

class RowEncoder {
 public:
  RowEncoder(const text::Tokenizer& tokenizer, const PieceOptions& options)
      : tokenizer_(tokenizer), options_(options), frame_(frame_of(tokenizer, options)) {}

  void add(std::string_view text, text::Encoding& encoding, Chunk& chunk) const {
    if (options_.line_by_line && is_blank(text)) {
      chunk.sizes.push_back(0);
      return;
    }
    tokenizer_.encode(text, encoding);
    std::size_t kept = encoding.ids.size();
    if (options_.line_by_line) {
      const std::size_t room = options_.max_seq_length - size_of(frame_);
      if (kept > room) chunk.dropped.push_back(kept - room);
      kept = std::min(kept, room);
    }
    add_special(frame_.begin, chunk);
    for (std::size_t i = 0; i < kept; ++i) {
      const bool begins = i == 0 || encoding.word_ids[i] != encoding.word_ids[i - 1];
      chunk.tokens.push_back(static_cast<std::uint32_t>(encoding.ids[i]) |
                             (begins ? StoredToken::kWordBegin : 0));
    }
    add_special(frame_.end, chunk);
    chunk.sizes.push_back(kept + size_of(frame_));
  }

 private:
  static void add_special(const std::optional<std::int32_t>& id, Chunk& chunk) {
    if (id) chunk.tokens.push_back(static_cast<std::uint32_t>(*id) | kFrame);
  }

  const text::Tokenizer& tokenizer_;
  const PieceOptions& options_;
  const text::TextFrame frame_;
};

void add_chunk(const Chunk& chunk, const PieceOptions& options, PieceStore& store) {
  std::span<const std::uint32_t> left = chunk.tokens;
  for (const std::size_t size : chunk.sizes) {
    if (size == 0 && options.line_by_line) {
      store.add_blank_row();
    } else {
      store.add_row(left.first(size));
    }
    left = left.subspan(size);
  }
  for (const std::size_t dropped : chunk.dropped) store.count_cut(dropped);
}

}  // namespace

PieceStore::PieceStore(const text::Tokenizer& tokenizer, const PieceOptions& options,
                       tasks::FeatureFileWriter* file)
    : options_(options), file_(file) {
  const text::TextFrame frame = frame_of(tokenizer, options);
  const std::size_t least = options.line_by_line ? size_of(frame) + 1 : 1;
  if (options.max_seq_length < least) {
    raise<ConfigError>("{}: found {}, expected at least {}",
                       options.blocks ? "--block_size" : "--max_seq_length", options.max_seq_length,
                       least);
  }
  TANDEM_CHECK(tokenizer.vocab_size() <= StoredToken::kIdMask, "ids have 30 bits");
  pieces_.max_seq_length_ = options.max_seq_length;
  // Blocks need no padding, and a decoder's tokenizer may have no token for it.
  pieces_.pad_token_id_ =
      options.blocks ? tokenizer.pad_token_id().value_or(0) : tokenizer.sequence_template().pad_id;
}

void PieceStore::add_row(std::span<const std::uint32_t> tokens) {
  ++pieces_.counts_.rows;
  if (!options_.line_by_line) return add_joined(tokens);
  write(tokens);
  ends_.push_back(num_tokens_);
}

void PieceStore::add_blank_row() {
  ++pieces_.counts_.rows;
  ++pieces_.counts_.blank_rows;
}

void PieceStore::count_cut(std::size_t dropped_tokens) {
  ++pieces_.counts_.cut_rows;
  pieces_.counts_.dropped_tokens += dropped_tokens;
}

void PieceStore::add_joined(std::span<const std::uint32_t> tokens) {
  const std::size_t whole =
      (rest_.size() + tokens.size()) / options_.max_seq_length * options_.max_seq_length;
  if (whole > 0) {
    const std::size_t taken = whole - rest_.size();
    write(rest_);
    write(tokens.first(taken));
    rest_.clear();
    tokens = tokens.subspan(taken);
  }
  rest_.insert(rest_.end(), tokens.begin(), tokens.end());
  if (pieces_.counts_.rows % kJoinedRows == 0) end_joined_rows();
}

void PieceStore::end_joined_rows() {
  const std::uint64_t rows = pieces_.counts_.rows;
  const std::uint64_t joined = rows == 0 ? 0 : (rows - 1) % kJoinedRows + 1;
  if (options_.blocks && joined > 0 && num_tokens_ == joined_begin_) {
    raise<DataError>(
        "the {} part: found {} tokens in its rows {} to {}, which are joined, expected at least a "
        "block of --block_size {}; pass a --block_size of at most {}, or more text behind these "
        "rows",
        options_.part, rest_.size(), rows - joined + 1, rows, options_.max_seq_length,
        rest_.size());
  }
  pieces_.counts_.dropped_tokens += rest_.size();
  rest_.clear();
  joined_begin_ = num_tokens_;
}

void PieceStore::write(std::span<const std::uint32_t> tokens) {
  num_tokens_ += tokens.size();
  if (file_ == nullptr) {
    heap_.insert(heap_.end(), tokens.begin(), tokens.end());
  } else {
    file_->append(std::as_bytes(tokens));
  }
}

TextPieces PieceStore::finish() {
  if (pieces_.counts_.rows % kJoinedRows != 0) end_joined_rows();
  pieces_.num_pieces_ =
      options_.line_by_line ? ends_.size() : num_tokens_ / options_.max_seq_length;
  pieces_.ends_ = std::move(ends_);
  pieces_.tokens_ = std::move(heap_);
  if (file_ != nullptr) {
    file_->end_field();  // the tokens
    tasks::CollectedFields collected;
    TextPieces::each_field(std::as_const(pieces_),
                           [&](const auto& field) { collected.add(field); });
    for (const tasks::FieldBytes field : collected.fields().subspan(1)) {
      file_->append(field);
      file_->end_field();
    }
  }
  return std::move(pieces_);
}

std::uint64_t add_rows(TextRows& rows, RowRange range, const text::Tokenizer& tokenizer,
                       const PieceOptions& options, ThreadPool& threads, PieceStore& store) {
  const RowEncoder encoder(tokenizer, options);
  std::uint64_t seen = 0;
  for (RowBlock block; seen < range.end && rows.next(block, kBlockBytes);) {
    const std::uint64_t first = block.first_row;
    seen = first + block.texts.size();
    if (seen <= range.begin) continue;
    const std::size_t begin = static_cast<std::size_t>(std::max(range.begin, first) - first);
    const std::size_t end = static_cast<std::size_t>(std::min(range.end, seen) - first);
    const std::vector<Chunk> chunks = tasks::encode_in_chunks<Chunk>(
        end - begin, threads, [&](std::size_t row) { return rows.location(first + begin + row); },
        [&](std::size_t row, text::Encoding& encoding, Chunk& chunk) {
          encoder.add(block.texts[begin + row], encoding, chunk);
        });
    for (const Chunk& chunk : chunks) add_chunk(chunk, options, store);
  }
  return std::min(seen, range.end);
}

}  // namespace tandem::corpus
