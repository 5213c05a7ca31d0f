# cmake -DROOT=... -DOUTPUT=... -P write_commit.cmake: writes the commit that is being built and the
# day, as a header. The file is touched only if its contents change, so a build of the same day and
# commit recompiles nothing. The day is SOURCE_DATE_EPOCH's if it is set: CMake does this.
execute_process(COMMAND git -C ${ROOT} rev-parse HEAD
  OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
execute_process(COMMAND git -C ${ROOT} status --porcelain --untracked-files=no
  OUTPUT_VARIABLE changes ERROR_QUIET)
string(TIMESTAMP day "%Y-%m-%d" UTC)
set(modified false)
if(changes)
  set(modified true)
endif()
set(text "// Written by the build.\n#pragma once\n
namespace flashcore::build {\n
inline constexpr char kCommit[] = \"${commit}\";
inline constexpr bool kModified = ${modified};
inline constexpr char kDay[] = \"${day}\";
\n}  // namespace flashcore::build\n")
set(before "")
if(EXISTS ${OUTPUT})
  file(READ ${OUTPUT} before)
endif()
if(NOT before STREQUAL text)
  file(WRITE ${OUTPUT} "${text}")
endif()
