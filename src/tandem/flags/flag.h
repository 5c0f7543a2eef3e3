// One row of a flag table: everything the parser, the help text, the notes and the refusals need to
// know about a flag. The row of a Hugging Face flag alone decides how tandem treats it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tandem/flags/value.h"

namespace tandem::flags {

// Treatment of a flag that the user gives.
enum class Verdict {
  kWorks,
  kNote,     // accepted; one line states why it changes nothing
  kRefused,  // the reason names what to use instead
};

// A value of a flag with a fixed set of values. A synonym has the same meaning as `canonical`.
struct Choice {
  std::string value;
  Verdict verdict = Verdict::kWorks;
  std::string reason;
  std::string canonical;
};

// Another spelling of the same flag, from some version of transformers, and the note about it (none
// when empty).
struct Alias {
  std::string_view name;
  std::string_view note;
};

struct Flag {
  std::string_view group;  // heading in the help text
  std::string_view name;   // with underscores, without dashes
  Binding binding;         // get and set are null for a flag that has no field
  std::string_view help;
  Json initial;  // the default, as JSON; null: unset
  Verdict verdict = Verdict::kWorks;
  std::string_view reason;  // reason of the verdict, when it is not kWorks
  bool bare = false;        // may stand alone, and then means true
  bool negatable = false;   // --no_<name> means false
  bool required = false;
  bool secret = false;   // never printed
  bool is_path = false;  // a leading ~ is expanded
  std::vector<Choice> choices;
  std::string when_true, when_false;  // for a choice that takes truth values too: what they mean
  std::vector<Alias> aliases;

  Kind kind() const { return binding.kind; }

  // The rest builds rows: flag("seed", field<&TrainingArguments::seed>(), "…").at_least(0).
  Flag& between(double min, double max);
  Flag& at_least(double min) { return between(min, binding.max); }
  Flag& alias(std::string_view other, std::string_view note = {});
  Flag& rule(std::string_view value, Verdict value_verdict, std::string_view why);
  Flag& synonym(std::string_view value, std::string_view canonical);
  Flag& with_truth_values(std::string_view yes, std::string_view no);
  Flag& ruled(Verdict row_verdict, std::string_view why);
  Flag& with_default(Json value);
  Flag& with_bare();
  Flag& with_negation();
  Flag& as_required();
  Flag& as_secret();
  Flag& as_path();
};

// A flag with a field; its default is that of a default-constructed struct.
Flag flag(std::string_view name, Binding binding, std::string_view help);

// A truth value without a field of its own: giving it sets another one (binding.get is null).
Flag setter(std::string_view name, Binding binding, std::string_view help);

// A flag of Hugging Face's that has no field: always true anyway; accepted without effect; or
// refused.
Flag accepted(std::string_view name, Kind kind, Json initial, std::string_view help);
Flag note(std::string_view name, Kind kind, Json initial, std::string_view reason);
Flag refused(std::string_view name, Kind kind, Json initial, std::string_view reason);

// All rows of a program, in help order.
using FlagTable = std::vector<Flag>;

// Puts the rows under a heading.
FlagTable grouped(std::string_view group, FlagTable rows);

}  // namespace tandem::flags
