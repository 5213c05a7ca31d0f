// The runtime's context of a GPU.
#pragma once

namespace flashcore::cuda::host {

// Returns whether a GPU, by its number in the runtime, has its context: since CUDA 12, cudaSetDevice
// creates it, which takes hundreds of MB of GPU memory. True if the driver cannot be asked.
bool has_primary_context(int device);

}  // namespace flashcore::cuda::host
