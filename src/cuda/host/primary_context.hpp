// The context of a GPU that the runtime works in.
#pragma once

namespace flashcore::cuda::host {

// Whether a GPU, by its number in the runtime, has its context: since CUDA 12 cudaSetDevice makes
// it, which takes hundreds of MB of the GPU's memory. True where the driver cannot be asked.
bool has_primary_context(int device);

}  // namespace flashcore::cuda::host
