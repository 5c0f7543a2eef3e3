#include "apps/answering/hard_negatives.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "tandem/core/error.h"
#include "tandem/core/json.h"

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
  std::size_t add(std::string_view text) {
    const auto [at, is_new] = numbers_.try_emplace(text, texts_.size());
    if (is_new) texts_.push_back(text);
    return at->second;
  }
  std::optional<std::size_t> find(std::string_view text) const {
    const auto at = numbers_.find(text);
    return at == numbers_.end() ? std::nullopt : std::optional(at->second);
  }
  std::size_t size() const { return texts_.size(); }
  std::string_view operator[](std::size_t number) const { return texts_[number]; }
  // At most `count` texts from `begin` on.
  std::vector<std::string> copy(std::size_t begin, std::size_t count) const {
    const auto some = std::span(texts_).subspan(begin, std::min(count, texts_.size() - begin));
    return {some.begin(), some.end()};
  }

 private:
  std::vector<std::string_view> texts_;
  std::unordered_map<std::string_view, std::size_t> numbers_;
};

class Mine {
 public:
  Mine(std::span<const QueryAnswer> rows, std::span<const std::string_view> corpus,
       const MineOptions& options)
      : options_(options) {
    for (const std::string_view text : corpus) documents_.add(text);
    std::vector<std::size_t> rows_of_query;
    for (const QueryAnswer& row : rows) {
      const std::size_t document = documents_.add(row.answer);
      const std::size_t query = queries_.add(row.query);
      if (query == mined_.size()) {
        mined_.emplace_back();
        rows_of_query.push_back(0);
      }
      max_positives_ = std::max(max_positives_, ++rows_of_query[query]);
      auto& positives = mined_[query].positives;
      if (std::find(positives.begin(), positives.end(), document) == positives.end())
        positives.push_back(document);
    }
    candidates_ = ranking::candidates_of_query(options_.mining, max_positives_);
  }

  // Searches the documents piece by piece.
  void search(const MiningModel& model, const kernels::Context& context) {
    const std::vector<float> queries = model.embed_queries(queries_.copy(0, queries_.size()));
    const ranking::SimilarityFunction& function = ranking::similarity_function(options_.similarity);
    // One more, for the query's own text.
    ranking::Search search(function, {queries, model.width}, candidates_ + 1,
                           [](std::size_t a, std::size_t b) { return a < b; });
    const std::vector<std::pair<std::size_t, std::size_t>> pairs = positive_pairs();
    auto pair = pairs.begin();
    for (std::size_t begin = 0; begin < documents_.size(); begin += kDocumentsAtOnce) {
      const std::vector<std::string> some = documents_.copy(begin, kDocumentsAtOnce);
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
    MinedRows result{queries_.size(), documents_.size(), 0, 0, {}};
    const std::size_t range_max = ranking::range_max_of(options_.mining, max_positives_);
    for (std::size_t query = 0; query < mined_.size(); ++query) {
      const std::vector<Hit> negatives = ranking::choose_negatives(
          candidates(query), mined_[query], query, range_max, options_.mining, result.left_out);
      if (negatives.size() < options_.mining.num_negatives) ++result.short_queries;
      for (const ordered_json& row : rows_of(query, negatives)) {
        write_row(row);
        ++result.rows;
      }
    }
    return result;
  }

 private:
  // The nearest documents, without the query's own text.
  std::vector<Hit> candidates(std::size_t query) const {
    std::vector<Hit> hits = hits_[query];
    const auto& positives = mined_[query].positives;
    const auto own = documents_.find(queries_[query]);
    if (own && std::find(positives.begin(), positives.end(), *own) == positives.end())
      std::erase_if(hits, [&](const Hit& hit) { return hit.document == *own; });
    hits.resize(std::min(hits.size(), candidates_));
    return hits;
  }

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
    return {{options_.query_column, queries_[query]}, {options_.answer_column, answer}};
  }
  std::string_view document(std::size_t number) const { return documents_[number]; }

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

  ordered_json labeled(std::size_t query, std::string_view text, int label, float score) const {
    ordered_json row = row_with(query, text);
    if (options_.scores) row["score"] = score;
    if (!options_.scores) row["label"] = label;
    return row;
  }

  // The rows of one of the query's positives.
  void add_rows(std::size_t query, std::string_view positive, float score,
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

  ordered_json tuple(std::size_t query, std::string_view positive, float score,
                     std::span<const Hit> negatives) const {
    ordered_json row = row_with(query, positive), scores = {score};
    for (std::size_t k = 0; k < negatives.size(); ++k) {
      row[fmt::format("negative_{}", k + 1)] = document(negatives[k].document);
      scores.push_back(negatives[k].score);
    }
    if (options_.scores) row["scores"] = scores;
    return row;
  }

  ordered_json list(std::size_t query, std::string_view positive, float score,
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
  std::size_t max_positives_ = 0;  // rows of a query, repeated ones included, as there
  std::size_t candidates_ = 0;     // number of candidates of each query
  std::vector<std::vector<Hit>> hits_;
};

}  // namespace

MinedRows mine_hard_negatives(std::span<const QueryAnswer> rows,
                              std::span<const std::string_view> corpus, const MiningModel& model,
                              const MineOptions& options, const kernels::Context& context,
                              const std::function<void(const ordered_json&)>& write) {
  ranking::check(options.mining);
  Mine mine(rows, corpus, options);
  mine.search(model, context);
  return mine.write(write);
}

}  // namespace tandem::apps
