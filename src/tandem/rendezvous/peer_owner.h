// The owner of the process at the other end of a connection inside this host.
#pragma once

#include <sys/types.h>

#include <iosfwd>
#include <optional>
#include <string_view>

#include "tandem/rendezvous/socket.h"

namespace tandem::rendezvous {

// The other end has no owner any more: it was closed, and bytes sent before may still be readable.
// Older kernels then report user 0.
constexpr uid_t kNobody = static_cast<uid_t>(-1);

// The user id, in this process's namespace of users, that owns the socket at the other end of a
// TCP connection, or kNobody. Nothing if that end is on another host or in another network
// namespace, or if the kernel has no table of connections (proc(5), /proc/net/tcp). Reads the
// whole table: call it once per connection, not per message.
std::optional<uid_t> owner_of_peer(const FileDescriptor& socket);

// The owner in `table` (in the form of /proc/net/tcp) of the socket with these two ends. Both are
// in the table's notation ("0100007F:1F90"). kNobody: no inode. Nothing: not in the table.
std::optional<uid_t> owner_in_table(std::istream& table, std::string_view local,
                                    std::string_view remote);

}  // namespace tandem::rendezvous
