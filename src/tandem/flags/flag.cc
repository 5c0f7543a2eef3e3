#include "tandem/flags/flag.h"

#include <algorithm>
#include <utility>

namespace tandem::flags {
namespace {

Flag without_field(std::string_view name, Kind kind, Json initial, Verdict verdict,
                   std::string_view reason) {
  Flag row;
  row.name = name;
  row.binding.kind = kind;
  row.binding.optional = initial.is_null();
  row.initial = std::move(initial);
  row.bare = kind == Kind::kBool && !row.binding.optional;
  row.negatable = row.initial == Json(true);
  row.verdict = verdict;
  row.reason = reason;
  return row;
}

}  // namespace

Flag& Flag::between(double min, double max) {
  binding.min = min;
  binding.max = max;
  return *this;
}

Flag& Flag::alias(std::string_view other, std::string_view note) {
  aliases.push_back({other, note});
  return *this;
}

Flag& Flag::rule(std::string_view value, Verdict value_verdict, std::string_view why) {
  const auto found = std::find_if(choices.begin(), choices.end(),
                                  [&](const Choice& choice) { return choice.value == value; });
  Choice& choice = found != choices.end() ? *found : choices.emplace_back();
  choice.value = value;
  choice.canonical = value;
  choice.verdict = value_verdict;
  choice.reason = why;
  return *this;
}

Flag& Flag::synonym(std::string_view value, std::string_view canonical) {
  choices.push_back({std::string(value), Verdict::kWorks, {}, std::string(canonical)});
  return *this;
}

Flag& Flag::with_truth_values(std::string_view yes, std::string_view no) {
  when_true = yes;
  when_false = no;
  return *this;
}

Flag& Flag::ruled(Verdict row_verdict, std::string_view why) {
  verdict = row_verdict;
  reason = why;
  return *this;
}

Flag& Flag::with_default(Json value) {
  initial = std::move(value);
  return *this;
}

Flag& Flag::with_bare() {
  bare = true;
  return *this;
}

Flag& Flag::with_negation() {
  negatable = true;
  return *this;
}

Flag& Flag::as_required() {
  required = true;
  return *this;
}

Flag& Flag::as_secret() {
  secret = true;
  return *this;
}

Flag& Flag::as_path() {
  is_path = true;
  return *this;
}

Flag flag(std::string_view name, Binding binding, std::string_view help) {
  Flag row;
  row.name = name;
  row.binding = binding;
  row.help = help;
  row.initial = binding.initial;
  row.bare = binding.kind == Kind::kBool && !binding.optional;
  row.negatable = row.initial == Json(true);
  for (const std::string_view value : binding.names) {
    row.choices.push_back({std::string(value), Verdict::kWorks, {}, std::string(value)});
  }
  return row;
}

Flag setter(std::string_view name, Binding binding, std::string_view help) {
  Flag row = accepted(name, binding.kind, false, help);
  row.binding.set = binding.set;
  return row;
}

Flag accepted(std::string_view name, Kind kind, Json initial, std::string_view help) {
  Flag row = without_field(name, kind, std::move(initial), Verdict::kWorks, {});
  row.help = help;
  return row;
}

Flag note(std::string_view name, Kind kind, Json initial, std::string_view reason) {
  return without_field(name, kind, std::move(initial), Verdict::kNote, reason);
}

Flag refused(std::string_view name, Kind kind, Json initial, std::string_view reason) {
  return without_field(name, kind, std::move(initial), Verdict::kRefused, reason);
}

FlagTable grouped(std::string_view group, FlagTable rows) {
  for (Flag& row : rows) row.group = group;
  return rows;
}

}  // namespace tandem::flags
