#include "bench/run/tiled_tensors.hpp"

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <utility>

#include "bench/cases/cases.hpp"
#include "bench/tensors/random.hpp"
#include "bench/tensors/tensor_set.hpp"
#include "problem/status.hpp"

namespace flashcore::bench {
namespace {

constexpr std::byte kPoison{0xFF};

size_t bytes_of(const TensorDesc& desc) { return static_cast<size_t>(element_bytes(desc)); }

}  // namespace

Status TiledTensors::add_memory(const std::string& name, const TensorDesc& desc) {
  const Result<void*> data = memory_->allocate(bytes_of(desc));
  if (!data.ok()) return data.status();
  data_[name] = static_cast<std::byte*>(*data);
  return {};
}

Status TiledTensors::add_input(const std::string& name, const TensorDesc& desc,
                               const TiledInputs& inputs) {
  if (desc.dtype != inputs.dtype()) {
    HostTensor piece(TensorDesc::contiguous(desc.dtype, {TiledInputs::kPieceElements}));
    Random random(name == "k" ? 5 : 6);
    piece.fill([&] { return random.normal(); });
    return add_tiled(name, desc, std::move(piece));
  }
  FLASHCORE_RETURN_IF_ERROR(add_memory(name, desc));
  pieces_[name] = inputs.piece(name);
  return memory_->copy_tiled(data_[name], bytes_of(desc), pieces_[name]);
}

Status TiledTensors::add_copy(const std::string& name, const TensorDesc& desc,
                              std::string_view of) {
  FLASHCORE_RETURN_IF_ERROR(add_memory(name, desc));
  pieces_[name] = pieces_.find(of)->second;
  return memory_->copy_tiled(data_[name], bytes_of(desc), pieces_[name]);
}

Status TiledTensors::add_tiled(const std::string& name, const TensorDesc& desc, HostTensor piece) {
  FLASHCORE_RETURN_IF_ERROR(add_memory(name, desc));
  const HostTensor& kept = own_pieces_.emplace(name, std::move(piece)).first->second;
  pieces_[name] = kept.bytes();
  return memory_->copy_tiled(data_[name], bytes_of(desc), pieces_[name]);
}

Status TiledTensors::add_features(const Problem& problem) {
  Random random = random_of_options();
  for (OptionPiece& one : pieces_of_options(problem, random)) {
    FLASHCORE_RETURN_IF_ERROR(add_tiled(one.name, one.desc, std::move(one.piece)));
  }
  const auto add = [&](const char* name, const std::optional<TensorDesc>& desc, auto&& draw) {
    if (!desc) return Status();
    const auto whole = static_cast<int64_t>(bytes_of(*desc) / size_of(desc->dtype));
    HostTensor piece(
        TensorDesc::contiguous(desc->dtype, {std::min(whole, TiledInputs::kPieceElements)}));
    piece.fill(draw);
    return add_tiled(name, *desc, std::move(piece));
  };
  FLASHCORE_RETURN_IF_ERROR(add("sinks", problem.sinks, [&] { return random.normal(); }));
  FLASHCORE_RETURN_IF_ERROR(add("o_scale", problem.o_scale, [] { return kOutputScale; }));
  for (const auto& [name, desc, rows, longest] :
       {std::tuple{"cu_seqlens_q", problem.cu_seqlens_q, problem.q, problem.max_seqlen_q},
        {"cu_seqlens_kv", problem.cu_seqlens_kv, problem.k, problem.max_seqlen_kv}}) {
    if (!desc) continue;
    const std::vector<int32_t> starts = packed_starts(rows.shape[0], desc->shape[0] - 1, longest);
    FLASHCORE_RETURN_IF_ERROR(add(
        name, desc, [next = starts.begin()]() mutable { return static_cast<double>(*next++); }));
  }
  if (problem.tree_mask) {
    const std::vector<int32_t> words = tree_words(problem.tree_mask->shape[1]);
    FLASHCORE_RETURN_IF_ERROR(add("tree_mask", problem.tree_mask, [next = words.begin()]() mutable {
      return static_cast<double>(*next++);
    }));
  }
  if (problem.page_table) {
    HostTensor table(*problem.page_table);
    fill_pages(random, problem, table);
    FLASHCORE_RETURN_IF_ERROR(add_tiled("page_table", *problem.page_table, std::move(table)));
  }
  return {};
}

Status TiledTensors::add_lengths(const Problem& problem, std::span<const int32_t> keys) {
  if (!problem.seqlens_kv) return {};
  HostTensor lengths(*problem.seqlens_kv);
  lengths.assign(keys);
  return add_tiled("seqlens_kv", *problem.seqlens_kv, std::move(lengths));
}

Status TiledTensors::add_output(const std::string& name, const TensorDesc& desc) {
  const size_t bytes = bytes_of(desc) + 2 * kGuardBytes;
  const Result<void*> data = memory_->allocate(bytes);
  if (!data.ok()) return data.status();
  data_[name] = static_cast<std::byte*>(*data) + kGuardBytes;
  outputs_[name] = {.dtype = desc.dtype, .copy = std::vector<std::byte>(bytes)};
  return {};
}

Result<void*> TiledTensors::workspace(size_t bytes) {
  return bytes > 0 ? memory_->allocate(bytes) : Result<void*>(static_cast<void*>(nullptr));
}

Status TiledTensors::poison() {
  for (auto& [name, output] : outputs_) {
    std::fill(output.copy.begin(), output.copy.end(), kPoison);
    FLASHCORE_RETURN_IF_ERROR(memory_->copy_in(data_[name] - kGuardBytes, output.copy));
  }
  return memory_->synchronise();
}

Status TiledTensors::fetch() {
  FLASHCORE_RETURN_IF_ERROR(memory_->synchronise());
  for (auto& [name, output] : outputs_) {
    FLASHCORE_RETURN_IF_ERROR(memory_->copy_out(output.copy, data_[name] - kGuardBytes));
  }
  return {};
}

ReadElements TiledTensors::inputs() const {
  return [this](std::string_view name, int64_t begin, HostTensor& to) {
    read_tiled(pieces_.find(name)->second, begin, to);
  };
}

ReadElements TiledTensors::outputs() const {
  return [this](std::string_view name, int64_t begin, HostTensor& to) {
    const auto at = begin * static_cast<int64_t>(size_of(to.desc().dtype));
    std::copy_n(elements_of(outputs_.find(name)->second).begin() + at, to.bytes().size(),
                to.bytes().begin());
  };
}

std::span<const std::byte> TiledTensors::elements_of(const Output& output) {
  return std::span<const std::byte>(output.copy)
      .subspan(kGuardBytes, output.copy.size() - 2 * kGuardBytes);
}

std::string TiledTensors::unwritten(std::string_view output) const {
  const Output& one = outputs_.find(output)->second;
  return has_nan(one.dtype, elements_of(one)) ? unwritten_sentence(output) : std::string();
}

std::string TiledTensors::overrun() const {
  for (const auto& [name, output] : outputs_) {
    const std::span<const std::byte> all = output.copy;
    for (const auto& guard : {all.first(kGuardBytes), all.last(kGuardBytes)}) {
      if (!std::all_of(guard.begin(), guard.end(), [](std::byte b) { return b == kPoison; })) {
        return overrun_sentence(name);
      }
    }
  }
  return {};
}

}  // namespace flashcore::bench
