#include "tandem/text/tokenizer_model.h"

#include <array>

#include "tandem/text/bpe_model.h"
#include "tandem/text/unigram_model.h"
#include "tandem/text/wordpiece_model.h"

namespace tandem::text {

void TokenizerModel::append_added_token(std::int32_t id, std::string_view, Span span,
                                        Encoding& out) const {
  out.ids.push_back(id);
  out.offsets.push_back(span);
  out.word_ids.push_back(out.next_word++);
}

std::span<const TokenizerModelType> tokenizer_model_types() {
  static constexpr std::array kTypes = {kWordPieceType, kBpeType, kUnigramType};
  return kTypes;
}

}  // namespace tandem::text
