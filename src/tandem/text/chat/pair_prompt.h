// A query and a passage as a conversation, for decoders that score pairs: messages with the roles
// "query" and "document", as sentence-transformers 5.4 and later write them.
// Source: sentence_transformers/base/modality.py and base/modules/transformer.py of version 6.2.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/text/chat/chat_template.h"
#include "tandem/text/tokenizer.h"

namespace tandem::text {

// Settings of a model beside its template.
struct PairFormat {
  bool structured = false;  // the content of a message is a list of parts, not a text
  bool add_generation_prompt = false;
  bool keeps_end = true;  // false: end() is empty
};

// Constant once made. Any number of threads may ask.
class PairPrompt {
 public:
  // `instruction` is a message of the system in front; empty: none. Throws DataError for a
  // tokenizer without a template that is supported, and for a template in which the query or the
  // passage does not appear.
  PairPrompt(const Tokenizer& tokenizer, std::string instruction, const PairFormat& format = {});

  // The text that the model reads. No special tokens are put around it.
  std::string text(std::string_view query, std::string_view passage) const;

  // Tokens that end every text, because the template has them behind the passage. A text that is
  // cut keeps them (cut_but_keep_end()).
  std::span<const std::int32_t> end() const { return end_; }

 private:
  ChatTemplate template_;
  std::string instruction_;
  PairFormat format_;
  std::vector<std::int32_t> end_;
};

// Cuts a text to `room` tokens, the last of which are those of `end`.
void cut_but_keep_end(std::size_t room, std::span<const std::int32_t> end,
                      std::vector<std::int32_t>& ids);

}  // namespace tandem::text
