// A stream that waits for no other, for the tests on a GPU.
#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

namespace flashcore {

class OwnStream {
 public:
  OwnStream() {
    EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess);
  }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { cudaStreamDestroy(stream_); }
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace flashcore
