#include "tandem/models/pretrained/torch_random.h"

#include <gtest/gtest.h>

#include <vector>

namespace tandem::models {
namespace {

void expect_draw(TorchGenerator& generator, double mean, double standard_deviation,
                 const std::vector<float>& expected) {
  std::vector<float> found(expected.size());
  generator.fill_normal(found, mean, standard_deviation);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(found[i], expected[i], 1e-8 * (standard_deviation / 0.02)) << "element " << i;
  }
}

// torch.manual_seed(42); torch.empty(n).normal_(mean, std) for n = 5, 3, 20, 2 in turn (torch 2.15,
// CPU): values are drawn one by one and the second of a pair waits for the next tensor; 20 elements
// are a block of 16 and a tail whose last 16 are drawn again.
TEST(TorchGenerator, DrawsSmallAndUnevenTensorsAsTorch) {
  TorchGenerator generator(42);
  expect_draw(generator, 0, 0.02,
              {0.00673380727f, 0.00257618818f, 0.00468924735f, 0.00460666046f, -0.0224571284f});
  expect_draw(generator, 1, 2, {0.627343416f, 5.41640282f, -0.275994122f});
  expect_draw(generator, 0, 0.02,
              {0.032846339f,    -0.00319194933f, -0.00994795095f, 0.00879178476f,  0.00637760619f,
               -0.00849037897f, 0.00611441815f,  -0.0154918497f,  0.000698246877f, 0.00642206008f,
               0.0314720012f,   -0.0169093478f,  -0.0254830234f,  0.0424556993f,   -0.0246930625f,
               -0.00975827686f, -0.0283611976f,  0.0179253649f,   0.000998107716f, 0.0453343578f});
  expect_draw(generator, 0, 1, {0.522716045f, -0.238356873f});
}

// torch.manual_seed(42); torch.empty(2, 384).normal_(0, 0.02): the head that run_qa draws (run_qa's
// contract, section 4).
TEST(TorchGenerator, DrawsTheQuestionAnsweringHead) {
  TorchGenerator generator(42);
  std::vector<float> head(2 * 384);
  generator.fill_normal(head, 0, 0.02);
  const std::vector<float> start = {0.038538f, 0.029746f, 0.018014f, -0.042110f};
  for (std::size_t i = 0; i < start.size(); ++i) EXPECT_NEAR(head[i], start[i], 5e-7);
}

}  // namespace
}  // namespace tandem::models
