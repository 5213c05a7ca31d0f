#include "cli/session.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

namespace flashcore::cli {
namespace {

bool wants_color(std::FILE* stream) {
  const char* const no_color = std::getenv("NO_COLOR");
  const char* const terminal = std::getenv("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (terminal != nullptr && std::string_view(terminal) == "dumb") return false;
  return is_terminal(stream);
}

std::string color(std::string_view text, Tone tone) {
  switch (tone) {
    case Tone::strong:
      return fmt::format("\x1b[1m{}\x1b[0m", text);
    case Tone::faint:
      return fmt::format("\x1b[2m{}\x1b[0m", text);
    case Tone::good:
      return fmt::format("\x1b[32m{}\x1b[0m", text);
    case Tone::bad:
      return fmt::format("\x1b[31m{}\x1b[0m", text);
    case Tone::plain:
      break;
  }
  return std::string(text);
}

}  // namespace

ExitCode exit_code(StatusCode code) {
  switch (code) {
    case StatusCode::ok:
      return ExitCode::ok;
    case StatusCode::invalid_argument:
      return ExitCode::bad_input;
    case StatusCode::unsupported:
      return ExitCode::unsupported;
    case StatusCode::out_of_memory:
    case StatusCode::device_error:
      return ExitCode::device_error;
    case StatusCode::internal:
      break;
  }
  return ExitCode::internal;
}

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return out;
}

void Session::line(std::string_view text) { fmt::print(human(), "{}\n", text); }

std::string Session::styled(std::string_view text, Tone tone) const {
  return wants_color(human()) ? color(text, tone) : std::string(text);
}

void Session::document(const nlohmann::ordered_json& value) {
  if (!json) return;
  fmt::print(stdout, "{}\n",
             value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
}

ExitCode Session::fail(const Status& status) {
  const std::string message = printable(status.message());
  const std::string mark = wants_color(stderr) ? color("error:", Tone::bad) : "error:";
  fmt::print(stderr, "flashcore: {} {}\n", mark, message);
  document({{"status", "error"}, {"code", to_string(status.code())}, {"message", message}});
  return exit_code(status.code());
}

}  // namespace flashcore::cli
