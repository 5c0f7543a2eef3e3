// The order in which the classes of transformers define their parameters. named_parameters() lists
// them in it, pytorch_model.bin stores them in it, and the Trainer's optimizer.pt numbers them in
// it (trainer/python_checkpoint.h). It follows from the layout, which is the order of backward.
#pragma once

#include <vector>

#include "tandem/nn/parameter_layout.h"

namespace tandem::models {

// Major versions of transformers whose classes define their parameters in different orders. Only
// RoBERTa's and XLM-R's differ: version 5 defines the position embeddings behind the LayerNorm.
enum class DefinitionOrder { kTransformers5, kTransformers4 };

// All parameters of the layout, those that are not trained included: embeddings, layers, head; each
// module's weight before its bias. The pointers are valid as long as the layout.
std::vector<const nn::ParameterSpec*> parameters_as_defined(
    const nn::ParameterLayout& layout, DefinitionOrder order = DefinitionOrder::kTransformers5);

}  // namespace tandem::models
