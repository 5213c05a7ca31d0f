#include "bench/io/atomic_file.hpp"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "problem/status.hpp"

namespace flashcore::io {
namespace {

namespace fs = std::filesystem;

mode_t default_mode() {
  const mode_t mask = ::umask(0);
  ::umask(mask);
  return static_cast<mode_t>(0666 & ~mask);
}

}  // namespace

Result<AtomicFile> AtomicFile::create(const std::string& path) {
  std::error_code error;
  fs::path target = path;
  const fs::file_status status = fs::status(target, error);
  if (fs::exists(status)) {
    if (!fs::is_regular_file(status)) {
      return invalid("{}: is not a regular file, wanted a file to write", path);
    }
    // A symbolic link stays; its target is replaced.
    if (const fs::path real = fs::canonical(target, error); !error) target = real;
  }
  std::string temporary = target.string() + ".XXXXXX";
  const int descriptor = ::mkstemp(temporary.data());
  if (descriptor < 0) {
    return invalid("{}: cannot be written ({}), wanted a path in a writable directory", path,
                   std::strerror(errno));
  }
  return AtomicFile(target.string(), std::move(temporary), descriptor);
}

AtomicFile::AtomicFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

AtomicFile::AtomicFile(AtomicFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::move(other.temporary_)),
      descriptor_(std::exchange(other.descriptor_, -1)) {}

AtomicFile& AtomicFile::operator=(AtomicFile&& other) noexcept {
  if (this != &other) {
    discard();
    path_ = std::move(other.path_);
    temporary_ = std::move(other.temporary_);
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

AtomicFile::~AtomicFile() { discard(); }

void AtomicFile::discard() {
  if (descriptor_ < 0) return;
  ::close(std::exchange(descriptor_, -1));
  ::unlink(temporary_.c_str());
}

Status AtomicFile::failed(const char* what) {
  const int error = errno;
  discard();
  return invalid("{}: cannot be {} ({}); nothing was written", path_, what, std::strerror(error));
}

Status AtomicFile::write(std::span<const std::byte> bytes) {
  constexpr size_t kLargestWrite = size_t{1} << 30;
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor_, bytes.data(), std::min(bytes.size(), kLargestWrite));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return failed("written");
    bytes = bytes.subspan(static_cast<size_t>(count));
  }
  return {};
}

Status AtomicFile::commit() {
  if (::fchmod(descriptor_, default_mode()) != 0 || ::fsync(descriptor_) != 0) {
    return failed("written");
  }
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return failed("put in place");
  ::close(std::exchange(descriptor_, -1));
  return {};
}

Status write_text(const std::string& path, const std::string& text) {
  Result<AtomicFile> file = AtomicFile::create(path);
  if (!file.ok()) return file.status();
  FLASHCORE_RETURN_IF_ERROR(file->write(std::as_bytes(std::span(text))));
  return file->commit();
}

bool same_file(const std::string& a, const std::string& b) {
  std::error_code error;
  return fs::equivalent(a, b, error) && !error;
}

}  // namespace flashcore::io
