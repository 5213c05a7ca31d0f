// A tuning table on disk: several tuners may write one at once, and none loses what another wrote.
#pragma once

#include <functional>
#include <string>

#include "flashcore/flashcore.hpp"
#include "tuning/tuned_table.hpp"

namespace flashcore::bench {

// Reads the table of a device, empty where the file is not there yet, lets `change` change it, and
// replaces the file, whole or not at all. Whoever else does so waits (a lock on PATH.lock). A file
// that is something else, or a table of another device, is an error and stays as it is.
Status update_table(const std::string& path, const tuning::TunedDevice& device,
                    const std::function<void(tuning::TunedTable&)>& change);

// The same table, to be read: empty where the file is not there.
Result<tuning::TunedTable> open_table(const std::string& path, const tuning::TunedDevice& device);

}  // namespace flashcore::bench
