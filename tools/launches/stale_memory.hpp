// What memory holds that nobody wrote, made known: new memory and the stack below the caller are
// full of one byte, so that bytes which a program never writes can be told from those it does.
#pragma once

#include <cstddef>

namespace flashcore::fake {

// On the stack at once; in memory from operator new from now on.
void fill_with_stale(std::byte value);

}  // namespace flashcore::fake
