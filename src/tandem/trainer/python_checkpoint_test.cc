// optimizer.pt: how its parameters are numbered, what is written, and what is read or refused.
#include "tandem/trainer/python_checkpoint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "support/test_support.h"
#include "tandem/core/error.h"
#include "tandem/core/file.h"
#include "tandem/core/json.h"
#include "tandem/formats/torch_file.h"
#include "tandem/formats/torch_writer.h"
#include "tandem/models/heads/masked_language_head.h"
#include "tandem/models/heads/sequence_head.h"
#include "tandem/models/test_models.h"

namespace tandem::trainer {
namespace {

namespace fs = std::filesystem;
using models::DefinitionOrder;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::size_t kLabels = 3;

models::EncoderModel make_model(const models::Family& family, std::string_view head) {
  return models::EncoderModel(
      models::testing::tiny_config(family),
      [head](const models::ModelConfig& config, nn::ParameterLayout& layout) {
        if (head == "SequenceClassification")
          return models::make_sequence_head(kLabels, config, layout);
        if (head == "MaskedLM") return models::make_masked_language_head(config, layout);
        if (head == "TokenClassification") return models::make_token_head(kLabels, config, layout);
        return models::testing::make_head(config, layout);
      });
}

// The parameter that transformers lists under this name: a shared output matrix may be listed under
// its own.
std::string name_in(const nn::ParameterLayout& layout, const std::string& name) {
  const bool shared = name == "lm_head.decoder.weight" && layout.find(name) == nullptr;
  return shared ? "roberta.embeddings.word_embeddings.weight" : name;
}

// Golden values from tests/parity/trainer_resumes.py --write-names: the parameters that the
// Trainer's optimizer numbers, for every family and class, with and without weight decay.
TEST(PythonCheckpoint, ParametersAreNumberedAsTheTrainerDoes) {
  const auto golden = nlohmann::json::parse(
      read_file(fs::path(TANDEM_SOURCE_DIR) / "tests/parity/golden/parameter_names.json"));
  const auto& lists = golden["transformers"];
  EXPECT_EQ(lists["5"].size(), models::families().size() * 4);
  for (const auto& [name, groups] : lists["5"].items()) {
    SCOPED_TRACE(name);
    const models::Family* family = models::find_family(name.substr(0, name.find(' ')));
    ASSERT_NE(family, nullptr);
    const models::EncoderModel model = make_model(*family, name.substr(name.find(' ') + 1));
    for (const auto& [version, order] :
         {std::pair{"5", models::newest_definition_order(family->model_type)},
          {"4", DefinitionOrder::kTransformers4}}) {
      SCOPED_TRACE(version);
      const auto& expected = lists[version].contains(name) ? lists[version][name] : groups;
      std::vector<std::string> names;
      for (const auto& parameter : expected[0]) {
        names.push_back(name_in(model.layout(), parameter));
        EXPECT_TRUE(model.layout().find(names.back())->weight_decay) << parameter;
      }
      for (const auto& parameter : expected[1]) {
        names.push_back(parameter);
        EXPECT_FALSE(model.layout().find(names.back())->weight_decay) << parameter;
      }
      EXPECT_THAT(python_parameter_order(model.layout(), order), ElementsAreArray(names));
    }
  }
}

// Query, key and value are one product in the layout, and three modules.
TEST(PythonCheckpoint, ParametersThatAreNotTrainedHaveNoNumber) {
  models::ModelConfig config = models::testing::tiny_config(models::kDistilBert);
  config.sinusoidal_pos_embds = true;
  const models::EncoderModel model(config, models::testing::make_head);
  const ParameterOrder order = python_parameter_order(model.layout());
  EXPECT_EQ(order.size() + 1, model.layout().parameters().size());
  EXPECT_EQ(order[1], "distilbert.transformer.layer.0.attention.q_lin.weight");
}

// The state of each optimizer is restored from its optimizer.pt.
TEST(PythonCheckpoint, EveryOptimizersStateIsReadAgain) {
  const models::EncoderModel model(models::testing::tiny_config(models::kBert),
                                   models::testing::make_head);
  for (const auto name : {optim::OptimizerName::kAdamwTorch, optim::OptimizerName::kAdamwHf,
                          optim::OptimizerName::kSgd, optim::OptimizerName::kAdagrad,
                          optim::OptimizerName::kAdafactor}) {
    SCOPED_TRACE(optim::to_string(name));
    const testing::TemporaryFolder folder;
    const OptimizationState state = {.optimizer = {.name = name, .momentum = 0.5}, .step = 7};
    const auto optimizer = optim::make_optimizer(state.optimizer, model.layout());
    std::vector<float> kept(optimizer->state_elements()), read(kept.size());
    for (const optim::StateTensor& tensor : optimizer->state_tensors()) {
      for (std::size_t i = 0; i < tensor.size; ++i)
        kept[tensor.offset + i] = static_cast<float>(tensor.offset + i);
    }
    const auto arenas = [&](std::vector<float>& values) {
      return TrainedArenas{
          .weights = {}, .optimizer_state = values, .state_tensors = optimizer->state_tensors()};
    };
    write_python_optimizer(folder.path(), model.layout(), arenas(kept), state);
    load_python_optimizer(folder.path(), model.layout(), arenas(read));
    EXPECT_EQ(kept, read);
  }
}

// Rates of --learning_rate_mapping are groups of their own, as torch has them.
TEST(PythonCheckpoint, RatesOfParametersAreGroups) {
  const models::EncoderModel model(models::testing::tiny_config(models::kBert),
                                   models::testing::make_head);
  const testing::TemporaryFolder folder;
  const OptimizationState state = {
      .optimizer = {.rates = optim::parse_rate_rules(R"({"embeddings": 0.25})", 0.5)},
      .step = 7,
      .peak_learning_rate = 0.5,
      .next_learning_rate = 0.125};
  const auto optimizer = optim::make_optimizer(state.optimizer, model.layout());
  std::vector<float> kept(optimizer->state_elements()), read(kept.size());
  std::iota(kept.begin(), kept.end(), 1.0f);
  const auto arenas = [&](std::vector<float>& values) {
    return TrainedArenas{
        .weights = {}, .optimizer_state = values, .state_tensors = optimizer->state_tensors()};
  };
  write_python_optimizer(folder.path(), model.layout(), arenas(kept), state);
  write_python_schedule(folder.path(), model.layout(), state);
  load_python_optimizer(folder.path(), model.layout(), arenas(read));
  for (const optim::StateTensor& tensor : optimizer->state_tensors())
    EXPECT_EQ(kept[tensor.offset], read[tensor.offset]) << tensor.name;

  const formats::TorchFile file(folder.path() / kOptimizerFile);
  std::vector<std::pair<double, double>> rates;
  for (const formats::TorchValue& group : file.root()["param_groups"].elements()) {
    rates.emplace_back(group["initial_lr"].as_double(), group["lr"].as_double());
    const bool mapped = group["initial_lr"].as_double() == 0.25;
    for (const formats::TorchValue& name : group["param_names"].elements())
      EXPECT_EQ(mapped, std::string(name.as_string()).find("embeddings") != std::string::npos);
  }
  EXPECT_THAT(rates, ElementsAre(std::pair(0.5, 0.125), std::pair(0.5, 0.125),
                                 std::pair(0.25, 0.0625), std::pair(0.25, 0.0625)));
  const formats::TorchFile schedule(folder.path() / kSchedulerFile);
  EXPECT_EQ(schedule.root()["base_lrs"].size(), 4u);
  EXPECT_EQ(schedule.root()["_last_lr"][3].as_double(), 0.0625);
}

// A value for each parameter, which shows whether a file was read in its order.
float mark_of(std::string_view name) {
  return static_cast<float>(std::hash<std::string_view>()(name) % 100000);
}

struct FileOptions {
  std::vector<std::size_t> groups = {};  // sizes; empty: decaying parameters and the others
  bool names = false;                    // param_names
};

// optimizer.pt of AdamW as PyTorch writes it, its parameters numbered in this order.
void write_adamw(const fs::path& folder, const nn::ParameterLayout& layout,
                 const ParameterOrder& order, FileOptions options = {}) {
  std::vector<std::vector<float>> values;
  formats::TorchItem::Dict states;
  for (std::size_t i = 0; i < order.size(); ++i) {
    const nn::ParameterSpec& parameter = *layout.find(order[i]);
    values.emplace_back(parameter.size, mark_of(order[i]));
    formats::TorchItem::Dict state;
    for (const char* key : {"exp_avg", "exp_avg_sq"}) {
      state.set(key, formats::TensorView{key, formats::DType::kF32, parameter.shape,
                                         std::as_bytes(std::span(values.back()))});
    }
    states.set(static_cast<std::int64_t>(i), formats::TorchItem{std::move(state)});
  }
  if (options.groups.empty()) {
    const auto decaying = static_cast<std::size_t>(std::ranges::count_if(
        order, [&](std::string_view name) { return layout.find(name)->weight_decay; }));
    options.groups = {decaying, order.size() - decaying};
  }
  formats::TorchItem::List groups;
  std::size_t next = 0;
  for (const std::size_t size : options.groups) {
    formats::TorchItem::List numbers, names;
    for (const std::size_t end = next + size; next < end; ++next) {
      numbers.elements.push_back({static_cast<std::int64_t>(next)});
      names.elements.push_back({std::string(order[next])});
    }
    formats::TorchItem::Dict group;
    group.set("params", std::move(numbers));
    if (options.names) group.set("param_names", std::move(names));
    groups.elements.push_back({std::move(group)});
  }
  formats::TorchItem::Dict root;
  root.set("state", std::move(states));
  root.set("param_groups", std::move(groups));
  formats::write_torch_file(folder / "optimizer.pt", {std::move(root)});
}

// Reads the file; each parameter's moments must be its own.
void expect_read(const fs::path& folder, const nn::ParameterLayout& layout) {
  const auto optimizer = optim::make_optimizer({}, layout);
  std::vector<float> read(optimizer->state_elements());
  load_python_optimizer(
      folder, layout,
      {.weights = {}, .optimizer_state = read, .state_tensors = optimizer->state_tensors()});
  for (const optim::StateTensor& tensor : optimizer->state_tensors()) {
    const std::string parameter = tensor.name.substr(tensor.name.find('.') + 1);
    EXPECT_EQ(read[tensor.offset], mark_of(parameter)) << tensor.name;
    EXPECT_EQ(read[tensor.offset + tensor.size - 1], mark_of(parameter)) << tensor.name;
  }
}

class OptimizerFile : public ::testing::Test {
 protected:
  void expect_refused(const std::string& text) {
    EXPECT_THAT([&] { expect_read(folder_.path(), model_.layout()); },
                ThrowsMessage<DataError>(HasSubstr(text)));
  }
  ParameterOrder order() const { return python_parameter_order(model_.layout()); }
  void write(const ParameterOrder& order, FileOptions options = {}) {
    write_adamw(folder_.path(), model_.layout(), order, std::move(options));
  }

