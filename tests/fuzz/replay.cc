// Stands in for libFuzzer in builds without it: runs the inputs of folders, then mutations of them,
// then large inputs made of pieces of them (growth.h): the time must be in proportion to the size.
// All inputs keep the target's MemoryLimit, and the program keeps nothing of them. Mutation and
// growth number i are always the same, so a failure can be repeated:
//   <target> --mutations 3000 --growths 40 --bytes 1048576 FOLDER…   runs everything
//   <target> --only 1234 --write FILE FOLDER…      writes mutation 1234 into FILE, then runs it
//   <target> --only_growth 12 --write FILE --bytes 1048576 FOLDER…   the same of a growth
#include <signal.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include "fuzz/growth.h"
#include "fuzz/memory.h"
#include "fuzz/require.h"
#include "support/linear.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;
using namespace tandem;

using Inputs = std::vector<std::pair<std::string, std::string>>;  // path and content

// Bytes kept for half of the mutations; one kept byte per mutation would be more.
constexpr std::ptrdiff_t kMostKept = 256 << 10;

// The current input, for the message of a failure.
char running[512] = "nothing";  // NOLINT: read by a signal handler

void notify_and_die(int signal_number) {
  const auto write_text = [](const char* text) {
    [[maybe_unused]] const auto written =
        ::write(STDERR_FILENO, text, std::char_traits<char>::length(text));
  };
  write_text("fuzz: failed at ");
  write_text(running);
  write_text("\n");
  ::signal(signal_number, SIG_DFL);
  ::raise(signal_number);
}

// On a stack of its own: what nests too deep has used up the other.
void report(int signal_number) {
  static char stack[65536];
  stack_t own{};
  own.ss_sp = stack;
  own.ss_size = sizeof stack;
  ::sigaltstack(&own, nullptr);
  struct sigaction action {};
  action.sa_handler = notify_and_die;
  action.sa_flags = SA_ONSTACK;
  ::sigaction(signal_number, &action, nullptr);
}

// libFuzzer's clock interrupts system calls; so does this one, far more often.
void start_clock() {
  struct sigaction ignored {};
  ignored.sa_handler = [](int) {};
  ::sigaction(SIGALRM, &ignored, nullptr);
  constexpr timeval kEvery{.tv_sec = 0, .tv_usec = 3000};
  const itimerval clock{.it_interval = kEvery, .it_value = kEvery};
  ::setitimer(ITIMER_REAL, &clock, nullptr);
}

void run(const std::string& input) {
  // A copy of the exact size on the heap: reading past it is seen by the address sanitizer.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

Inputs read_inputs(const std::vector<std::string>& folders) {
  Inputs inputs;
  for (const std::string& folder : folders) {
    for (const auto& entry : fs::recursive_directory_iterator(folder)) {
      if (!entry.is_regular_file()) continue;
      std::ifstream file(entry.path(), std::ios::binary);
      inputs.emplace_back(entry.path().string(),
                          std::string(std::istreambuf_iterator<char>(file), {}));
    }
  }
  std::sort(inputs.begin(), inputs.end());
  return inputs;
}

// One change of one to a few bytes, of the kinds that libFuzzer makes first.
void mutate(std::string& input, std::mt19937_64& random, const std::string& other) {
  const auto below = [&](std::size_t n) {
    return n == 0 ? 0 : static_cast<std::size_t>(random() % n);
  };
  const std::size_t at = below(input.size() + 1);
  constexpr std::uint64_t kOddNumbers[] = {0,      1,          0x7f,       0xff,  0x7fff,
                                           0xffff, 0x7fffffff, 0xffffffff, ~0ull, 1ull << 63};
  switch (below(8)) {
    case 0:
      if (at < input.size()) input[at] = static_cast<char>(input[at] ^ (1 << below(8)));
      return;
    case 1:
      if (at < input.size()) input[at] = static_cast<char>(random());
      return;
    case 2:
      input.insert(at, 1 + below(8), static_cast<char>(random()));
      return;
    case 3:
      input.erase(at, 1 + below(8));
      return;
    case 4:
      input.resize(at);
      return;
    case 5: {  // a number at the edge of its range
      std::uint64_t number = kOddNumbers[below(std::size(kOddNumbers))];
      for (std::size_t i = at; i < std::min(input.size(), at + (std::size_t{1} << below(4)));
           ++i, number >>= 8)
        input[i] = static_cast<char>(number);
      return;
    }
    case 6:  // a piece of another input
      if (!other.empty()) input.insert(at, other.substr(below(other.size()), 1 + below(64)));
      return;
    default:  // a piece of its own, elsewhere
      if (!input.empty()) input.insert(at, input.substr(below(input.size()), 1 + below(32)));
  }
}

std::string mutation(std::uint64_t number, const Inputs& inputs) {
  std::mt19937_64 random(number);
  std::string input = inputs[random() % inputs.size()].second;
  const std::string& other = inputs[random() % inputs.size()].second;
  for (std::uint64_t changes = 1 + random() % 6; changes > 0; --changes)
    mutate(input, random, other);
  return input;
}

void require_linear(const std::string& small, const std::string& large) {
  const auto growing = testing::measure_growth([&] { run(small); }, [&] { run(large); });
  if (growing.linear()) return;
  std::fprintf(stderr, "fuzz: %zu bytes take %.6f s, %zu bytes %.6f s\n", small.size(),
               growing.small, large.size(), growing.large);
  std::abort();
}

struct Options {
  std::uint64_t mutations = 3000, growths = 40;
  std::size_t bytes = 1 << 20;
  std::uint64_t first_mutation = 0, first_growth = 0;
  bool only = false;  // one mutation or growth, no input
  std::string write_to;
  std::vector<std::string> folders;
};

Options options_of(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto number = [&] { return std::strtoull(i + 1 < argc ? argv[++i] : "", nullptr, 10); };
    if (word == "--mutations") {
      options.mutations = number();
    } else if (word == "--growths") {
      options.growths = number();
    } else if (word == "--bytes") {
      options.bytes = number();
    } else if (word == "--only" || word == "--only_growth") {
      options.only = true;
      const bool growth = word == "--only_growth";
      (growth ? options.first_growth : options.first_mutation) = number();
      options.mutations = growth ? 0 : 1;
      options.growths = growth ? 1 : 0;
    } else if (word == "--write" && i + 1 < argc) {
      options.write_to = argv[++i];
    } else {
      options.folders.push_back(word);
    }
  }
  return options;
}

