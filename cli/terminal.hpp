// Text for people on this process's standard streams.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace flashcore::cli {

enum class Tone { plain, strong, faint, good, bad };

// The text in the tone's colour, for a terminal.
std::string colored(std::string_view text, Tone tone);

// Bytes of a hostile file can be in an error: control characters become '?'.
std::string printable(std::string_view text);

bool is_terminal(std::FILE* stream);

// All text goes out by this function. What a stream cannot take is no exception: flush_stdout tells
// of stdout's, and nobody of stderr's, where it would be said.
void write_text(std::FILE* stream, std::string_view text);

// Flushes stdout; the errno of the first text that it did not take, or 0.
int flush_stdout();

}  // namespace flashcore::cli
