# Every library that tandem uses, found in one place; docs/dependencies.md gives the reason for each.
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(simdjson REQUIRED)
find_package(ICU REQUIRED COMPONENTS uc)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
find_package(CLI11 REQUIRED)
# Debian's oneDNN package config demands OpenCL's headers, which a CPU program does not need: look for the files instead.
find_path(DNNL_INCLUDE_DIR dnnl.hpp REQUIRED)
find_library(DNNL_LIBRARY dnnl REQUIRED)
add_library(DNNL::dnnl UNKNOWN IMPORTED)
set_target_properties(DNNL::dnnl PROPERTIES IMPORTED_LOCATION ${DNNL_LIBRARY}
                      INTERFACE_INCLUDE_DIRECTORIES ${DNNL_INCLUDE_DIR})
find_path(MICROHTTPD_INCLUDE_DIR microhttpd.h REQUIRED)
find_library(MICROHTTPD_LIBRARY microhttpd REQUIRED)
add_library(MicroHTTPD::microhttpd UNKNOWN IMPORTED)
set_target_properties(MicroHTTPD::microhttpd PROPERTIES IMPORTED_LOCATION ${MICROHTTPD_LIBRARY}
                      INTERFACE_INCLUDE_DIRECTORIES ${MICROHTTPD_INCLUDE_DIR})
if(TANDEM_BUILD_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
endif()
