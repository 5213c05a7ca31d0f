// One invocation's way to talk: tables for people, JSON for scripts, errors in one sentence.
//
// Without --json, people's text goes to stdout. With it, stdout carries one JSON document and
// people's text goes to stderr. Colour only on a terminal, and never with NO_COLOR set.
#pragma once

#include <cstdio>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "cli/exit_code.hpp"
#include "flashcore/flashcore.hpp"

namespace flashcore::cli {

enum class Tone { plain, strong, faint, good, bad };

// Bytes of a hostile file can be in an error: control characters become '?'.
std::string printable(std::string_view text);

bool is_terminal(std::FILE* stream);

class Session {
 public:
  bool json = false;

  void line(std::string_view text = {});  // a line for people
  bool shows_progress() const { return is_terminal(stderr); }
  std::string styled(std::string_view text, Tone tone) const;

  void document(const nlohmann::ordered_json& value);  // to stdout with --json, else nothing
  ExitCode fail(const Status& status);                 // prints it and says what to exit with

 private:
  std::FILE* human() const { return json ? stderr : stdout; }
};

}  // namespace flashcore::cli
