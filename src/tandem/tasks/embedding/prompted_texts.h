// Texts of a job with the prompts in front of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tandem/tasks/text_classification/text_features.h"
#include "tandem/text/tokenizer.h"

namespace tandem::tasks::embedding {

// Texts without a prompt are views of those that were added, which must outlive this.
class PromptedTexts {
 public:
  void add(const std::string& prompt, std::string_view text);
  // The texts with their prompts, valid as long as this.
  std::span<const std::string_view> views() const { return views_; }
  std::size_t size() const { return views_.size(); }
  // Leaves the tokens of the prompts out of the pooling of `features`, those of views() in this
  // tokenizer and length.
  void leave_out_prompts(const text::Tokenizer& tokenizer,
                         text_classification::TextFeatures& features) const;

 private:
  struct Run {
    std::string prompt;
    std::size_t texts = 0;
  };

  std::vector<std::string_view> views_;
  std::deque<std::string> joined_;
  std::vector<Run> runs_;  // of texts with one prompt
};

}  // namespace tandem::tasks::embedding
