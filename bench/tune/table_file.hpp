// A tuning table on disk: several tuners may write it at once, and no update is lost.
#pragma once

#include <functional>
#include <string>

#include "flashcore/flashcore.hpp"
#include "tuning/tuned_table.hpp"

namespace flashcore::bench {

// Reads a device's table, empty if the file is not there yet, applies `change`, and replaces the
// whole file or nothing. Concurrent updates wait (a lock on PATH.lock). A file with other contents,
// or another device's table, is an error and stays unchanged.
Status update_table(const std::string& path, const tuning::TunedDevice& device,
                    const std::function<void(tuning::TunedTable&)>& change);

// Opens the table for reading: empty if the file is not there.
Result<tuning::TunedTable> open_table(const std::string& path, const tuning::TunedDevice& device);

}  // namespace flashcore::bench
