# Rules for `cmake --install` and CPack in addition to each target's own: the files behind
# find_package(tandem), and the Debian packages.
#
#   component    package             holds
#   program      tandem              the program, manual pages, completion of shells
#   transports   tandem-transports   plugins for libfabric, MPI and Gloo, which are loaded when asked for
#   comm         libtandem-comm0     libtandem_comm.so.0, the communicator in C
#   comm_dev     libtandem-comm-dev  its headers, its link, find_package(tandem)
#
# The C++ libraries are internal: neither they nor their headers are installed.
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
configure_package_config_file(cmake/tandemConfig.cmake.in ${PROJECT_BINARY_DIR}/tandemConfig.cmake INSTALL_DESTINATION ${package_folder})
# 0.x makes no promise between minor versions.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/tandemConfig.cmake ${PROJECT_BINARY_DIR}/tandemConfigVersion.cmake DESTINATION ${package_folder} COMPONENT comm_dev)
install(EXPORT tandem-comm-targets NAMESPACE tandem:: DESTINATION ${package_folder} COMPONENT comm_dev)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME tandem)
set(CPACK_PACKAGE_CONTACT "the tandem maintainers <maintainers@tandem.invalid>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL program transports comm comm_dev)
set(CPACK_COMPONENTS_GROUPING IGNORE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
# The packages that programs need come from what their files link to (dpkg-shlibdeps).
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)

function(tandem_package component name summary)
  cmake_parse_arguments(ARG "" "DEPENDS;RECOMMENDS;SUGGESTS;SECTION" "" ${ARGN})
  string(TOUPPER ${component} component)
  set(CPACK_DEBIAN_${component}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_COMPONENT_${component}_DESCRIPTION "${summary}" PARENT_SCOPE)
  foreach(field DEPENDS RECOMMENDS SUGGESTS SECTION)
    if(ARG_${field})
      set(CPACK_DEBIAN_${component}_PACKAGE_${field} "${ARG_${field}}" PARENT_SCOPE)
    endif()
  endforeach()
endfunction()

# libcurl reaches the Hub over TLS, for which it needs certificates that no linked file names.
tandem_package(program tandem "fine-tunes transformers on many CPUs" DEPENDS ca-certificates SUGGESTS "tandem-transports, mpich")
tandem_package(transports tandem-transports "tandem over libfabric, MPI and Gloo" DEPENDS "tandem (= ${PROJECT_VERSION})")
tandem_package(comm libtandem-comm${PROJECT_VERSION_MAJOR} "collectives for CPUs, C interface" SECTION libs SUGGESTS tandem-transports)
tandem_package(comm_dev libtandem-comm-dev "collectives for CPUs, development files" SECTION libdevel
  DEPENDS "libtandem-comm${PROJECT_VERSION_MAJOR} (= ${PROJECT_VERSION})")
include(CPack)
