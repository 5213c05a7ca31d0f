#include "cli/session.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cstring>
#include <nlohmann/json.hpp>

#include "problem/environment.hpp"
#include "problem/status.hpp"

namespace flashcore::cli {
namespace {

bool wants_color(std::FILE* stream) {
  const char* const no_color = read_variable("NO_COLOR");
  const char* const terminal = read_variable("TERM");
  if (no_color != nullptr && *no_color != '\0') return false;
  if (terminal != nullptr && std::string_view(terminal) == "dumb") return false;
  return bench::is_terminal(stream);
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

void hold_standard_streams() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(stream, F_GETFD) != -1) continue;
    (void)::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);  // the lowest free one
  }
}

void Session::line(std::string_view text) { bench::write_text(human(), std::string(text) + "\n"); }

void Session::table(const bench::Table& table) {
  for (const std::string& text : table.lines(wants_color(human()))) line(text);
}

std::string Session::styled(std::string_view text, bench::Tone tone) const {
  return wants_color(human()) ? bench::colored(text, tone) : std::string(text);
}

void Session::document(const nlohmann::ordered_json& value) {
  if (!json) return;
  bench::write_text(
      stdout, value.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n");
}

ExitCode Session::fail(const Status& status) {
  const std::string message = bench::printable(status.message());
  const std::string mark =
      wants_color(stderr) ? bench::colored("error:", bench::Tone::bad) : "error:";
  bench::write_text(stderr, fmt::format("flashcore: {} {}\n", mark, message));
  document({{"status", "error"}, {"code", to_string(status.code())}, {"message", message}});
  return exit_code(status.code());
}

ExitCode Session::finish(ExitCode code) {
  const int error = bench::flush_stdout();
  if (error == 0) return code;
  json = false;  // a document cannot be written either
  const ExitCode failed = fail(invalid("stdout: cannot be written ({})", std::strerror(error)));
  return code == ExitCode::ok ? failed : code;
}

}  // namespace flashcore::cli
