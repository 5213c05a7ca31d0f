# Dependencies, all from the distribution's packages and all header-only or static, so that the
# binaries run with only the C and C++ runtimes.
find_package(fmt REQUIRED)
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)  # nlohmann_json::nlohmann_json
if(NOT FLASHCORE_LIBRARY_ONLY)
  find_package(CLI11 REQUIRED)          # CLI11::CLI11
  # SQLite::SQLite3; without it the command has no `evolve`. Its archive, like everything linked here.
  set(SQLite3_LIBRARY_SUFFIXES ${CMAKE_FIND_LIBRARY_SUFFIXES})
  set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
  find_package(SQLite3 QUIET)
  set(CMAKE_FIND_LIBRARY_SUFFIXES ${SQLite3_LIBRARY_SUFFIXES})
endif()
find_path(FLASHCORE_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)

# fmt for our own files: compiled once, by src/fmt.cpp, if that file knows the version (9, as in
# Debian 12 and Ubuntu 24.04), and otherwise header-only. Targets that link it also link flashcore.
add_library(flashcore_fmt INTERFACE)
if(fmt_VERSION VERSION_GREATER_EQUAL 9 AND fmt_VERSION VERSION_LESS 10)
  set(FLASHCORE_FMT_SOURCES fmt.cpp)
  target_include_directories(flashcore_fmt SYSTEM INTERFACE
    $<TARGET_PROPERTY:fmt::fmt-header-only,INTERFACE_INCLUDE_DIRECTORIES>)
else()
  set(FLASHCORE_FMT_SOURCES "")
  target_link_libraries(flashcore_fmt INTERFACE fmt::fmt-header-only)
endif()
