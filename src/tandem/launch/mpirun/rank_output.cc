#include "tandem/launch/mpirun/rank_output.h"

#include <fcntl.h>

#include <cerrno>

#include "tandem/core/error.h"

namespace tandem::launch {

std::string fill_pattern(const std::string& pattern, const PrintingRank& rank) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] != '%' || i + 1 == pattern.size()) {
      text += pattern[i];
      continue;
    }
    switch (const char what = pattern[++i]) {
      case 'r':
        text += std::to_string(rank.rank);
        break;
      case 'g':
        text += '0';
        break;
      case 'p':
        text += std::to_string(rank.host_number);
        break;
      case 'h':
        text += rank.host;
        break;
      case '%':
        text += '%';
        break;
      default:
        text += {'%', what};
    }
  }
  return text;
}

int RankOutput::descriptor(const PrintingRank& rank, bool err) {
  const std::string& pattern = err ? line_.err_pattern : line_.out_pattern;
  if (pattern.empty()) return err ? console_.err : console_.out;
  const std::string path = fill_pattern(pattern, rank);
  auto& file = files_[path];
  if (!file) {
    file = net::FileDescriptor(
        ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0666));
    if (!file) throw io_error("cannot write", path, errno);
  }
  return file.get();
}

std::string RankOutput::prefix(const PrintingRank& rank) const {
  if (!line_.prefix_pattern.empty()) return fill_pattern(line_.prefix_pattern, rank);
  return line_.prefix_ranks ? fmt::format("[{}] ", rank.rank) : "";
}

// Without a prefix bytes are written as they arrive; with one, in complete lines.
void RankOutput::add(const PrintingRank& rank, bool err, const std::string& bytes) {
  constexpr std::size_t kMaxLine = 64 << 10;
  const std::string before = prefix(rank);
  const int to = descriptor(rank, err);
  if (before.empty()) return writer_.write(to, bytes);
  std::string& line = unfinished_[{rank.rank, err}];
  std::string ready;
  for (const char c : bytes) {
    line += c;
    if (c != '\n' && line.size() < kMaxLine) continue;
    ready += before + line;
    if (c != '\n') ready += '\n';
    line.clear();
  }
  writer_.write(to, std::move(ready));
}

void RankOutput::end(const PrintingRank& rank) {
  for (const bool err : {false, true}) {
    const auto line = unfinished_.find({rank.rank, err});
    if (line == unfinished_.end() || line->second.empty()) continue;
    add(rank, err, "\n");
  }
}

}  // namespace tandem::launch
