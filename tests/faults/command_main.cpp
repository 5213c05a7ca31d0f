// The command, with a failure of the allocation FAIL_AT after main began. 100 is added to the exit code if none failed.
#include <cstdlib>

#include "tests/faults/failing_heap.hpp"

int flashcore_main(int argc, char** argv);  // cli/main.cpp's

int main(int argc, char** argv) {
  flashcore::tests::FailingHeap& heap = flashcore::tests::failing_heap;
  const char* const at = std::getenv("FAIL_AT");
  heap.fail_at(at == nullptr ? 0 : std::atoll(at));
  const int code = flashcore_main(argc, argv);
  return at == nullptr || heap.has_failed() ? code : 100 + code;
}
