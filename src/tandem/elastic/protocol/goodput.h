// The expected speed of a job whose nodes fail now and then.
//
// Each node is there for mtbf_seconds on average and then absent for absence_seconds, independently
// of the others: the share of the time in which it is a member is a = mtbf / (mtbf + absence), and
// the number of members is binomial. With n members the job makes steps_per_second[n − 1] steps,
// and none below min_nodes. A loss keeps all from progress for loss_seconds, a join for
// join_seconds; there are N · a / mtbf of each per second. So
//     steps per second = Σ P(n) · steps_per_second[n − 1] · (1 − N · a / mtbf · (loss + join)).
// No applied step is lost, so nothing else is paid.
#pragma once

#include <span>

namespace tandem::membership {

struct NodeFailures {
  double mtbf_seconds = 0;     // mean time between failures of one node; > 0
  double absence_seconds = 0;  // until it is replaced, has started and has the newest step
  double loss_seconds = 0;     // detection, a new view, the interrupted step again
  double join_seconds = 0;     // a new view at the end of a step
  int min_nodes = 1;
};

// Expected steps per second. `steps_per_second`: undisturbed, with 1, 2, … N nodes. 0 if nodes fail
// faster than views change. Throws InvalidArgument.
double steps_with_failures(std::span<const double> steps_per_second, const NodeFailures& failures);

}  // namespace tandem::membership
