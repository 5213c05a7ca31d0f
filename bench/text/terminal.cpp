#include "bench/text/terminal.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>

namespace flashcore::bench {
namespace {

int stdout_error = 0;  // errno of the first text that stdout rejected

}  // namespace

std::string colored(std::string_view text, Tone tone) {
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

std::string printable(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7F) c = '?';
  }
  return out;
}

bool is_terminal(std::FILE* stream) { return ::isatty(::fileno(stream)) == 1; }

void write_text(std::FILE* stream, std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stream) == text.size();
  if (!written && stream == stdout && stdout_error == 0) stdout_error = errno;
}

int flush_stdout() {
  if (std::fflush(stdout) != 0 && stdout_error == 0) stdout_error = errno;
  if (std::ferror(stdout) != 0 && stdout_error == 0) {
    stdout_error = EIO;  // detected by another flush
  }
  return stdout_error;
}

}  // namespace flashcore::bench
