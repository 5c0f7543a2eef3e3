#include "tandem/launch/control/control_line.h"

#include "tandem/core/error.h"
#include "tandem/net/job_token.h"
#include "tandem/net/plain_bytes.h"

namespace tandem::launch {
namespace {

[[noreturn]] void raise_refusal(std::string_view word) {
  if (word == kNoToken) {
    raise<CommError>(
        "the job there was started without TANDEM_JOB_TOKEN, so it answers on its own hosts only");
  }
  raise<CommError>("the job there has another TANDEM_JOB_TOKEN than this command");
}

}  // namespace

net::ProofCode ControlLine::code(Side sender, std::uint64_t number, std::string_view line) const {
  return net::prove(proof_->token, {"tandem control", sender == Side::kAgent ? "agent" : "visitor",
                                    proof_->agents_challenge, proof_->visitors_greeting,
                                    std::to_string(number), line});
}

void ControlLine::send(const std::string& line) {
  if (!proof_) return stream_.send(kLine, {line});
  const net::ProofCode proof = code(proof_->side, sent_++, line);
  stream_.send(kLine, {net::view_of(proof), line});
}

void ControlLine::refuse(std::string_view word) { stream_.send(kRefusal, {word}); }

std::optional<std::string> ControlLine::take_line() {
  const std::optional<net::Frame> frame = stream_.take();
  if (!frame) return std::nullopt;
  const std::string_view payload = frame->payload;
  const bool visits = proof_ && proof_->side == Side::kVisitor;
  if (frame->kind == kRefusal && visits) raise_refusal(payload);
  if (!proof_ && frame->kind == kLine) return frame->payload;
  const Side sender = visits ? Side::kAgent : Side::kVisitor;
  constexpr std::size_t kCodeBytes = sizeof(net::ProofCode);
  if (!proof_ || frame->kind != kLine || payload.size() < kCodeBytes ||
      !net::same_proof(net::read_as<net::ProofCode>(payload),
                       code(sender, taken_, payload.substr(kCodeBytes))))
    raise<CommError>("its sender does not prove that it knows the job's token (TANDEM_JOB_TOKEN)");
  ++taken_;
  return std::string(payload.substr(kCodeBytes));
}

}  // namespace tandem::launch
