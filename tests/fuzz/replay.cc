// Stands in for libFuzzer in builds without it: runs the inputs of folders, then mutations of them.
// Mutation number i is always the same input, so a failure can be repeated:
//   <target> --mutations 3000 FOLDER…      runs everything
//   <target> --only 1234 --write FILE FOLDER…   writes mutation 1234 into FILE, then runs it
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

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);

namespace {

namespace fs = std::filesystem;

// What runs now, for the message of a failure.
char running[512] = "nothing";  // NOLINT: read by a signal handler

void tell_and_die(int signal_number) {
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

std::vector<std::pair<std::string, std::string>> read_inputs(
    const std::vector<std::string>& folders) {
  std::vector<std::pair<std::string, std::string>> inputs;
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

std::string mutation(std::uint64_t number,
                     const std::vector<std::pair<std::string, std::string>>& inputs) {
  std::mt19937_64 random(number);
  std::string input = inputs[random() % inputs.size()].second;
  const std::string& other = inputs[random() % inputs.size()].second;
  for (std::uint64_t changes = 1 + random() % 6; changes > 0; --changes)
    mutate(input, random, other);
  return input;
}

}  // namespace

int main(int argc, char** argv) {
  std::uint64_t first = 0;
  std::uint64_t count = 3000;
  bool only = false;
  std::string write_to;
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool has_value = i + 1 < argc;
    if (word == "--mutations" && has_value) {
      count = std::strtoull(argv[++i], nullptr, 10);
    } else if (word == "--only" && has_value) {
      first = std::strtoull(argv[++i], nullptr, 10);
      only = true;
    } else if (word == "--write" && has_value) {
      write_to = argv[++i];
    } else {
      folders.push_back(word);
    }
  }
  if (only) count = 1;
  const auto inputs = read_inputs(folders);
  if (inputs.empty()) {
    std::fprintf(stderr, "fuzz: no inputs; expected folders with files\n");
    return 2;
  }
  for (const int signal_number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE, SIGILL})
    ::signal(signal_number, tell_and_die);
  start_clock();
  for (const auto& [name, input] : inputs) {
    if (only) break;
    std::snprintf(running, sizeof(running), "input %s", name.c_str());
    run(input);
  }
  for (std::uint64_t number = first; number < first + count; ++number) {
    std::snprintf(running, sizeof(running), "mutation: repeat with --only %llu",
                  static_cast<unsigned long long>(number));
    const std::string input = mutation(number, inputs);
    if (!write_to.empty()) std::ofstream(write_to, std::ios::binary) << input;
    run(input);
  }
  std::printf("fuzz: %zu inputs and %llu mutations\n", only ? 0 : inputs.size(),
              static_cast<unsigned long long>(count));
  return 0;
}
