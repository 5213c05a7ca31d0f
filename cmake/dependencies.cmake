# Dependencies, all from the distribution's packages and all header-only or static, so that what is
# built runs where only the C and C++ runtimes are.
find_package(fmt REQUIRED)            # fmt::fmt-header-only
find_package(Threads REQUIRED)
if(NOT FLASHCORE_WHEEL)
  find_package(nlohmann_json REQUIRED)  # nlohmann_json::nlohmann_json
  find_package(CLI11 REQUIRED)          # CLI11::CLI11
endif()
find_path(FLASHCORE_HIGHWAY_INCLUDE hwy/highway.h REQUIRED)
