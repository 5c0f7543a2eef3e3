// Where connections wait that have not yet said who they are. Anybody may connect to an open port:
// port scanners, web browsers, programs that connect and say nothing, or a byte a minute. Here they
// cost nothing but a descriptor, for a while.
#pragma once

#include <poll.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {

struct Guest {
  FileDescriptor socket;
  std::string greeting;  // what it was told
  std::string received;  // what it has said, complete when it leaves the lobby
};

class Lobby {
 public:
  // A guest is shown out `patience` after it came. When `capacity` wait, those who knock wait at
  // the door until the oldest has had a second to introduce itself; then it leaves for the next
  // one.
  Lobby(std::chrono::milliseconds patience, std::size_t capacity)
      : patience_(patience), capacity_(capacity) {}

  // Accepts those who knock at `listener`, as far as there is room. `greeting` makes what each is
  // told first (may be empty).
  void accept_from(const FileDescriptor& listener, const std::function<std::string()>& greeting);
  void add_to(std::vector<pollfd>& waits) const;
  // How to wait for those who knock: not at all while there is no room, which comes from leaving
  // guests or with time.
  pollfd door(const FileDescriptor& listener) const;
  // At most `limit`, less if there will be room before.
  std::chrono::milliseconds nap(std::chrono::milliseconds limit) const;
  // Reads what the guests have to say and returns those who are done. `wanted` tells from the bytes
  // so far how many an introduction has in all (more than there are: not known yet); 0 shows the
  // guest out.
  std::vector<Guest> take_complete(
      const std::function<std::size_t(const std::string& received)>& wanted);

 private:
  struct Waiting {
    Guest guest;
    Deadline limit;
  };
  bool has_room() const;

  std::chrono::milliseconds patience_;
  std::size_t capacity_;
  std::vector<Waiting> waiting_;  // by time of arrival
};

}  // namespace tandem::rendezvous
