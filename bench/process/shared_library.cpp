#include "bench/process/shared_library.hpp"

#include <dlfcn.h>

#include <filesystem>
#include <utility>
#include <vector>

#include "bench/process/child_process.hpp"
#include "problem/environment.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

namespace fs = std::filesystem;

// Adds the folders of NVIDIA's packages in the python3 on PATH.
void append_python_folders(std::vector<fs::path>& folders) {
  for (const fs::path bin : path_folders()) {
    std::error_code error;
    if (!fs::exists(bin / "python3", error)) continue;
    for (const auto& version : fs::directory_iterator(bin.parent_path() / "lib", error)) {
      for (const char* const packages : {"site-packages", "dist-packages"}) {
        for (const auto& package :
             fs::directory_iterator(version.path() / packages / "nvidia", error)) {
          folders.push_back(package.path() / "lib");
        }
      }
    }
    return;
  }
}

std::vector<std::string> candidates(const char* variable, std::span<const char* const> names) {
  std::vector<std::string> paths;
  if (const char* const chosen = read_variable(variable); chosen != nullptr) {
    paths.emplace_back(chosen);
  }
  for (const char* const name : names) paths.emplace_back(name);
  std::vector<fs::path> folders = {"/usr/local/cuda/lib64"};
  append_python_folders(folders);
  for (const fs::path& folder : folders) {
    for (const char* const name : names) {
      std::error_code error;
      if (fs::exists(folder / name, error)) paths.push_back((folder / name).string());
    }
  }
  return paths;
}

}  // namespace

Result<SharedLibrary> SharedLibrary::open(const char* variable,
                                          std::span<const char* const> names) {
  for (const std::string& path : candidates(variable, names)) {
    if (void* const handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
      return SharedLibrary(handle, path);
    }
  }
  return unsupported("{} was not found; {} can name it", names.front(), variable);
}

void* SharedLibrary::address(const char* symbol) const { return ::dlsym(handle_, symbol); }

}  // namespace flashcore::bench
