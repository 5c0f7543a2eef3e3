# Flags that end a program at a memory error: canaries on stacks, bounds in the functions of libc
# (level 3 knows sizes that are computed at run time) and in the containers of libstdc++, a random
# address, and tables of the linker that cannot be written once the program runs. Not under a
# sanitizer, which checks the same and more, and not without optimisation, which libc's checks need.
# `bench/compare.py` against a build with -DTANDEM_HARDENING=OFF shows what they cost
# (docs/results/machine.md).
option(TANDEM_HARDENING "Stack protector, _FORTIFY_SOURCE, _GLIBCXX_ASSERTIONS, PIE and full RELRO in optimised builds" ON)

include(CheckPIESupported)
check_pie_supported(LANGUAGES C CXX)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)

if(TANDEM_HARDENING AND NOT CMAKE_CXX_FLAGS MATCHES "-fsanitize" AND CMAKE_BUILD_TYPE MATCHES "^(Release|RelWithDebInfo|MinSizeRel)$")
  add_compile_options(-fstack-protector-strong -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3 -D_GLIBCXX_ASSERTIONS)
  add_link_options(-Wl,-z,relro -Wl,-z,now)
endif()
