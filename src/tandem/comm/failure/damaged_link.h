// The failure of a communicator because a frame arrived with other bytes than were sent.
#pragma once

#include <string>

#include "tandem/core/error.h"

namespace tandem::comm {

// Ranks of the job: the sender and the receiver of the frame.
struct LinkEnds {
  int from = -1;
  int to = -1;
};

class DamagedLink : public CommError {
 public:
  DamagedLink(const std::string& message, LinkEnds ends) : CommError(message), ends_(ends) {}
  const LinkEnds& ends() const { return ends_; }

 private:
  LinkEnds ends_;
};

}  // namespace tandem::comm
