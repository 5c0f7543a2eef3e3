#include "tandem/comm/algorithms/summation_tree.h"

#include "tandem/core/error.h"

namespace tandem::comm {
namespace {

// Returns the owner of all leaves of tree(begin, end). If there are several owners, appends the
// largest subtrees with one owner and returns nothing. The caller appends a subtree with one owner,
// since only the caller knows whether it grows further.
struct Finder {
  FunctionRef<int(int)> owner;
  std::vector<Subtree>& found;

  // {owned, owner}
  std::pair<bool, int> visit(int begin, int end) {
    if (end - begin == 1) return {true, owner(begin)};
    const int middle = begin + left_leaves(end - begin);
    const std::pair<bool, int> left = visit(begin, middle);
    const std::size_t left_end = found.size();
    const std::pair<bool, int> right = visit(middle, end);
    if (left.first && right.first && left.second == right.second) return left;
    if (left.first) {
      found.insert(found.begin() + static_cast<std::ptrdiff_t>(left_end),
                   Subtree{begin, middle, left.second});
    }
    if (right.first) found.push_back(Subtree{middle, end, right.second});
    return {false, 0};
  }
};

void append_program(int begin, int end, std::span<const Subtree> operands, SumProgram& program) {
  for (std::size_t i = 0; i < operands.size(); ++i) {
    if (operands[i].begin == begin && operands[i].end == end) {
      program.push_back(static_cast<int>(i));
      return;
    }
  }
  TANDEM_CHECK(end - begin > 1, "no operand covers leaf {}", begin);
  const int middle = begin + left_leaves(end - begin);
  append_program(begin, middle, operands, program);
  append_program(middle, end, operands, program);
  program.push_back(kAdd);
}

}  // namespace

std::vector<Subtree> owned_subtrees(int leaves, FunctionRef<int(int leaf)> owner) {
  std::vector<Subtree> found;
  if (leaves == 0) return found;
  const std::pair<bool, int> whole = Finder{owner, found}.visit(0, leaves);
  if (whole.first) found.push_back(Subtree{0, leaves, whole.second});
  return found;
}

SumProgram sum_program(int begin, int end, std::span<const Subtree> operands) {
  SumProgram program;
  append_program(begin, end, operands, program);
  return program;
}

}  // namespace tandem::comm
