// A file that appears whole or not at all: written next to its path, then renamed.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::io {

class AtomicFile {
 public:
  // Refuses a path that is not a regular file.
  static Result<AtomicFile> create(const std::string& path);

  AtomicFile(AtomicFile&& other) noexcept;
  AtomicFile& operator=(AtomicFile&& other) noexcept;
  ~AtomicFile();  // without commit(): leaves no trace

  Status write(std::span<const std::byte> bytes);
  Status commit();

 private:
  AtomicFile(std::string path, std::string temporary, int descriptor);
  void discard();
  Status failed(const char* what);

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;
};

Status write_text(const std::string& path, const std::string& text);

// Returns whether both paths name one existing file, also through links.
bool same_file(const std::string& a, const std::string& b);

}  // namespace flashcore::io
