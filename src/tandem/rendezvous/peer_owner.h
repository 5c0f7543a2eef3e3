// Whose process is at the other end of a connection inside this host.
#pragma once

#include <sys/types.h>

#include <iosfwd>
#include <optional>
#include <string_view>

#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {

// The user id, in this process's namespace of users, that owns the socket at the other end of a
// TCP connection. Nothing where that end is on another host or in another network namespace, or
// where the kernel shows no table of connections (proc(5), /proc/net/tcp). Reads the whole table:
// for the beginning of a connection, not for each message.
std::optional<uid_t> owner_of_peer(const FileDescriptor& socket);

// The owner that a text of the form of /proc/net/tcp names for the socket with these two ends, both
// as the table writes them ("0100007F:1F90").
std::optional<uid_t> owner_in_table(std::istream& table, std::string_view local,
                                    std::string_view remote);

}  // namespace tandem::rendezvous
