#include "tandem/text/tokenizer_model.h"

#include <array>

#include "tandem/text/wordpiece_model.h"

namespace tandem::text {

std::span<const TokenizerModelType> tokenizer_model_types() {
  static constexpr std::array kTypes = {kWordPieceType};
  return kTypes;
}

}  // namespace tandem::text
