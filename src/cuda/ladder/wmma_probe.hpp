// Checks on the device that WMMA fragments have the layout
// of tile/wmma_fragment.hpp, which rungs 07 to 11 rely on.
#pragma once

#include <cuda_runtime_api.h>

namespace flashcore::cuda::ladder {

// Sets *matches for the current device. The first call on a device launches a kernel of one warp
// and waits for it, so it must not be made while a stream of this thread is being captured; later
// calls return the stored answer and touch no stream.
cudaError_t probe_wmma_layout(bool* matches);

}  // namespace flashcore::cuda::ladder
