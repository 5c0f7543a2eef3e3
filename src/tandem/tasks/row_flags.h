// The flags of tasks whose rows are columns of texts with a label, in any names.
#pragma once

#include "tandem/flags/flag.h"
#include "tandem/flags/value.h"

namespace tandem::tasks {

// The columns to read, and how many rows of each part. `Arguments` has a member of each name.
template <class Arguments>
flags::FlagTable row_flags() {
  using flags::field;
  using flags::flag;
  return {
      flag("train_columns", field<&Arguments::train_columns>(),
           "text columns in the order in which the loss reads them, separated by commas; unset: "
           "the order of the file without the label"),
      flag("label_column", field<&Arguments::label_column>(),
           "column with the label or score; unset: the first of label, labels, score and scores"),
      flag("max_train_samples", field<&Arguments::max_train_samples>(),
           "use only the first n training rows")
          .at_least(0),
      flag("max_eval_samples", field<&Arguments::max_eval_samples>(),
           "use only the first n evaluation rows")
          .at_least(0),
      flag("max_predict_samples", field<&Arguments::max_predict_samples>(),
           "use only the first n test rows")
          .at_least(0),
  };
}

// The order of the batches of several training sets.
template <class Arguments>
flags::Flag set_order_flag() {
  return flags::flag(
      "multi_dataset_batch_sampler", flags::field<&Arguments::multi_dataset_batch_sampler>(),
      "order of the batches of --train_files: proportional (all batches in random order) or "
      "round_robin (one of each data set in turn, until the shortest ends)");
}

}  // namespace tandem::tasks
