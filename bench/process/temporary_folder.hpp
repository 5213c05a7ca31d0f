// A folder that is removed together with its contents.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <string>

#include "problem/status.hpp"

namespace flashcore::bench {

class TemporaryFolder {
 public:
  static Result<TemporaryFolder> make() {
    std::string path = (std::filesystem::temp_directory_path() / "flashcore.XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) return unsupported("there is no temporary folder");
    return TemporaryFolder(std::move(path));
  }
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::move(other.path_)) {
    other.path_.clear();
  }
  TemporaryFolder& operator=(TemporaryFolder&&) = delete;
  ~TemporaryFolder() {
    std::error_code ignored;
    if (!path_.empty()) std::filesystem::remove_all(path_, ignored);
  }

  const std::string& path() const { return path_; }

 private:
  explicit TemporaryFolder(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

}  // namespace flashcore::bench
