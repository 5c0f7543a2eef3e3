#include "tandem/launch/control/control_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "tandem/core/error.h"
#include "tandem/net/job_token.h"

namespace tandem::launch {
namespace {

constexpr std::size_t kCodeLetters = 2 * std::tuple_size_v<net::ProofCode>;
constexpr std::string_view kRefused = "refused ";

// Takes the same time for any position of the difference.
bool same(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i)
    difference |= static_cast<unsigned>(static_cast<unsigned char>(a[i] ^ b[i]));
  return difference == 0;
}

[[noreturn]] void raise_refusal(std::string_view word) {
  if (word == kNoToken) {
    raise<CommError>(
        "the job there was started without TANDEM_JOB_TOKEN, so it answers on its own hosts only");
  }
  raise<CommError>("the job there has another TANDEM_JOB_TOKEN than this command");
}

}  // namespace

std::string ControlLine::code(Side sender, std::uint64_t number, std::string_view line) const {
  const net::ProofCode code =
      net::prove(proof_->token, {"tandem control", sender == Side::kAgent ? "agent" : "visitor",
                                 proof_->agents_challenge, proof_->visitors_greeting,
                                 std::to_string(number), line});
  return fmt::format("{:02x}", fmt::join(code, ""));
}

void ControlLine::send(const std::string& line) {
  socket_.send(proof_ ? code(proof_->side, sent_++, line) + ' ' + line : line);
}

void ControlLine::refuse(std::string_view word) {
  socket_.send(std::string(kRefused) + std::string(word));
}

std::optional<std::string> ControlLine::take_line() {
  auto line = socket_.take_line();
  if (!line || !proof_) return line;
  const bool visits = proof_->side == Side::kVisitor;
  if (visits && line->starts_with(kRefused)) raise_refusal(line->substr(kRefused.size()));
  const std::string text = line->size() > kCodeLetters ? line->substr(kCodeLetters + 1) : "";
  const Side sender = visits ? Side::kAgent : Side::kVisitor;
  if (line->size() <= kCodeLetters || (*line)[kCodeLetters] != ' ' ||
      !same(line->substr(0, kCodeLetters), code(sender, taken_, text)))
    raise<CommError>("its sender does not prove that it knows the job's token (TANDEM_JOB_TOKEN)");
  ++taken_;
  return text;
}

}  // namespace tandem::launch
