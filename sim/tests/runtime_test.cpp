// Requests that the simulated runtime refuses: more shared memory than the device's blocks may have.
#include <cuda_runtime.h>

#include "cuda/host/launch_kernel.hpp"
#include "cuda/ptx/shared_memory.cuh"
#include "tests/support.hpp"

namespace flashcore::sim {
namespace {

using namespace cuda;

void nothing() {}

struct Large {
  unsigned char bytes[16 * 1024];
};
void has_static_memory() { ptx::static_shared<Large>().bytes[threadIdx.x] = 1; }

class SharedLimit : public testing::TestWithParam<std::pair<int, unsigned>> {
 protected:
  void SetUp() override { ASSERT_EQ(cudaSetDevice(GetParam().first), cudaSuccess); }
  void TearDown() override {
    (void)cudaGetLastError();
    EXPECT_EQ(cudaSetDevice(0), cudaSuccess);
  }
  // Allowed on the first device, whose blocks have the most.
  static void allow(void (*kernel)(), int bytes) {
    int own = 0;
    ASSERT_EQ(cudaGetDevice(&own), cudaSuccess);
    ASSERT_EQ(cudaSetDevice(0), cudaSuccess);
    ASSERT_EQ(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
              cudaSuccess);
    ASSERT_EQ(cudaSetDevice(own), cudaSuccess);
  }
  static cudaError_t launch(void (*kernel)(), unsigned bytes) {
    const cudaError_t error = host::launch_kernel(
        kernel, {.grid = dim3(1), .threads = 32, .shared_bytes = bytes}, nullptr);
    return error == cudaSuccess ? cudaDeviceSynchronize() : error;
  }
};

TEST_P(SharedLimit, IsThatOfTheDevice) {
  const unsigned limit = GetParam().second;
  const int most = static_cast<int>(limit);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, most + 1),
            cudaErrorInvalidValue);
  EXPECT_EQ(cudaFuncSetAttribute(nothing, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
            cudaSuccess);
  EXPECT_EQ(launch(nothing, limit), cudaSuccess);
}

TEST_P(SharedLimit, IsAskedAtTheLaunch) {
  const unsigned limit = GetParam().second;
  allow(nothing, 227 * 1024);
  EXPECT_EQ(launch(nothing, limit + 1), cudaErrorInvalidValue);
  EXPECT_EQ(launch(nothing, limit), cudaSuccess);
  int blocks = -1;
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 32, limit + 1),
            cudaSuccess);
  EXPECT_EQ(blocks, 0);
  EXPECT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, nothing, 32, limit),
            cudaSuccess);
  EXPECT_EQ(blocks, 1);
}

TEST_P(SharedLimit, CountsStaticObjects) {
  const unsigned limit = GetParam().second;
  const auto rest = static_cast<unsigned>(limit - sizeof(Large));
  allow(has_static_memory, 227 * 1024);
  EXPECT_EQ(launch(has_static_memory, rest), cudaSuccess);
  EXPECT_EQ(launch(has_static_memory, rest + 1024), cudaErrorLaunchFailure);
}

INSTANTIATE_TEST_SUITE_P(Devices, SharedLimit,
                         testing::Values(std::pair(0, 227u * 1024), std::pair(1, 163u * 1024),
                                         std::pair(2, 99u * 1024)),
                         [](const auto& device) {
                           return "sim" + std::to_string(device.param.first);
                         });

}  // namespace
}  // namespace flashcore::sim
