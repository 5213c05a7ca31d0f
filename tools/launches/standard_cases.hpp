// The launches of the standard cases, as tools/machine_code.py reads them: one line per launch,
//
//   launch sm_90 12_mma_sync 17 _ZN9flashcore... 64,1,1/256,1,1/98304 0a000000...
//
// (which case, kernel, geometry, arguments). Left out of the arguments: of addresses all but that
// they are there, and whatever differs between two plans of one problem, such as a plan's own name
// and what lies between members.
#pragma once

namespace flashcore {

// Prints them. The file has a line for each kernel: its name, then the bytes of each argument.
// Returns an exit code.
int record_standard_cases(const char* path);

}  // namespace flashcore
