// A text may be as long as a request. A caller that gives up does not wait until it is tokenized.
#include "tandem/core/interruption.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <optional>
#include <string>
#include <thread>

#include "tandem/text/tokenizer.h"

namespace tandem::text {
namespace {

using std::chrono::nanoseconds;

// Time on a processor: what else the machine does is not in it.
nanoseconds cpu_time(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + nanoseconds(time.tv_nsec);
}

nanoseconds time_of(const Tokenizer& tokenizer, const std::string& text, Encoding& encoding) {
  const nanoseconds begin = cpu_time(CLOCK_THREAD_CPUTIME_ID);
  tokenizer.encode(text, encoding);
  return cpu_time(CLOCK_THREAD_CPUTIME_ID) - begin;
}

// How long encode() runs after an interruption at the `after`-th part of its time (at the latest:
// on a busy machine the other thread comes too late); nothing: it had ended.
std::optional<nanoseconds> time_to_stop(const Tokenizer& tokenizer, const std::string& text,
                                        Encoding& encoding, nanoseconds after) {
  clockid_t clock{};
  pthread_getcpuclockid(pthread_self(), &clock);
  std::atomic<bool> interrupted{after.count() == 0}, ended{false};
  nanoseconds interrupted_at{0};
  const nanoseconds until = cpu_time(clock) + after;
  std::thread other([&] {
    while (!ended && cpu_time(clock) < until) std::this_thread::yield();
    interrupted = true;
    interrupted_at = cpu_time(clock);
  });
  std::optional<nanoseconds> stopped_at;
  try {
    const InterruptionScope scope(interrupted);
    tokenizer.encode(text, encoding);
  } catch (const Interrupted&) {
    stopped_at = cpu_time(CLOCK_THREAD_CPUTIME_ID);
  }
  ended = true;
  other.join();
  if (!stopped_at) return std::nullopt;
  return *stopped_at - (after.count() == 0 ? until : interrupted_at);
}

std::string repeated(const std::string& piece, std::size_t bytes) {
  std::string text;
  while (text.size() < bytes) text += piece;
  return text;
}

struct Case {
  const char* name;
  const char* model;  // a folder of the repository
  const char* piece;  // what the text repeats
};

void PrintTo(const Case& one, std::ostream* out) { *out << one.name; }

class LongText : public ::testing::TestWithParam<Case> {};

// The least of three: what else the processor does only adds time, and a stage that does not look
// takes it each time.
std::optional<nanoseconds> least_time_to_stop(const Tokenizer& tokenizer, const std::string& text,
                                              Encoding& encoding, nanoseconds after) {
  std::optional<nanoseconds> least;
  for (int attempt = 0; attempt < 3; ++attempt) {
    const auto taken = time_to_stop(tokenizer, text, encoding, after);
    if (taken && (!least || *taken < *least)) least = taken;
  }
  return least;
}

// Every stage looks: none of them takes a quarter of the whole without.
TEST_P(LongText, IsInterruptedAnywhere) {
  const Tokenizer tokenizer =
      Tokenizer::load(std::string(TANDEM_SOURCE_DIR "/") + GetParam().model);
  const std::string text = repeated(GetParam().piece, 400'000);
  Encoding encoding;
  time_of(tokenizer, text, encoding);  // grows the buffers
  const nanoseconds whole = time_of(tokenizer, text, encoding);
  const std::vector<std::int32_t> ids = encoding.ids;
  for (int tenth = 0; tenth < 10; ++tenth) {
    const auto taken = least_time_to_stop(tokenizer, text, encoding, whole * tenth / 10);
    EXPECT_TRUE(taken || tenth > 0);
    EXPECT_LT(taken.value_or(whole / 5), whole / 4) << "after " << tenth << " tenths of the time";
  }
  tokenizer.encode(text, encoding);
  EXPECT_EQ(encoding.ids, ids);
}

#define TANDEM_SMALL "tests/parity/golden/tokenizers/"
INSTANTIATE_TEST_SUITE_P(
    Texts, LongText,
    ::testing::Values(Case{"WordPiece", "examples/demo/model", "The ferry leaves at nine. "},
                      Case{"WordPieceAccents", "examples/demo/model", "Caf\u00e9\u4e2d"},
                      Case{"WordPieceMarks", "examples/demo/model", "\u0301\u0316"},
                      Case{"Bpe", TANDEM_SMALL "roberta", "The ferry leaves at nine. "},
                      Case{"BpeOneWord", TANDEM_SMALL "roberta", "ferry"},
                      Case{"BpeAddedTokens", TANDEM_SMALL "roberta", "<mask>"},
                      Case{"Unigram", TANDEM_SMALL "xlmr", "The ferry leaves at nine. "},
                      Case{"UnigramOneWord", TANDEM_SMALL "xlmr", "ferry"},
                      Case{"UnigramUnknown", TANDEM_SMALL "xlmr", "\U0001F600"},
                      Case{"UnigramOneCluster", TANDEM_SMALL "xlmr", "\u0301"}),
    [](const auto& one) { return one.param.name; });
#undef TANDEM_SMALL

}  // namespace
}  // namespace tandem::text
