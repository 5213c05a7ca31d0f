// Output of one invocation: tables for people, JSON for scripts, errors in one sentence.
//
// Without --json, text for people goes to stdout. With it, stdout carries one JSON document, and
// text for people goes to stderr. Colour only on a terminal, and never with NO_COLOR set.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "bench/text/table.hpp"
#include "bench/text/terminal.hpp"
#include "cli/exit_code.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

// Call this first. A closed standard stream must not become the next opened file: it is replaced by
// one that refuses every read and write.
void hold_standard_streams();

class Session {
 public:
  bool json = false;

  void line(std::string_view text = {});  // a line for people
  void table(const bench::Table& table);
  std::string styled(std::string_view text, bench::Tone tone) const;

  void document(const nlohmann::ordered_json& value);  // to stdout with --json, otherwise ignored
  ExitCode fail(const Status& status);                 // prints it, returns the exit code
  // Call this last. Output that could not be written turns a success into a failure.
  ExitCode finish(ExitCode code);

 private:
  std::FILE* human() const { return json ? stderr : stdout; }
};

}  // namespace flashcore::cli
