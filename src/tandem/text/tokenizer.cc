#include "tandem/text/tokenizer.h"

#include <utility>

#include "tandem/core/error.h"
#include "tandem/text/added_tokens.h"
#include "tandem/text/tokenizer_files.h"
#include "tandem/text/tokenizer_model.h"
#include "tandem/text/utf8.h"

namespace tandem::text {

struct Tokenizer::State {
  explicit State(TokenizerDefinition d)
      : definition(std::move(d)),
        model(definition.model_type->make(definition)),
        raw_tokens(select_added_tokens(definition.added_tokens, false)) {
    tokens = definition.vocabulary;
    for (const AddedToken& token : definition.added_tokens) {
      const auto id = static_cast<std::size_t>(token.id);
      if (id >= tokens.size()) tokens.resize(id + 1);
      tokens[id] = token.content;
    }
  }

  TokenizerDefinition definition;
  std::unique_ptr<TokenizerModel> model;
  AddedTokenMatcher raw_tokens;
  std::vector<std::string> tokens;  // [id]
};

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::load(const std::filesystem::path& directory) {
  return Tokenizer(std::make_unique<State>(read_tokenizer_definition(directory)));
}

void Tokenizer::encode(std::string_view text, Encoding& encoding) const {
  if (const auto invalid = find_invalid_utf8(text)) {
    raise<DataError>("text is not UTF-8 at byte {} (value 0x{:02x})", *invalid,
                     static_cast<unsigned char>(text[*invalid]));
  }
  encoding.ids.clear();
  encoding.offsets.clear();
  const State& s = *state_;
  std::uint32_t index = 0;
  for (std::size_t from = 0; from < text.size();) {
    const AddedTokenMatcher::Match match = s.raw_tokens.find(text, from);
    if (match.id < 0) {
      s.model->encode(text.substr(from), index, encoding);
      break;
    }
    index = s.model->encode(text.substr(from, match.begin - from), index, encoding);
    const auto count = static_cast<std::uint32_t>(
        count_code_points(text.substr(match.begin, match.end - match.begin)));
    encoding.ids.push_back(match.id);
    encoding.offsets.push_back({index, index + count});
    index += count;
    from = match.end;
  }
}

std::int32_t Tokenizer::cls_token_id() const { return state_->definition.cls_id; }
std::int32_t Tokenizer::sep_token_id() const { return state_->definition.sep_id; }
std::int32_t Tokenizer::pad_token_id() const { return state_->definition.pad_id; }
std::int32_t Tokenizer::unk_token_id() const { return state_->definition.unk_id; }
std::size_t Tokenizer::vocab_size() const { return state_->tokens.size(); }

std::string_view Tokenizer::token(std::int32_t id) const {
  const auto index = static_cast<std::size_t>(id);
  return id >= 0 && index < state_->tokens.size() ? std::string_view(state_->tokens[index])
                                                  : std::string_view();
}

std::size_t Tokenizer::model_max_length() const { return state_->definition.model_max_length; }

void Tokenizer::save(const std::filesystem::path& directory) const {
  write_tokenizer_definition(state_->definition, directory);
}

}  // namespace tandem::text
