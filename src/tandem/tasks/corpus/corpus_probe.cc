// corpus_probe TEXT MODEL CACHE THREADS FORM DATA_MIB FILE_MIB: reads a corpus as `tandem run_mlm`
// does, with the folder CACHE for features ("off": none), in FORM joined, lines, blocks, or heap
// (joined, and kept in memory). The process may have DATA_MIB of memory of its own, and files of
// FILE_MIB; 0: no limit. Prints "PIECES DIGEST SECONDS MEBIBYTES", the last being the most that was
// resident, with the pages of mapped files, which the kernel may drop.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <new>

#include "tandem/core/error.h"
#include "tandem/core/memory_usage.h"
#include "tandem/tasks/corpus/corpus.h"
#include "tandem/tasks/corpus/piece_builder.h"

namespace tandem::corpus {
namespace {

class Log final : public tasks::StartLog {
 public:
  void fact(std::string_view topic, std::string_view text) override {
    fmt::print(stderr, "{}: {}\n", topic, text);
  }
  void detail(std::string_view topic, std::string_view text) override { fact(topic, text); }
  void warning(std::string_view text) override { fact("warning", text); }
};

void limit(int resource, const char* mebibytes) {
  const auto bytes = static_cast<rlim_t>(std::strtoull(mebibytes, nullptr, 10)) << 20;
  const rlimit both{bytes, bytes};
  if (bytes != 0) setrlimit(static_cast<__rlimit_resource>(resource), &both);
}

std::uint64_t digest_of(const TextPieces& pieces) {
  tasks::Fingerprint digest;
  TextPiece piece;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    pieces.read(i, piece);
    digest.add(piece.ids).add(piece.special).add(piece.word_begins);
  }
  return std::strtoull(digest.text().c_str(), nullptr, 16);
}

TextPieces read(char** words, ThreadPool& threads) {
  const std::string form = words[5];
  const text::Tokenizer tokenizer = text::Tokenizer::load(words[2]);
  if (form == "heap") {
    const std::vector<std::filesystem::path> files{words[1]};
    const PieceOptions options{.max_seq_length = 128};
    TextRows rows(files);
    PieceStore store(tokenizer, options, nullptr);
    add_rows(rows, {}, tokenizer, options, threads, store);
    return store.finish();
  }
  const tasks::Stages stages{.train = true};
  hub::DatasetFiles files;
  files.train = {words[1]};
  files.validation = {words[1]};  // so that nothing is split off
  const Environment environment(
      std::map<std::string, std::string, std::less<>>{{"TANDEM_FEATURE_CACHE", words[3]}});
  Log log;
  return read_corpus({.stages = stages,
                      .files = files,
                      .tokenizer_directory = words[2],
                      .environment = environment,
                      .threads = threads,
                      .log = log},
                     {.max_seq_length = 128,
                      .line_by_line = form == "lines",
                      .blocks = form == "blocks",
                      .line_breaks = LineBreaks::kKept},
                     tokenizer)
      .train;
}

int run(char** words) {
  std::signal(SIGXFSZ, SIG_IGN);  // so that a write fails instead
  limit(RLIMIT_DATA, words[6]);
  limit(RLIMIT_FSIZE, words[7]);
  const auto start = std::chrono::steady_clock::now();
  ThreadPool threads(std::atoi(words[4]));
  const TextPieces pieces = read(words, threads);
  const std::uint64_t digest = digest_of(pieces);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} {:x} {:.1f} {}\n", pieces.size(), digest, seconds, memory_usage().peak >> 20);
  return 0;
}

}  // namespace
}  // namespace tandem::corpus

int main(int argc, char** argv) {
  if (argc != 8) {
    fmt::print(stderr, "usage: corpus_probe TEXT MODEL CACHE THREADS FORM DATA_MIB FILE_MIB\n");
    return 2;
  }
  try {
    return tandem::corpus::run(argv);
  } catch (const tandem::Error& error) {
    fmt::print(stderr, "corpus_probe: {}\n", error.what());
    return 1;
  } catch (const std::bad_alloc&) {
    fmt::print(stderr, "corpus_probe: out of memory\n");
    return 3;
  }
}
