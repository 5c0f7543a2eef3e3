// The demo's encoder with the head of a task (with_head.py): a model that answers untrained.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "support/process.h"

namespace tandem::testing {

// Made at `target`, which must not exist. kind: "ForQuestionAnswering", "ForSequenceClassification"
// or "ForTokenClassification"; the latter two have labels.
inline std::string model_with_head(const std::filesystem::path& target, const std::string& kind,
                                   const std::vector<std::string>& labels = {}) {
  std::vector<std::string> command = {"/usr/bin/env",
                                      "python3",
                                      TANDEM_SOURCE_DIR "/tests/support/with_head.py",
                                      TANDEM_SOURCE_DIR "/examples/demo/model",
                                      target.native(),
                                      kind};
  command.insert(command.end(), labels.begin(), labels.end());
  const ProcessResult made = run(command);
  if (made.exit_code != 0) throw std::runtime_error("with_head.py failed: " + made.err);
  return target.native();
}

}  // namespace tandem::testing
