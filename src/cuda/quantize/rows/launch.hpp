// The launches of quantisation on a GPU. A launch without blocks does nothing.
#pragma once

#include <cuda_runtime_api.h>

#include "cuda/quantize/rows/params.hpp"

namespace flashcore::cuda::quantize::rows {

inline constexpr int kThreads = 256;
inline constexpr int kMostGroups = 256;  // that a block finds the scales of
inline constexpr int kChunk = 8;         // elements that a thread handles at once

// The means of all heads.
cudaError_t find_means(const Params& params, cudaStream_t stream);
// Groups that lie in a tile: largest magnitudes, scales and the conversion in one launch.
cudaError_t quantize_tiles(const Params& params, cudaStream_t stream);
// Other groups, in this order: scales become 0, then the largest magnitudes; rows are converted; scales
// become themselves.
cudaError_t clear_scales(const Params& params, cudaStream_t stream);
cudaError_t find_largest(const Params& params, cudaStream_t stream);
cudaError_t convert_rows(const Params& params, cudaStream_t stream);
cudaError_t finish_scales(const Params& params, cudaStream_t stream);

}  // namespace flashcore::cuda::quantize::rows
