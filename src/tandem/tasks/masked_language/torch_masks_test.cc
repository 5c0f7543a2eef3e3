// Masks of the official collator, bit for bit: single batches, and whole runs with the places of
// their masks in torch's stream.
#include "tandem/tasks/masked_language/torch_masks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "support/test_support.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"

namespace tandem::masked_language {
namespace {

using nlohmann::json;
using Ids = std::vector<std::uint32_t>;

constexpr std::uint32_t kTorchMask = 4, kTorchVocabulary = 415;

json golden(const std::string& name) {
  return json::parse(read_file(testing::shared_data() / "golden/next/mlm" / (name + ".json")));
}

corpus::TextPiece piece_of(const Ids& ids, bool mask_is_special = false) {
  corpus::TextPiece piece;
  piece.ids = ids;
  for (const std::uint32_t id : ids) {
    const bool special = id == 0 || id == 2 || id == 3 || (mask_is_special && id == kTorchMask);
    piece.special.push_back(special ? 1 : 0);
  }
  piece.word_begins.assign(ids.size(), 1);
  return piece;
}

// Masks the pieces and compares with a batch of the collator, padding included.
void expect_batch(TorchMasks& masks, const std::vector<corpus::TextPiece>& pieces,
                  const json& batch, const std::string& name) {
  const auto ids = batch.at("input_ids").get<std::vector<Ids>>();
  const auto labels = batch.at("labels").get<std::vector<std::vector<std::int32_t>>>();
  ASSERT_EQ(ids.size(), pieces.size());
  std::vector<MaskedPiece> out(pieces.size());
  masks.mask_batch(pieces, ids.front().size(), out);
  for (std::size_t row = 0; row < pieces.size(); ++row) {
    out[row].ids.resize(ids[row].size(), 0);
    out[row].labels.resize(ids[row].size(), kNoLabel);
    EXPECT_EQ(out[row].ids, ids[row]) << name << ", row " << row;
    EXPECT_EQ(out[row].labels, labels[row]) << name << ", row " << row;
  }
}

class TorchMaskGoldens : public testing::SharedDataTest {};

TEST_F(TorchMaskGoldens, BatchesOfTheCollator) {
  const json record = golden("masks");
  int cases = 0;
  for (const auto& [name, one] : record.items()) {
    if (!one.is_object() || !one.contains("calls")) continue;
    ++cases;
    TorchMasks masks(one.at("seed"), {.probability = one.at("probability"),
                                      .whole_words = false,
                                      .mask_token_id = kTorchMask,
                                      .vocabulary_size = kTorchVocabulary});
    for (const json& call : one.at("calls")) {
      std::vector<corpus::TextPiece> pieces;
      for (const Ids& ids : call.at("original").get<std::vector<Ids>>())
        pieces.push_back(piece_of(ids, !one.at("special").get<bool>()));
      expect_batch(masks, pieces, call, name);
    }
    // Where the stream is afterwards: torch.rand(2, dtype=float64).
    std::mt19937 engine(one.at("seed").get<std::uint32_t>());
    engine.discard(masks.words_drawn());
    for (const double expected : one.at("next_uniform").get<std::vector<double>>()) {
      const std::uint64_t high = engine(), low = engine();
      EXPECT_EQ(
          static_cast<double>(((high << 32) | low) & ((std::uint64_t{1} << 53) - 1)) * 0x1p-53,
          expected)
          << name;
    }
  }
  EXPECT_EQ(cases, 4);
}

class TorchMaskRuns : public testing::SharedDataTest,
                      public ::testing::WithParamInterface<const char*> {};

TEST_P(TorchMaskRuns, MasksOfARun) {
  const json run = golden(std::string("trajectory_") + GetParam());
  const auto original = run.at("original").get<std::vector<Ids>>();
  const std::size_t batch_size = run.at("arguments").at("per_device_train_batch_size");
  TorchMasks masks(run.at("seed"), {.probability = run.at("mlm_probability"),
                                    .whole_words = false,
                                    .mask_token_id = kTorchMask,
                                    .vocabulary_size = kTorchVocabulary});
  const auto expect_rows = [&](const json& batch, const std::string& name) {
    std::vector<corpus::TextPiece> pieces;
    for (const std::size_t row : batch.at("rows").get<std::vector<std::size_t>>())
      pieces.push_back(piece_of(original.at(row)));
    expect_batch(masks, pieces, batch, name);
  };
  const std::size_t batches_per_epoch = (original.size() + batch_size - 1) / batch_size;
  std::size_t trained = 0;
  for (const json& batch : run.at("batches")) {
    // Batches of more rows are evaluations between epochs.
    const bool evaluates = batch.at("rows").size() > batch_size;
    if (evaluates || trained % batches_per_epoch == 0) masks.begin_iterator();
    expect_rows(batch, "training batch " + std::to_string(trained));
    trained += evaluates ? 0 : 1;
  }
  masks.begin_iterator();
  for (const json& batch : run.at("evaluation_batches")) expect_rows(batch, "evaluation");
}

INSTANTIATE_TEST_SUITE_P(All, TorchMaskRuns,
                         ::testing::Values("joined", "line_by_line", "accumulation_2", "two_epochs",
                                           "two_epochs_evaluated"));

}  // namespace
}  // namespace tandem::masked_language
