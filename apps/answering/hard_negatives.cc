#include "apps/answering/hard_negatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "tandem/core/error.h"

namespace tandem::apps {
namespace {

namespace ranking = tasks::ranking;
using nlohmann::ordered_json;
using ranking::Hit;
using ranking::MinedQuery;

// Documents that are embedded and searched together.
constexpr std::size_t kDocumentsAtOnce = 4096;

// Texts without repetitions, in the order in which they appear.
class DistinctTexts {
 public:
  std::size_t add(const std::string& text) {
    const auto [at, is_new] = numbers_.try_emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return at->second;
  }
  std::span<const std::string> texts() const { return texts_; }

 private:
  std::vector<std::string> texts_;
  std::unordered_map<std::string, std::size_t> numbers_;
};

class Mine {
 public:
  Mine(std::span<const QueryAnswer> rows, std::span<const std::string> corpus,
       const MineOptions& options)
      : options_(options) {
    for (const std::string& text : corpus) documents_.add(text);
    for (const QueryAnswer& row : rows) {
      const std::size_t document = documents_.add(row.answer);
      const std::size_t query = queries_.add(row.query);
      if (query == mined_.size()) mined_.emplace_back();
      auto& positives = mined_[query].positives;
      if (std::find(positives.begin(), positives.end(), document) == positives.end())
        positives.push_back(document);
      max_positives_ = std::max(max_positives_, positives.size());
    }
  }

  // Searches the documents piece by piece.
  void search(const MiningModel& model, const kernels::Context& context) {
    const std::vector<float> queries = model.embed_queries(queries_.texts());
    const ranking::SimilarityFunction& function = ranking::similarity_function(options_.similarity);
    ranking::Search search(function, {queries, model.width},
                           ranking::candidates_of_query(options_.mining, max_positives_),
                           [](std::size_t a, std::size_t b) { return a < b; });
    std::vector<std::pair<std::size_t, std::size_t>> pairs = positive_pairs();
    auto pair = pairs.begin();
    const auto texts = documents_.texts();
    for (std::size_t begin = 0; begin < texts.size(); begin += kDocumentsAtOnce) {
      const auto some = texts.subspan(begin, std::min(kDocumentsAtOnce, texts.size() - begin));
      const std::vector<float> embeddings = model.embed_documents(some);
      const ranking::Embeddings piece{embeddings, model.width};
      search.add(piece, context);
      for (; pair != pairs.end() && pair->first < begin + some.size(); ++pair)
        score_positive(pair->second, pair->first, piece.of(pair->first - begin),
                       ranking::Embeddings{queries, model.width}.of(pair->second));
    }
    hits_ = search.take_hits();
  }

  MinedRows write(const std::function<void(const ordered_json&)>& write_row) {
    MinedRows result{queries_.texts().size(), documents_.texts().size(), 0, 0, {}};
    const std::size_t range_max = ranking::range_max_of(options_.mining, max_positives_);
    for (std::size_t query = 0; query < mined_.size(); ++query) {
      const std::vector<Hit> negatives = ranking::choose_negatives(
          hits_[query], mined_[query], query, range_max, options_.mining, result.left_out);
      if (negatives.size() < options_.mining.num_negatives) ++result.short_queries;
      for (const ordered_json& row : rows_of(query, negatives)) {
        write_row(row);
        ++result.rows;
      }
    }
    return result;
  }

