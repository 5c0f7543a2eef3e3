#include "tandem/text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "tandem/core/error.h"
#include "tandem/core/interruption.h"
#include "tandem/text/added_tokens.h"
#include "tandem/text/bpe.h"
#include "tandem/text/tokenizer_files.h"
#include "tandem/text/tokenizer_model.h"
#include "tandem/text/utf8.h"

namespace tandem::text {

struct Tokenizer::State {
  explicit State(TokenizerDefinition d)
      : definition(std::move(d)),
        frame(definition.frame),
        model(definition.model_type->make(definition)),
        raw_tokens(select_added_tokens(definition.added_tokens, false)) {
    tokens = definition.vocabulary;
    for (const AddedToken& token : definition.added_tokens) {
      const auto id = static_cast<std::size_t>(token.id);
      if (id >= tokens.size()) tokens.resize(id + 1);
      tokens[id] = token.content;
    }
    if (!definition.token_types) frame.second_type_id = 0;
  }

  // Throws DataError if `text` is not valid UTF-8.
  void check(std::string_view text) const;
  // Appends the tokens of a valid text.
  void append(std::string_view text, Encoding& encoding) const;
  // The id of a special token of the files.
  std::optional<std::int32_t> find_special(const std::string& token) const;

  TokenizerDefinition definition;
  SequenceTemplate frame;  // template of the definition, as the model gets it
  std::unique_ptr<TokenizerModel> model;
  AddedTokenMatcher raw_tokens;
  std::vector<std::string> tokens;  // [id]
};

namespace {

void clear(Encoding& encoding) {
  encoding.ids.clear();
  encoding.offsets.clear();
  encoding.word_ids.clear();
  encoding.next_word = 0;
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& directory, const TokenizerOptions& options) {
  return Tokenizer(std::make_unique<State>(read_tokenizer_definition(directory, options)));
}

void Tokenizer::State::check(std::string_view text) const {
  if (const auto invalid = find_invalid_utf8(text)) {
    raise<DataError>("text is not UTF-8 at byte {} (value 0x{:02x})", *invalid,
                     static_cast<unsigned char>(text[*invalid]));
  }
}

void Tokenizer::State::append(std::string_view text, Encoding& encoding) const {
  std::uint32_t index = 0;
  InterruptionCheck check;
  for (std::size_t from = 0; from < text.size();) {
    check.count();
    const AddedTokenMatcher::Match match = raw_tokens.find(text, from);
    if (match.id < 0) {
      model->encode(text.substr(from), index, encoding);
      break;
    }
    index = model->encode(text.substr(from, match.begin - from), index, encoding);
    const std::string_view swallowed = text.substr(match.begin, match.end - match.begin);
    const auto count = static_cast<std::uint32_t>(count_code_points(swallowed));
    model->append_added_token(match.id, swallowed, {index, index + count}, encoding);
    index += count;
    from = match.end;
  }
}

void Tokenizer::encode(std::string_view text, Encoding& encoding) const {
  state_->check(text);
  clear(encoding);
  state_->append(text, encoding);
}

void Tokenizer::encode_words(std::span<const std::string_view> words, Encoding& encoding) const {
  clear(encoding);
  InterruptionCheck check;
  for (std::size_t word = 0; word < words.size(); ++word) {
    check.count();
    try {
      state_->check(words[word]);
    } catch (const DataError& error) {
      raise<DataError>("word {}: {}", word, error.what());
    }
    const std::size_t first = encoding.word_ids.size();
    state_->append(words[word], encoding);
    std::fill(encoding.word_ids.begin() + static_cast<std::ptrdiff_t>(first),
              encoding.word_ids.end(), static_cast<std::uint32_t>(word));
  }
}

const SequenceTemplate& Tokenizer::sequence_template() const {
  if (const auto& open = state_->definition.open_frame) {
    raise<DataError>(
        "the tokenizer frames a text as {}text{}, as those of decoders do; a task for encoders "
        "needs one that makes [CLS] text [SEP]: pass another --model_name_or_path or "
        "--tokenizer_name",
        open->begin.empty() ? "" : open->begin + " ", open->end.empty() ? "" : " " + open->end);
  }
  return state_->frame;
}

SequenceTemplate Tokenizer::text_template() const {
  if (!state_->definition.open_frame) return state_->frame;
  const TextFrame frame = text_frame();
  return {.cls_id = frame.begin.value_or(SequenceTemplate::kNoToken),
          .sep_id = frame.end.value_or(SequenceTemplate::kNoToken),
          .pad_id = pad_token_id().value_or(0)};
}

SequenceTemplate Tokenizer::pair_template() const {
  const auto& open = state_->definition.open_frame;
  if (!open) return state_->frame;
  if (!open->separators) {
    raise<DataError>(
        "the post_processor of the tokenizer has a template of pairs that tandem does not read; "
        "expected the tokens of one text around A and B, and one kind of token between them");
  }
  SequenceTemplate frame = text_template();
  frame.num_separators = open->separators->count;
  frame.separator_id = open->separators->id.value_or(SequenceTemplate::kNoToken);
  frame.second_type_id = 0;
  return frame;
}

TextFrame Tokenizer::text_frame() const {
  if (const auto& open = state_->definition.open_frame) return open->ids;
  return {state_->frame.cls_id, state_->frame.sep_id};
}

std::optional<std::int32_t> Tokenizer::token_id(std::string_view token) const {
  const auto& all = state_->tokens;
  const auto found = std::find(all.begin(), all.end(), token);
  if (found == all.end() || token.empty()) return std::nullopt;
  return static_cast<std::int32_t>(found - all.begin());
}

std::int32_t Tokenizer::unk_token_id() const { return state_->definition.unk_id; }

std::optional<std::int32_t> Tokenizer::State::find_special(const std::string& token) const {
  const auto& added = definition.added_tokens;
  const auto found = std::find_if(added.begin(), added.end(), [&](const AddedToken& candidate) {
    return !token.empty() && candidate.content == token;
  });
  if (found == added.end()) return std::nullopt;
  return found->id;
}

std::optional<std::int32_t> Tokenizer::mask_token_id() const {
  return state_->find_special(state_->definition.mask_token);
}

std::optional<std::int32_t> Tokenizer::pad_token_id() const {
  return state_->find_special(state_->definition.pad_token);
}

std::optional<std::int32_t> Tokenizer::eos_token_id() const {
  return state_->find_special(state_->definition.eos_token);
}

const std::string& Tokenizer::eos_token() const { return state_->definition.eos_token; }
const std::string& Tokenizer::chat_template() const { return state_->definition.chat_template; }

const std::vector<std::string>& Tokenizer::notes() const { return state_->definition.notes; }
bool Tokenizer::marks_continuations() const {
  return state_->definition.model_type->name == "WordPiece" &&
         !state_->definition.wordpiece.continuing_subword_prefix.empty();
}
std::size_t Tokenizer::vocab_size() const { return state_->tokens.size(); }

std::string_view Tokenizer::token(std::int32_t id) const {
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < state_->tokens.size() ? std::string_view(state_->tokens[index])
                                                  : std::string_view();
}

std::string Tokenizer::bytes_of(std::int32_t id) const {
  const TokenizerDefinition& definition = state_->definition;
  if (definition.model_type->name != "BPE") {
    raise<DataError>("the tokenizer's model is {}; texts are made of tokens of byte-level BPE only",
                     definition.model_type->name);
  }
  const auto is_added = [&](const AddedToken& added) { return added.id == id; };
  const std::string_view symbols = token(id);
  if (std::ranges::any_of(definition.added_tokens, is_added)) return std::string(symbols);
  std::string bytes;
  for (std::size_t at = 0; at < symbols.size();) {
    const char32_t symbol = next_code_point(symbols, at);
    for (int byte = 0; byte < 256; ++byte) {
      if (byte_symbol(static_cast<unsigned char>(byte)) == symbol)
        bytes += static_cast<char>(static_cast<unsigned char>(byte));
    }
  }
  return bytes;
}

bool Tokenizer::is_special(std::int32_t id) const {
  return std::ranges::any_of(state_->definition.added_tokens, [&](const AddedToken& added) {
    return added.special && added.id == id;
  });
}

std::size_t Tokenizer::model_max_length() const { return state_->definition.model_max_length; }

void Tokenizer::save(const std::filesystem::path& directory) const {
  write_tokenizer_definition(state_->definition, directory);
}

}  // namespace tandem::text
