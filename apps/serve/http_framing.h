// The headers of a request that decide where it ends and which host it is for.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace tandem::apps {

// How the headers mark the end of a request, and of the connection to its server.
class Framing {
 public:
  void add(std::string_view name, std::string_view value);

  struct Refusal {
    int status = 0;
    std::string message;
  };
  // Why a request with these headers is refused; nothing: it is not.
  std::optional<Refusal> refusal(std::size_t max_body_bytes) const;

 private:
  int hosts_ = 0;
  int lengths_ = 0;
  int codings_ = 0;
  bool malformed_name_ = false;
  std::string length_;
  std::string coding_;
};

}  // namespace tandem::apps
