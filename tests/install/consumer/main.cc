// Cuts a text into tokens with the tokenizer of the model in argv[1] and prints how many there are.
#include <cstdio>

#include "tandem/comm/api/communicator.h"
#include "tandem/text/tokenizer.h"
#include "tandem/trainer/trainer.h"

int main(int, char** argv) {
  const auto tokenizer = tandem::text::Tokenizer::load(argv[1]);
  std::printf("%zu tokens in the vocabulary\n", static_cast<std::size_t>(tokenizer.vocab_size()));
  return 0;
}
