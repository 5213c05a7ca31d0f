// The bytes that a reader parses: a regular file, or memory (tests and fuzzing). Reads are complete
// or refused. Nothing is mapped, so a file that shrinks meanwhile is an error and not a signal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "flashcore/flashcore.hpp"

namespace flashcore::io {

class ByteSource {
 public:
  virtual ~ByteSource() = default;
  virtual const std::string& name() const = 0;  // prefix of every error about it
  virtual uint64_t size() const = 0;
  virtual Status read(uint64_t offset, std::span<std::byte> out) const = 0;
};

// The bytes must outlive it.
class MemorySource final : public ByteSource {
 public:
  MemorySource(std::string name, std::span<const std::byte> bytes);
  const std::string& name() const override { return name_; }
  uint64_t size() const override { return bytes_.size(); }
  Status read(uint64_t offset, std::span<std::byte> out) const override;

 private:
  std::string name_;
  std::span<const std::byte> bytes_;
};

// Refuses anything but a regular file, such as a directory, a pipe or a device.
Result<std::unique_ptr<ByteSource>> open_file(const std::string& path);

// The whole file, of at most `largest` bytes.
Result<std::string> read_text(const std::string& path, uint64_t largest);

}  // namespace flashcore::io
