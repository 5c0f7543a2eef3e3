// The head of a bi-encoder in training: pooling and the modules behind it (Dense, Normalize),
// forward and backward.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tandem/models/encoder/head.h"
#include "tandem/models/heads/sentence_files.h"

namespace tandem::models {

// The name of a parameter of module `index` behind the pooling, as in the state dict of
// sentence-transformers: "2.linear.weight" for index 0, because the encoder is module 0 and the
// pooling is module 1.
std::string module_parameter(std::size_t index, std::string_view parameter);

// Embeddings [sequences, embedding width] in f32. Every Dense module has parameters in the layout,
// the last module first. Sums of Dense and Normalize are f64 in the order of columns and of texts,
// so bits depend neither on threads nor on the other texts of a batch. The values of the modules
// are not read: see WeightFiles.
std::unique_ptr<Head> make_embedding_head(const SentenceFiles& files, const ModelConfig& config,
                                          nn::ParameterLayout& layout);

}  // namespace tandem::models