 private:
  // (document, query), sorted.
  std::vector<std::pair<std::size_t, std::size_t>> positive_pairs() {
    std::vector<std::pair<std::size_t, std::size_t>> pairs;
    for (std::size_t query = 0; query < mined_.size(); ++query) {
      mined_[query].positive_scores.resize(mined_[query].positives.size());
      for (const std::size_t document : mined_[query].positives)
        pairs.emplace_back(document, query);
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
  }

  void score_positive(std::size_t query, std::size_t document, std::span<const float> of_document,
                      std::span<const float> of_query) {
    const ranking::SimilarityFunction& function = ranking::similarity_function(options_.similarity);
    const auto& positives = mined_[query].positives;
    const auto at = std::find(positives.begin(), positives.end(), document) - positives.begin();
    mined_[query].positive_scores[static_cast<std::size_t>(at)] = ranking::pair_scores(
        function, {of_query, of_query.size()}, {of_document, of_document.size()})[0];
  }

  ordered_json row_with(std::size_t query, const ordered_json& answer) const {
    return {{options_.query_column, queries_.texts()[query]}, {options_.answer_column, answer}};
  }
  const std::string& document(std::size_t number) const { return documents_.texts()[number]; }

  std::vector<ordered_json> rows_of(std::size_t query, std::span<const Hit> negatives) const {
    std::vector<ordered_json> rows;
    const MinedQuery& mined = mined_[query];
    for (std::size_t i = 0; i < mined.positives.size(); ++i)
      add_rows(query, document(mined.positives[i]), mined.positive_scores[i], negatives, rows);
    if (options_.format == MinedFormat::kLabeledPair)
      for (const Hit& negative : negatives)
        rows.push_back(labeled(query, document(negative.document), 0, negative.score));
    return rows;
  }

  ordered_json labeled(std::size_t query, const std::string& text, int label, float score) const {
    ordered_json row = row_with(query, text);
    if (options_.scores) row["score"] = score;
    if (!options_.scores) row["label"] = label;
    return row;
  }

  // The rows of one of the query's positives.
  void add_rows(std::size_t query, const std::string& positive, float score,
                std::span<const Hit> negatives, std::vector<ordered_json>& rows) const {
    switch (options_.format) {
      case MinedFormat::kTriplet:
        for (const Hit& negative : negatives) {
          rows.push_back(row_with(query, positive));
          rows.back()["negative"] = document(negative.document);
          if (options_.scores) rows.back()["scores"] = {score, negative.score};
        }
        return;
      case MinedFormat::kTuple:
        if (negatives.size() == options_.mining.num_negatives)
          rows.push_back(tuple(query, positive, score, negatives));
        return;
      case MinedFormat::kLabeledPair:
        rows.push_back(labeled(query, positive, 1, score));
        return;
      case MinedFormat::kLabeledList:
        if (!negatives.empty()) rows.push_back(list(query, positive, score, negatives));
        return;
    }
  }

  ordered_json tuple(std::size_t query, const std::string& positive, float score,
                     std::span<const Hit> negatives) const {
    ordered_json row = row_with(query, positive), scores = {score};
    for (std::size_t k = 0; k < negatives.size(); ++k) {
      row[fmt::format("negative_{}", k + 1)] = document(negatives[k].document);
      scores.push_back(negatives[k].score);
    }
    if (options_.scores) row["scores"] = scores;
    return row;
  }

  ordered_json list(std::size_t query, const std::string& positive, float score,
                    std::span<const Hit> negatives) const {
    ordered_json texts = {positive}, labels = {1}, scores = {score};
    for (const Hit& negative : negatives) {
      texts.push_back(document(negative.document));
      labels.push_back(0);
      scores.push_back(negative.score);
    }
    ordered_json row = row_with(query, texts);
    if (options_.scores) row["scores"] = scores;
    if (!options_.scores) row["labels"] = labels;
    return row;
  }

  const MineOptions& options_;
  DistinctTexts queries_, documents_;
  std::vector<MinedQuery> mined_;
  std::size_t max_positives_ = 0;
  std::vector<std::vector<Hit>> hits_;
};

}  // namespace

MinedRows mine_hard_negatives(std::span<const QueryAnswer> rows,
                              std::span<const std::string> corpus, const MiningModel& model,
                              const MineOptions& options, const kernels::Context& context,
                              const std::function<void(const ordered_json&)>& write) {
  ranking::check(options.mining);
  Mine mine(rows, corpus, options);
  mine.search(model, context);
  return mine.write(write);
}

}  // namespace tandem::apps