  testing::TemporaryFolder folder_;
  models::EncoderModel model_ = make_model(models::kBert, "SequenceClassification");
};

TEST_F(OptimizerFile, OfEitherVersionOfTransformersIsRead) {
  for (const models::Family* family : models::families()) {
    for (const char* head : {"SequenceClassification", "TokenClassification"}) {
      for (const auto order :
           {DefinitionOrder::kTransformers5, DefinitionOrder::kTransformers5HeadFirst,
            DefinitionOrder::kTransformers4}) {
        SCOPED_TRACE(family->model_type);
        const models::EncoderModel model = make_model(*family, head);
        write_adamw(folder_.path(), model.layout(), python_parameter_order(model.layout(), order));
        expect_read(folder_.path(), model.layout());
      }
    }
  }
}

TEST_F(OptimizerFile, NamesDecideOverTheOrder) {
  ParameterOrder order = python_parameter_order(model_.layout());
  std::swap(order[3], order[4]);  // two of the same shape
  std::swap(order.front(), order[10]);
  write(order, {.names = true});
  expect_read(folder_.path(), model_.layout());
}

// bert.pooler and classifier had each other's numbers.
TEST_F(OptimizerFile, OfOlderCheckpointsOfTandemIsRead) {
  ParameterOrder older = order();
  std::swap(older[15], older[16]);
  std::swap(older[older.size() - 2], older.back());
  write(older);
  expect_refused(
      "exp_avg of classifier.weight (parameter 16) is F32 [32, 32], expected F32 [3, 32]");
  expect_refused(
      "or its parameters have another order; pass the checkpoint as --model_name_or_path");
  write_file(folder_ / "tandem_state.json", "{}");
  expect_read(folder_.path(), model_.layout());
  write(order());
  expect_refused("expected F32");
}

TEST_F(OptimizerFile, OfAnotherModelIsRefused) {
  write(order(), {.groups = {order().size()}});
  expect_refused("has groups of 41 parameters, expected 17 with weight decay and 24 without");
  write(order(), {.groups = {16, 25}});
  expect_refused("has groups of 16 and 25 parameters, expected 17 with weight decay");
  const models::EncoderModel other = make_model(models::kRoberta, "SequenceClassification");
  write_adamw(folder_.path(), other.layout(), python_parameter_order(other.layout()),
              {.names = true});
  expect_refused("names no parameter classifier.weight: it is another model's");
  const models::EncoderModel tags = make_model(models::kBert, "TokenClassification");
  write_adamw(folder_.path(), tags.layout(), python_parameter_order(tags.layout()));
  expect_refused("is the state of 39 parameters, this model has 41: it is another model's");
}

}  // namespace
}  // namespace tandem::trainer
