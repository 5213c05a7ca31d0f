// One invocation's way to talk: tables for people, JSON for scripts, errors in one sentence.
//
// Without --json, people's text goes to stdout. With it, stdout carries one JSON document and
// people's text goes to stderr. Colour only on a terminal, and never with NO_COLOR set.
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

// To be called first. A standard stream that is closed must not become the next file that is
// opened: in its place comes one that refuses every read and write.
void hold_standard_streams();

class Session {
 public:
  bool json = false;

  void line(std::string_view text = {});  // a line for people
  void table(const bench::Table& table);
  std::string styled(std::string_view text, bench::Tone tone) const;

  void document(const nlohmann::ordered_json& value);  // to stdout with --json, else nothing
  ExitCode fail(const Status& status);                 // prints it and says what to exit with
  // To be called last. Output that could not be written makes a success a failure.
  ExitCode finish(ExitCode code);

 private:
  std::FILE* human() const { return json ? stderr : stdout; }
};

}  // namespace flashcore::cli
