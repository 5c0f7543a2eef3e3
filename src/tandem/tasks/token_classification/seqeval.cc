#include "tandem/tasks/token_classification/seqeval.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>

#include "tandem/core/error.h"

namespace tandem::token_classification {
namespace {

// The characters that mean something as a prefix; every other one acts like another inside.
enum class Prefix : std::uint8_t { kOutside, kBegin, kInside, kEnd, kSingle, kDot, kOther };

struct Tag {
  Prefix prefix = Prefix::kOutside;
  std::uint32_t type = 0;

  bool is(std::initializer_list<Prefix> prefixes) const {
    return std::find(prefixes.begin(), prefixes.end(), prefix) != prefixes.end();
  }
};

struct Entity {
  std::uint32_t type;
  std::size_t begin, last;

  bool operator==(const Entity&) const = default;
};

Prefix prefix_of(char first) {
  constexpr std::string_view kCharacters = "OBIES.";
  const std::size_t at = kCharacters.find(first);
  return at == std::string_view::npos ? Prefix::kOther : static_cast<Prefix>(at);
}

std::string_view type_name(std::string_view label) {
  std::size_t first = 1;  // bytes of the first character
  while (first < label.size() && (static_cast<unsigned char>(label[first]) & 0xC0) == 0x80) ++first;
  std::string_view rest = label.substr(first);
  if (const std::size_t dash = rest.find('-'); dash != std::string_view::npos)
    rest.remove_prefix(dash + 1);
  return rest.empty() ? "_" : rest;
}

// Whether an entity ends between two tags, and whether one begins there.
bool ends(const Tag& before, const Tag& tag) {
  using enum Prefix;
  if (before.is({kEnd, kSingle})) return true;
  if (before.is({kBegin, kInside}) && tag.is({kBegin, kSingle, kOutside})) return true;
  return !before.is({kOutside, kDot}) && before.type != tag.type;
}

bool begins(const Tag& before, const Tag& tag) {
  using enum Prefix;
  if (tag.is({kBegin, kSingle})) return true;
  if (before.is({kEnd, kSingle, kOutside}) && tag.is({kEnd, kInside})) return true;
  return !tag.is({kOutside, kDot}) && before.type != tag.type;
}

// Meaning of the labels: types are numbered in the order of their names.
struct Labels {
  std::vector<std::string> types;
  std::vector<Tag> tags;  // tags of each label
  Tag outside;            // between sentences: "O"

  explicit Labels(std::span<const std::string> names) {
    std::map<std::string_view, std::uint32_t> ids{{"_", 0}};
    for (const std::string& name : names) {
      if (name.empty()) raise<DataError>("a tag is empty: expected a name such as O or B-person");
      ids.emplace(type_name(name), 0);
    }
    for (auto& [name, id] : ids) {
      id = static_cast<std::uint32_t>(types.size());
      types.emplace_back(name);
    }
    for (const std::string& name : names)
      tags.push_back({prefix_of(name.front()), ids.at(type_name(name))});
    outside = {Prefix::kOutside, ids.at("_")};
  }
};

// The entities of one side in the order of their ends. Sentences stand apart by one "O". As in
// seqeval the begin of the last entity is kept until another begins, also where one ends that never
// began.
std::vector<Entity> entities(const Labels& labels, std::span<const std::uint32_t> ids,
                             std::span<const std::size_t> sentences) {
  std::vector<Entity> found;
  Tag before{Prefix::kOutside, static_cast<std::uint32_t>(labels.types.size())};  // a type of none
  std::size_t position = 0, begin = 0;
  const auto step = [&](const Tag& tag) {
    if (ends(before, tag)) found.push_back({before.type, begin, position - 1});
    if (begins(before, tag)) begin = position;
    before = tag;
    ++position;
  };
  for (std::size_t s = 0; s + 1 < sentences.size(); ++s) {
    for (std::size_t i = sentences[s]; i < sentences[s + 1]; ++i) step(labels.tags[ids[i]]);
    step(labels.outside);
  }
  return found;
}

double quotient(std::size_t part, std::size_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

EntityCounts& operator+=(EntityCounts& sum, const EntityCounts& counts) {
  sum.expected += counts.expected;
  sum.predicted += counts.predicted;
  sum.correct += counts.correct;
  return sum;
}

std::vector<EntityCounts> count(const Labels& labels, std::span<const Entity> expected,
                                std::span<const Entity> predicted) {
  std::vector<EntityCounts> counts(labels.types.size());
  for (const Entity& entity : expected) ++counts[entity.type].expected;
  auto other = expected.begin();
  for (const Entity& entity : predicted) {
    ++counts[entity.type].predicted;
    while (other != expected.end() && other->last < entity.last) ++other;
    if (other != expected.end() && *other == entity) ++counts[entity.type].correct;
  }
  return counts;
}

}  // namespace

double EntityCounts::precision() const { return quotient(correct, predicted); }

double EntityCounts::recall() const { return quotient(correct, expected); }

double EntityCounts::f1() const {
  const double p = precision(), r = recall();
  return p + r == 0 ? 0.0 : 2 * p * r / (p + r);
}

double SeqevalScores::accuracy() const { return quotient(correct_tags, tags); }

SeqevalScores seqeval(std::span<const std::string> labels, const TagSequences& tags) {
  TANDEM_CHECK(tags.expected.size() == tags.predicted.size(), "{} expected tags, {} predicted",
               tags.expected.size(), tags.predicted.size());
  const Labels meaning(labels);
  const auto counts = count(meaning, entities(meaning, tags.expected, tags.begins),
                            entities(meaning, tags.predicted, tags.begins));
  SeqevalScores scores;
  for (std::size_t type = 0; type < counts.size(); ++type) {
    if (counts[type].expected + counts[type].predicted == 0) continue;
    scores.types.emplace_back(meaning.types[type], counts[type]);
    scores.overall += counts[type];
  }
  scores.tags = tags.expected.size();
  // Labels of one name are one tag.
  for (std::size_t i = 0; i < scores.tags; ++i)
    scores.correct_tags += labels[tags.expected[i]] == labels[tags.predicted[i]];
  return scores;
}

}  // namespace tandem::token_classification
