// Stands for src/cuda/ptx/wgmma_n80.cuh: wgmma.cuh has every width.
#pragma once

#include "cuda/ptx/wgmma.cuh"
