#include "bench/io/inputs.hpp"

#include <algorithm>
#include <span>
#include <utility>

#include "bench/io/npy.hpp"
#include "bench/io/safetensors.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

using OpenFile = std::shared_ptr<io::ByteSource>;

Result<OpenFile> open(const std::string& path) {
  Result<std::unique_ptr<io::ByteSource>> file = io::open_file(path);
  if (!file.ok()) return file.status();
  return OpenFile(std::move(*file));
}

// The tensors of the one .safetensors file, by name.
struct Archive {
  OpenFile file;
  std::map<std::string, io::TensorInfo> tensors;

  std::string names() const {
    std::string out;
    for (const auto& [name, info] : tensors) out += (out.empty() ? "" : ", ") + name;
    return out.empty() ? "none" : out;
  }
};

Result<Archive> open_archive(const std::string& path) {
  Archive archive;
  if (path.empty()) return archive;
  if (path.ends_with(".npy")) {
    return invalid("{}: is one array, wanted a .safetensors file (or --q {} --k ... --v ...)", path,
                   path);
  }
  Result<OpenFile> file = open(path);
  if (!file.ok()) return file.status();
  archive.file = std::move(*file);
  Result<std::vector<io::TensorInfo>> tensors = io::list_safetensors(*archive.file);
  if (!tensors.ok()) return tensors.status();
  for (io::TensorInfo& info : *tensors) archive.tensors.emplace(info.name, std::move(info));
  return archive;
}

Result<TensorSource> source_of(OpenFile file, io::TensorInfo info, std::optional<DType> raw) {
  const Result<DType> dtype = io::loaded_dtype(*file, info, raw);
  if (!dtype.ok()) return dtype.status();
  return TensorSource{std::move(file), std::move(info), *dtype};
}

// The source that an option such as --q names: a .npy file, or a tensor of the archive.
Result<TensorSource> find_chosen(const std::string& name, const std::string& value,
                                 const Archive& archive, std::optional<DType> raw) {
  if (value.ends_with(".npy")) {
    Result<OpenFile> file = open(value);
    if (!file.ok()) return file.status();
    Result<io::TensorInfo> info = io::list_npy(**file);
    if (!info.ok()) return info.status();
    return source_of(std::move(*file), std::move(*info), raw);
  }
  if (archive.file == nullptr) {
    return invalid("{}: is given as '{}', wanted a .npy file, or a .safetensors file to find it in",
                   name, value);
  }
  const auto found = archive.tensors.find(value);
  if (found == archive.tensors.end()) {
    return invalid("{}: is given as '{}', wanted a tensor of {} ({})", name, value,
                   archive.file->name(), archive.names());
  }
  return source_of(archive.file, found->second, raw);
}

}  // namespace

const std::vector<std::string>& input_names() {
  static const std::vector<std::string> names = {"q",
                                                 "k",
                                                 "v",
                                                 "bias",
                                                 "mask",
                                                 "sinks",
                                                 "alibi_slopes",
                                                 "q_scale",
                                                 "k_scale",
                                                 "v_scale",
                                                 "cu_seqlens_q",
                                                 "cu_seqlens_kv",
                                                 "seqlens_q",
                                                 "seqlens_kv",
                                                 "causal_offsets",
                                                 "page_table",
                                                 "kv_indptr",
                                                 "kv_indices",
                                                 "kv_last_page_len",
                                                 "cache_leftpad",
                                                 "tree_mask",
                                                 "o_scale"};
  return names;
}

Result<TensorSources> find_inputs(const InputFiles& files) {
  const Result<Archive> archive = open_archive(files.file);
  if (!archive.ok()) return archive.status();
  std::vector<std::string> names = input_names();
  names.insert(names.end(), files.more.begin(), files.more.end());
  for (const std::string& name : files.without) {
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      return invalid("--without: is '{}', wanted names of inputs such as bias or mask", name);
    }
  }
  TensorSources sources;
  for (const std::string& name : names) {
    if (std::find(files.without.begin(), files.without.end(), name) != files.without.end())
      continue;
    const auto chosen = files.chosen.find(name);
    const bool is_chosen = chosen != files.chosen.end() && !chosen->second.empty();
    if (!is_chosen && !archive->tensors.contains(name)) continue;
    Result<TensorSource> source =
        find_chosen(name, is_chosen ? chosen->second : name, *archive, files.raw);
    if (!source.ok()) return source.status();
    sources.emplace(name, std::move(*source));
  }
  for (const char* const name : {"q", "k", "v"}) {
    if (sources.contains(name)) continue;
    if (archive->file == nullptr) return invalid("--{}: is missing, wanted a .npy file", name);
    return invalid("{}: has no tensor '{}' (it has {}), wanted one, or --{} NAME",
                   archive->file->name(), name, archive->names(), name);
  }
  return sources;
}

std::vector<std::string> paths_of(const TensorSources& sources) {
  std::vector<std::string> paths;
  for (const auto& [name, source] : sources) paths.push_back(source.file->name());
  return paths;
}

Result<HostTensor> read_tensor(const TensorSource& source, const TensorDesc& desc) {
  TensorDesc stored = desc;
  stored.dtype = source.dtype;
  HostTensor tensor(stored);
  FLASHCORE_RETURN_IF_ERROR(io::read_elements(*source.file, source.info, tensor.bytes()));
  if (desc.dtype == source.dtype) return tensor;
  HostTensor converted(desc);
  for (int64_t i = 0; i < tensor.elements(); ++i) converted.set(i, tensor.get(i));
  return converted;
}

}  // namespace flashcore::bench
