# tandem_add_library(core HDRS a.h … SRCS a.cc … DEPS tandem::x … PRIVATE_DEPS fmt::fmt … [TANDEM_O1] [APART])
#   makes the library tandem_core with the alias tandem::core. HDRS are its public headers, included as "tandem/core/a.h".
#   ISA-specific sources get their flags with tandem_source_isa(). TANDEM_O1: see tandem_optimize_for_build_time().
#   APART: its sources are never compiled together, see tandem_compile_together().
# tandem_compile_together(target)
#   With -DTANDEM_UNITY=N the compiler reads the sources of the target in groups of up to N, which takes a third of the time: it
#   instantiates the same templates once for a group. So no two sources of a target give one name to two things, unless it is APART.
# tandem_optimize_for_build_time(target…)
#   compiles targets whose code waits, parses flags or writes text with -O1, which takes a quarter less time than -O3; under the
#   sanitizers without optimisation, which takes a fifth to a half less time again.
# tandem_add_cpu_class_tests(core_test [CLASSES reference avx2 avx512 avx512bf16] [EMULATED] [EMULATED_FILTER *] [LABELS unit] [TIMEOUT 600])
#   runs the program of tests once more for each of the classes of processors (default: all) that is below this machine's, so that one
#   machine shows what others do. EMULATED: for those above as well; the program then links tandem_claimed_machine, and
#   EMULATED_FILTER names the tests that are fast enough there.
# tandem_add_test(core_test SRCS a_test.cc … DEPS tandem::core … [LABELS unit] [TIMEOUT 60] [QUIET | LOCK name] [OPTIMIZED] [APART])
#   makes one GoogleTest program whose cases ctest lists one by one. Its own sources are compiled without optimisation and see the
#   headers of tandem_add_precompiled_headers(); OPTIMIZED: with -O1, for tests that compute much themselves.
#   QUIET: for tests that assert milliseconds and compute little; they run first, two at a time on two cores. LOCK: one case at a time among
#   those with the same lock. Cases of tests/waiting_tests.txt run together with all others; those
#   of tests/slow_tests.txt are not quick.
# tandem_optimize_test_sources(a_test.cc …)
#   compiles these sources of such programs with -O1, for tests that make and compare millions of numbers themselves.

# Tests take slots, of which scripts/run_tests.sh gives ten to two cores: one that computes takes three, one that waits one, and one that
# asserts milliseconds four. ctest starts those of high COST first, so that the last kind has only its like and waiting tests for company,
# and a long test has others beside it. None takes more: small tests would take the slots for which it waits.
set(TANDEM_SLOTS 3)
set(TANDEM_SLOTS_OF_QUIET 4)
set(TANDEM_SLOTS_OF_WAITING 1)

set(TANDEM_UNITY 0 CACHE STRING "Compile the sources of a target in groups of up to this number; 0: each alone")

# Unused constants: GCC looks for them in groups of sources, and clang always does.
set(TANDEM_WARNINGS -Wall -Wextra -Wshadow -Wnon-virtual-dtor $<$<CXX_COMPILER_ID:GNU>:-Wunused-const-variable=2>)

function(tandem_optimize_for_build_time)
  foreach(target ${ARGN})
    tandem_compile_with_o1(${target})
    tandem_reuse_headers(${target} o1)
  endforeach()
endfunction()

function(tandem_compile_with_o1 target)
  set(options $<$<CONFIG:Release>:-O1>)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize=(address|thread)")  # not libFuzzer's, which wants speed
    set(options -O0 -U_FORTIFY_SOURCE)
  endif()
  target_compile_options(${target} PRIVATE ${options})
endfunction()

