// Whose process is at the other end of a connection inside this host.
#pragma once

#include <sys/types.h>

#include <iosfwd>
#include <optional>
#include <string_view>

#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {

// Of a connection whose other end nobody has any more: it was closed, and what it sent before may
// still be read. Older kernels then name user 0.
constexpr uid_t kNobody = static_cast<uid_t>(-1);

// The user id, in this process's namespace of users, that owns the socket at the other end of a
// TCP connection, or kNobody. Nothing where that end is on another host or in another network
// namespace, or where the kernel shows no table of connections (proc(5), /proc/net/tcp). Reads the
// whole table: for the beginning of a connection, not for each message.
std::optional<uid_t> owner_of_peer(const FileDescriptor& socket);

// The owner that a text of the form of /proc/net/tcp names for the socket with these two ends, both
// as the table writes them ("0100007F:1F90"); kNobody where it has no inode. Nothing: not there.
std::optional<uid_t> owner_in_table(std::istream& table, std::string_view local,
                                    std::string_view remote);

}  // namespace tandem::rendezvous
