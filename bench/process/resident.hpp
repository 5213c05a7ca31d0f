// How much memory of this process is resident, as /proc has it.
#pragma once

#include <cstdint>

namespace flashcore::bench {

// The memory that is resident at once at most, beyond what there is at this object's beginning.
class ResidentPeak {
 public:
  ResidentPeak();
  int64_t growth() const;  // bytes; 0 where /proc does not say

 private:
  int64_t before_;
};

}  // namespace flashcore::bench
