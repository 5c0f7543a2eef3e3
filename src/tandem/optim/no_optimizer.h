// The optimizer of a job that trains nothing: it keeps no state, and has no update.
#pragma once

#include "tandem/core/error.h"
#include "tandem/optim/optimizer.h"

namespace tandem::optim {

class NoOptimizer final : public Optimizer {
 public:
  std::size_t state_elements() const override { return 0; }
  std::vector<StateTensor> state_tensors() const override { return {}; }
  UpdatePieces pieces() const override { return {}; }
  void step(const kernels::Context&, const OptimizerStep& step, const ParameterArenas&, std::size_t,
            std::size_t, UpdateGuard*) override {
    TANDEM_CHECK(false, "update {} of a job that trains nothing", step.step);
  }
};

}  // namespace tandem::optim