function(tandem_compile_together target)
  if(TANDEM_UNITY GREATER 0)
    get_target_property(sources ${target} SOURCES)
    list(LENGTH sources count)
    math(EXPR groups "(${count} + ${TANDEM_UNITY} - 1) / ${TANDEM_UNITY}")
    math(EXPR size "(${count} + ${groups} - 1) / ${groups}")  # groups of equal size
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${size})
    # A type of a source seems to be that of a header.
    target_compile_options(${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-Wno-subobject-linkage>)
  endif()
endfunction()

function(tandem_add_library name)
  cmake_parse_arguments(ARG "TANDEM_O1;APART" "" "HDRS;SRCS;DEPS;PRIVATE_DEPS" ${ARGN})
  add_library(tandem_${name} STATIC ${ARG_SRCS})
  add_library(tandem::${name} ALIAS tandem_${name})
  target_sources(tandem_${name} PUBLIC FILE_SET HEADERS BASE_DIRS ${PROJECT_SOURCE_DIR}/src FILES ${ARG_HDRS})
  set_target_properties(tandem_${name} PROPERTIES
    LINKER_LANGUAGE CXX POSITION_INDEPENDENT_CODE ON EXPORT_NAME ${name} VERIFY_INTERFACE_HEADER_SETS ON)
  target_compile_options(tandem_${name} PRIVATE ${TANDEM_WARNINGS})
  if(NOT ARG_APART)
    tandem_compile_together(tandem_${name})
  endif()
  if(ARG_TANDEM_O1)
    tandem_optimize_for_build_time(tandem_${name})
  else()
    tandem_reuse_headers(tandem_${name} program)
  endif()
  target_link_libraries(tandem_${name} PUBLIC ${ARG_DEPS} PRIVATE ${ARG_PRIVATE_DEPS})
endfunction()

# Compiles one source of a library for an instruction set: tandem_source_isa(gelu_avx2.cc avx2).
function(tandem_source_isa source isa)
  set(flags_avx2 -mavx2 -mfma -mf16c)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx2 -mfma -mf16c)
  set(flags_avx512bf16 ${flags_avx512} -mavx512bf16)
  set(flags_avx512vnni ${flags_avx512} -mavx512vnni)
  set(flags_amx ${flags_avx512bf16} -mamx-tile -mamx-bf16)
  set(flags_amxint8 ${flags_avx512vnni} -mamx-tile -mamx-int8)
  set_property(SOURCE ${source} APPEND PROPERTY COMPILE_OPTIONS ${flags_${isa}})
endfunction()

# Sanitizers make programs some ten times slower. name: of the caller's variable.
function(tandem_scale_timeout name)
  if(CMAKE_CXX_FLAGS MATCHES "-fsanitize")
    math(EXPR scaled "10 * ${${name}}")
    set(${name} ${scaled} PARENT_SCOPE)
  endif()
endfunction()

# Precompiles the headers that most sources include, once for each set of flags, because GCC takes a
# header only with the flags it was made with. GCC alone: clang refuses one where a target has
# definitions of its own. scripts/build.sh does without where it uses ccache, which keeps compilations
# and could not.
function(tandem_add_precompiled_headers)
  file(CONFIGURE OUTPUT ${PROJECT_BINARY_DIR}/precompiled_headers.cc CONTENT "int main() {}\n")
  set(common <fmt/format.h> <algorithm> <array> <chrono> <cstring> <filesystem> <functional> <map> <memory> <numeric> <optional> <span> <string>
             <string_view> <thread> <utility> <variant> <vector>)
  set(json ${PROJECT_SOURCE_DIR}/src/tandem/core/json.h)
  foreach(kind program o1)
    add_library(tandem_${kind}_headers STATIC EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled_headers.cc)
    target_include_directories(tandem_${kind}_headers PRIVATE ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(tandem_${kind}_headers PRIVATE fmt::fmt nlohmann_json::nlohmann_json)
  endforeach()
  tandem_compile_with_o1(tandem_o1_headers)
  target_precompile_headers(tandem_program_headers PRIVATE ${common})
  target_precompile_headers(tandem_o1_headers PRIVATE ${json} ${common})
  if(TANDEM_BUILD_TESTS)
    add_executable(tandem_test_headers EXCLUDE_FROM_ALL ${PROJECT_BINARY_DIR}/precompiled_headers.cc)
    target_link_libraries(tandem_test_headers PRIVATE tandem::core GTest::gmock)
    tandem_compile_as_test(tandem_test_headers)
    target_precompile_headers(tandem_test_headers PRIVATE <gmock/gmock.h> ${json} ${common} <fstream> <random>)
  endif()
endfunction()

# tandem_reuse_headers(target program|o1|test): declares that the flags of the target are those of
# that kind. Headers of the first two are for libraries, compiled with -fPIC; the few sources of
# programs, with -fPIE, go without.
function(tandem_reuse_headers target kind)
  get_target_property(type ${target} TYPE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND (type MATCHES "^(STATIC|OBJECT)_LIBRARY$" OR kind STREQUAL "test"))
    target_precompile_headers(${target} REUSE_FROM tandem_${kind}_headers)
  endif()
endfunction()

function(tandem_compile_as_test target)
  target_compile_options(${target} PRIVATE ${TANDEM_WARNINGS} $<$<CONFIG:Release,RelWithDebInfo>:-O0;-U_FORTIFY_SOURCE>)
endfunction()

function(tandem_optimize_test_sources)
  set_source_files_properties(${ARGN} PROPERTIES
    COMPILE_OPTIONS "$<$<CONFIG:Release,RelWithDebInfo>:-O1>" SKIP_PRECOMPILE_HEADERS ON)
endfunction()

function(tandem_add_test name)
  cmake_parse_arguments(ARG "QUIET;OPTIMIZED;APART" "TIMEOUT;LOCK" "SRCS;DEPS;LABELS" ${ARGN})
  if(NOT TANDEM_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 120)
  endif()
  tandem_scale_timeout(ARG_TIMEOUT)
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  add_executable(${name} ${ARG_SRCS})
  if(NOT ARG_APART)
    tandem_compile_together(${name})
  endif()
  if(ARG_OPTIMIZED)
    target_compile_options(${name} PRIVATE ${TANDEM_WARNINGS} $<$<CONFIG:Release,RelWithDebInfo>:-O1>)
  else()
    tandem_compile_as_test(${name})
    tandem_reuse_headers(${name} test)
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} fmt::fmt GTest::gmock GTest::gtest_main)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)  # "support/test_support.h"
  target_compile_definitions(${name} PRIVATE TANDEM_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
                             TANDEM_BINARY_DIR="${PROJECT_BINARY_DIR}")
  set(cost 0)
  set(slots ${TANDEM_SLOTS})
  if(ARG_QUIET)
    set(cost 300)
    set(slots ${TANDEM_SLOTS_OF_QUIET})
  elseif(ARG_LOCK)
    set(cost 100)  # a chain of cases begins early
  endif()
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 DISCOVERY_MODE PRE_TEST
                       PROPERTIES TIMEOUT ${ARG_TIMEOUT} COST ${cost} PROCESSORS ${slots})
  tandem_schedule_tests(${name}_TESTS "${ARG_LABELS}" "${ARG_LOCK}")