void write(const Options& options, const std::string& input) {
  if (!options.write_to.empty()) std::ofstream(options.write_to, std::ios::binary) << input;
}

void run_mutations(const Options& options, const Inputs& inputs) {
  std::ptrdiff_t held = 0;
  for (std::uint64_t i = 0; i < options.mutations; ++i) {
    if (i == options.mutations / 2) held = fuzz::live_bytes();
    const std::uint64_t number = options.first_mutation + i;
    std::snprintf(running, sizeof(running), "mutation: repeat with --only %llu",
                  static_cast<unsigned long long>(number));
    const std::string input = mutation(number, inputs);
    write(options, input);
    run(input);
  }
  if (options.only || options.mutations == 0) return;
  std::snprintf(running, sizeof(running), "the end: %td bytes are kept of half of the mutations",
                fuzz::live_bytes() - held);
  fuzz::require(fuzz::live_bytes() - held <= kMostKept);
}

void run_growths(const Options& options, const Inputs& inputs) {
  std::vector<std::string_view> texts;
  for (const auto& [name, input] : inputs) texts.push_back(input);
  for (std::uint64_t i = 0; i < options.growths; ++i) {
    const std::uint64_t number = options.first_growth + i;
    std::snprintf(running, sizeof(running), "growth: repeat with --only_growth %llu",
                  static_cast<unsigned long long>(number));
    const fuzz::Growth growth = fuzz::make_growth(number, texts);
    const std::string large = fuzz::grown(growth, options.bytes);
    write(options, large);
    require_linear(fuzz::grown(growth, options.bytes / testing::Growing::kFactor), large);
  }
}

}  // namespace

int main(int argc, char** argv) {
  const Options options = options_of(argc, argv);
  const Inputs inputs = read_inputs(options.folders);
  if (inputs.empty()) {
    std::fprintf(stderr, "fuzz: no inputs; expected folders with files\n");
    return 2;
  }
  for (const int signal_number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL}) report(signal_number);
  start_clock();
  for (const auto& [name, input] : inputs) {
    if (options.only) break;
    std::snprintf(running, sizeof(running), "input %s", name.c_str());
    run(input);
  }
  run_mutations(options, inputs);
  run_growths(options, inputs);
  const fuzz::Taken taken = fuzz::most_taken();
  std::snprintf(running, sizeof(running), "the end: the target has no MemoryLimit");
  fuzz::require(taken.limit > 0);
  std::printf("fuzz: %zu inputs, %llu mutations, %llu growths; at most %td of %td bytes\n",
              options.only ? 0 : inputs.size(), static_cast<unsigned long long>(options.mutations),
              static_cast<unsigned long long>(options.growths), taken.bytes, taken.limit);
  return 0;
}
