// Text for people on this process's standard streams.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace flashcore::bench {

enum class Tone { plain, strong, faint, good, bad };

// The text in the tone's colour, for a terminal.
std::string colored(std::string_view text, Tone tone);

// Bytes of a hostile file can be in an error: control characters become '?'.
std::string printable(std::string_view text);

bool is_terminal(std::FILE* stream);

// All text goes out by this function. A stream that cannot take it raises no exception: flush_stdout
// tells of a failed stdout. A failed stderr is ignored: there is nowhere to say it.
void write_text(std::FILE* stream, std::string_view text);

// Flushes stdout; the errno of the first text that it did not take, or 0.
int flush_stdout();

}  // namespace flashcore::bench