endfunction()

# Labels, slots and lock of the cases of a list of gtest_discover_tests(). The daily loop of a developer is ctest -L quick.
function(tandem_schedule_tests list labels lock)
  set(quick_labels ${labels})
  if(labels STREQUAL "unit" OR labels STREQUAL "comm")
    list(APPEND quick_labels quick)
  endif()
  foreach(kind waiting slow)
    set(file ${PROJECT_SOURCE_DIR}/tests/${kind}_tests.txt)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(STRINGS ${file} ${kind} REGEX "^[^#]")
    list(JOIN ${kind} "|" ${kind})
  endforeach()
  # Not among the properties of gtest_discover_tests(): a list there loses its brackets, and with it what follows.
  set(file ${CMAKE_CURRENT_BINARY_DIR}/${list}_schedule.cmake)
  file(CONFIGURE OUTPUT ${file} @ONLY CONTENT [=[
foreach(test IN LISTS @list@)
  if(test MATCHES "^(@slow@)")
    set_tests_properties("${test}" PROPERTIES LABELS "@labels@")
  else()
    set_tests_properties("${test}" PROPERTIES LABELS "@quick_labels@")
  endif()
  if(test MATCHES "^(@waiting@)")
    set_tests_properties("${test}" PROPERTIES PROCESSORS @TANDEM_SLOTS_OF_WAITING@ COST 200)
  else()
    set_tests_properties("${test}" PROPERTIES RESOURCE_LOCK "@lock@")
  endif()
endforeach()
]=])
  set_property(DIRECTORY APPEND PROPERTY TEST_INCLUDE_FILES ${file})
endfunction()

function(tandem_add_cpu_class_tests name)
  cmake_parse_arguments(ARG "EMULATED" "TIMEOUT;FILTER;EMULATED_FILTER" "CLASSES;LABELS" ${ARGN})
  find_package(Python3 COMPONENTS Interpreter QUIET)
  if(NOT TARGET ${name} OR NOT Python3_FOUND OR CMAKE_CROSSCOMPILING)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 600)
  endif()
  tandem_scale_timeout(ARG_TIMEOUT)
  if(NOT ARG_CLASSES)
    set(ARG_CLASSES reference avx2 avx512 avx512bf16)
    if(ARG_EMULATED)
      list(APPEND ARG_CLASSES avx512vnni amx)
    endif()
  endif()
  set(emulated)
  if(ARG_EMULATED)
    set(emulated --emulated=${ARG_EMULATED_FILTER})
  endif()
  if(NOT ARG_FILTER)
    set(ARG_FILTER *)
  endif()
  foreach(class ${ARG_CLASSES})
    add_test(NAME ${name}_as_${class}
      COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/run_as_cpu_class.py ${emulated} ${class} $<TARGET_FILE:${name}> --gtest_brief=1 --gtest_filter=${ARG_FILTER})
    set_tests_properties(${name}_as_${class} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT} SKIP_RETURN_CODE 77 PROCESSORS ${TANDEM_SLOTS} COST 90)
  endforeach()
endfunction()
