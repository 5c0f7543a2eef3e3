// The order in which the classes of transformers define their parameters. named_parameters() lists
// them in it, pytorch_model.bin stores them in it, and the Trainer's optimizer.pt numbers them in
// it (trainer/python_checkpoint.h). It follows from the layout, which is the order of backward.
#pragma once

#include <string_view>
#include <vector>

#include "tandem/nn/parameter_layout.h"

namespace tandem::models {

// The orders that differ between families and major versions of transformers. Version 5 defines the
// position embeddings of RoBERTa and XLM-R behind the LayerNorm, and the head of XLM-R before its
// encoder; other families have one order in both versions.
enum class DefinitionOrder { kTransformers5, kTransformers5HeadFirst, kTransformers4 };

// That of transformers 5 for a family (model_type of config.json).
DefinitionOrder newest_definition_order(std::string_view model_type);

// All parameters of the layout, those that are not trained included: embeddings, layers, head; each
// module's weight before its bias. The pointers are valid as long as the layout.
std::vector<const nn::ParameterSpec*> parameters_as_defined(
    const nn::ParameterLayout& layout, DefinitionOrder order = DefinitionOrder::kTransformers5);

}  // namespace tandem::models
