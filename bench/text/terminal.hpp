// Output for people on this process's standard streams.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace flashcore::bench {

enum class Tone { plain, strong, faint, good, bad };

// The text with escape codes for the tone's colour, for a terminal.
std::string colored(std::string_view text, Tone tone);

// An error may contain bytes of a hostile file: replaces control characters by '?'.
std::string printable(std::string_view text);

bool is_terminal(std::FILE* stream);

// All output goes through this function. A stream that rejects it raises no exception: flush_stdout
// reports a failed stdout. A failed stderr is ignored: nothing could report it.
void write_text(std::FILE* stream, std::string_view text);

// Flushes stdout; returns the errno of the first rejected text, or 0.
int flush_stdout();

}  // namespace flashcore::bench
