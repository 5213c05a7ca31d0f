#include "bench/io/byte_source.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "problem/status.hpp"

namespace flashcore::io {
namespace {

Status out_of_range(const ByteSource& source, uint64_t offset, uint64_t bytes) {
  return invalid("{}: has {} bytes, wanted {} more from byte {}", source.name(), source.size(),
                 bytes, offset);
}

bool holds(const ByteSource& source, uint64_t offset, uint64_t bytes) {
  return offset <= source.size() && bytes <= source.size() - offset;
}

class FileSource final : public ByteSource {
 public:
  FileSource(std::string name, int descriptor, uint64_t size)
      : name_(std::move(name)), descriptor_(descriptor), size_(size) {}
  FileSource(const FileSource&) = delete;
  FileSource& operator=(const FileSource&) = delete;
  ~FileSource() override { ::close(descriptor_); }

  const std::string& name() const override { return name_; }
  uint64_t size() const override { return size_; }

  Status read(uint64_t offset, std::span<std::byte> out) const override {
    if (!holds(*this, offset, out.size())) return out_of_range(*this, offset, out.size());
    constexpr size_t kLargestRead = size_t{1} << 30;
    while (!out.empty()) {
      const ssize_t count = ::pread(descriptor_, out.data(), std::min(out.size(), kLargestRead),
                                    static_cast<off_t>(offset));
      if (count < 0 && errno == EINTR) continue;
      if (count < 0) return invalid("{}: cannot be read ({})", name_, std::strerror(errno));
      if (count == 0) {
        return invalid("{}: ended at byte {} while it was read, wanted {}", name_, offset, size_);
      }
      out = out.subspan(static_cast<size_t>(count));
      offset += static_cast<uint64_t>(count);
    }
    return {};
  }

 private:
  std::string name_;
  int descriptor_;
  uint64_t size_;
};

}  // namespace

MemorySource::MemorySource(std::string name, std::span<const std::byte> bytes)
    : name_(std::move(name)), bytes_(bytes) {}

Status MemorySource::read(uint64_t offset, std::span<std::byte> out) const {
  if (!holds(*this, offset, out.size())) return out_of_range(*this, offset, out.size());
  std::copy_n(bytes_.begin() + static_cast<std::ptrdiff_t>(offset), out.size(), out.begin());
  return {};
}

Result<std::unique_ptr<ByteSource>> open_file(const std::string& path) {
  // Without O_NONBLOCK, opening a pipe would wait for a writer.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) {
    return invalid("{}: cannot be opened ({}), wanted a readable file", path, std::strerror(errno));
  }
  struct stat info {};
  if (::fstat(descriptor, &info) != 0 || !S_ISREG(info.st_mode)) {
    ::close(descriptor);
    return invalid("{}: is not a regular file, wanted one", path);
  }
  return std::unique_ptr<ByteSource>(
      std::make_unique<FileSource>(path, descriptor, static_cast<uint64_t>(info.st_size)));
}

Result<std::string> read_text(const std::string& path, uint64_t largest) {
  const Result<std::unique_ptr<ByteSource>> file = open_file(path);
  if (!file.ok()) return file.status();
  const uint64_t size = (*file)->size();
  if (size > largest) return invalid("{}: has {} bytes, wanted at most {}", path, size, largest);
  std::string text(static_cast<size_t>(size), '\0');
  FLASHCORE_RETURN_IF_ERROR((*file)->read(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace flashcore::io
