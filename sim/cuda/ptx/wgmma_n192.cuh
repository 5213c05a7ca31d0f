// Stands for src/cuda/ptx/wgmma_n192.cuh: wgmma.cuh has every width.
#pragma once

#include "cuda/ptx/wgmma.cuh"
