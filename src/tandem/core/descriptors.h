// Room for open files and sockets. A job's connections grow with its ranks; the soft limit that
// shells begin with (1,024) is there for programs that use select(2), and may be raised to the hard
// one.
#pragma once

#include <cstddef>
#include <string_view>

namespace tandem {

// Sees to it that `more` descriptors can be opened in addition to those that are open now, and a
// few for files: raises the soft limit to the hard one when it is too low. Throws ConfigError that
// names `who`, the number and how to allow it, when the hard one is too low as well. `who`: "rank 3
// of 64"; `instead`: how to need fewer.
void reserve_descriptors(std::size_t more, std::string_view who,
                         std::string_view instead = "start fewer ranks per host");

// Whether a system call failed because this process (EMFILE) or the machine (ENFILE) has no
// descriptor left: no later attempt will fare better.
bool out_of_descriptors(int error_number);
// Throws ConfigError: what could not be done, which limit is reached, and how to raise it.
[[noreturn]] void raise_out_of_descriptors(std::string_view doing, int error_number);

}  // namespace tandem
