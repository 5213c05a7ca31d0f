// libFuzzer target: any bytes as a tuning table. An accepted table is within its limits, and
// survives writing and reading.
//   tuning_fuzz -max_total_time=60 CORPUS_DIRECTORY
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tuning/tuned_table.hpp"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace flashcore;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<tuning::TunedTable> table = tuning::parse_table(text);
  if (!table.ok()) {
    if (table.status().message().empty()) std::abort();
    return 0;
  }
  for (const auto& [key, entry] : table->entries) {
    if (key.size() > tuning::kMostText || entry.kernel.empty() || !(entry.us >= 0)) std::abort();
  }
  const Result<tuning::TunedTable> again = tuning::parse_table(tuning::table_text(*table));
  if (!again.ok() || again->entries != table->entries) std::abort();
  return 0;
}
