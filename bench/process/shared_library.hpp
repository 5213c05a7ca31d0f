// Libraries that are loaded at run time if present, so that nothing links them.
#pragma once

#include <span>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::bench {

// Never unloaded: such libraries keep state until the process ends.
class SharedLibrary {
 public:
  // Opens the path in the environment's `variable`, otherwise the first of `names` that the loader
  // finds, or that is in the CUDA toolkit or among NVIDIA's packages of the python3 on PATH.
  static Result<SharedLibrary> open(const char* variable, std::span<const char* const> names);

  // Returns null if the library has no such symbol.
  template <class Function>
  Function find(const char* symbol) const {
    return reinterpret_cast<Function>(address(symbol));
  }

  const std::string& path() const { return path_; }

 private:
  SharedLibrary(void* handle, std::string path) : handle_(handle), path_(std::move(path)) {}
  void* address(const char* symbol) const;

  void* handle_;
  std::string path_;
};

}  // namespace flashcore::bench
