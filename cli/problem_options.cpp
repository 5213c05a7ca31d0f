#include "cli/problem_options.hpp"

#include <algorithm>
#include <utility>

#include "bench/io/tensor.hpp"
#include "bench/text/numbers.hpp"
#include "problem/operands.hpp"
#include "problem/problem.hpp"
#include "problem/status.hpp"
#include "problem/transposed.hpp"

namespace flashcore::cli {
namespace {

using Shape = std::vector<int64_t>;

bool is_main(std::string_view name) { return name == "q" || name == "k" || name == "v"; }
bool is_pair(std::string_view name) { return name == "bias" || name == "mask"; }
bool is_scale(std::string_view name) { return name.ends_with("_scale"); }

// Inputs of one number per head: files store them in many types, the problem has f32.
bool is_small_float(std::string_view name) {
  return is_scale(name) || name == "sinks" || name == "alibi_slopes";
}

// Describes a tensor of a file. Leading dimensions that were left out count as 1 if this is
// unambiguous: for biases, masks, and scales of one number.
Result<TensorDesc> describe_source(const std::string& name, const bench::TensorSource& source,
                                   const std::string& layout, std::optional<DType> dtype) {
  Shape shape = source.info.shape;
  if (shape.size() > TensorDesc::kMaxRank) {
    return invalid("{}: shape is {}, wanted at most 4 dimensions", name, io::to_text(shape));
  }
  const size_t wanted_rank = is_pair(name) ? 4
                             : is_scale(name) && io::element_count(shape) == uint64_t{1}
                                 ? (name == "q_scale" || name == "o_scale" ? 2 : 3)
                                 : shape.size();
  if (shape.size() < wanted_rank) shape.insert(shape.begin(), wanted_rank - shape.size(), 1);
  DType element = source.dtype;
  if (is_main(name) && dtype) {
    if (!is_float(element)) {
      return invalid("{}: dtype is {}, wanted a floating-point type", name, to_string(element));
    }
    element = *dtype;
  }
  if (is_main(name) && element == DType::f64) {
    return invalid("{}: dtype is f64, wanted f32, f16, bf16 or fp8 (--dtype f32 converts it)",
                   name);
  }
  if (is_small_float(name) && is_float(element)) element = DType::f32;
  if (is_main(name) && shape.size() == 4 && layout == "bshd") {
    return in_layout(element, {shape[0], shape[2], shape[1], shape[3]}, layout);
  }
  return bench::contiguous(element, shape);
}

// Returns "--alibi-slopes" for alibi_slopes.
std::string option_name(std::string name) {
  std::replace(name.begin(), name.end(), '_', '-');
  return "--" + name;
}

// The shapes of inputs that --with adds to a problem of --shape.
std::optional<TensorDesc> generated_input(std::string_view name, const Shape& q, const Shape& k) {
  const auto f32 = [](const Shape& shape) { return bench::contiguous(DType::f32, shape); };
  if (name == "bias") return f32({1, q[1], q[2], k[2]});
  if (name == "mask") return bench::contiguous(DType::boolean, Shape{1, 1, q[2], k[2]});
  if (name == "sinks" || name == "alibi_slopes") return f32({q[1]});
  if (name == "q_scale" || name == "o_scale") return f32({1, q[1]});
  if (name == "k_scale" || name == "v_scale") return f32({1, k[1], 1});
  if (name == "tree_mask") {
    return bench::contiguous(DType::i32, Shape{q[0], q[2], (q[2] + 31) / 32});
  }
  if (name == "seqlens_q" || name == "seqlens_kv")
    return bench::contiguous(DType::i32, Shape{q[0]});
  return std::nullopt;
}

// Describes outputs in the layout of the inputs. Their shapes follow from q and v of any rank:
// make_plan refuses invalid ones.
void describe_outputs(Problem& problem, const std::string& layout, std::optional<DType> o_dtype,
                      bool lse, const std::map<std::string, bool>& largest) {
  // fp8 has too few bits for a result.
  const DType dtype =
      o_dtype.value_or(size_of(problem.q.dtype) == 1 ? DType::f16 : problem.q.dtype);
  Shape shape(problem.q.shape.begin(), problem.q.shape.begin() + problem.q.rank);
  Shape rows = shape;
  if (!shape.empty()) {
    rows.pop_back();
    const int32_t width = problem.v_transposed ? 2 : 1;  // counted from the last dimension
    if (problem.v.rank >= width) {
      shape.back() = problem.v.shape[static_cast<size_t>(problem.v.rank - width)];
    }
  }
  problem.o = shape.size() == 4 ? in_layout(dtype, shape, layout) : bench::contiguous(dtype, shape);
  if (lse) problem.lse = bench::contiguous(DType::f32, rows);
  if (shape.size() < 2) return;
  const bool packed = problem.cu_seqlens_q && problem.cu_seqlens_q->rank == 1;
  const int64_t batch = packed ? problem.cu_seqlens_q->shape[0] - 1 : shape[0];
  for (const LargestValue& one : kLargestOutputs) {
    if (!largest.at(one.flag)) continue;
    problem.*one.tensor = bench::contiguous(DType::f32, Shape{batch, shape[1]});
  }
}

}  // namespace

TensorDesc in_layout(DType dtype, const Shape& bhsd, const std::string& layout) {
  if (layout == "bhsd") return bench::contiguous(dtype, bhsd);
  TensorDesc desc = bench::contiguous(dtype, Shape{bhsd[0], bhsd[2], bhsd[1], bhsd[3]});
  std::swap(desc.shape[1], desc.shape[2]);
  std::swap(desc.stride[1], desc.stride[2]);
  return desc;
}

bool is_float(DType dtype) {
  return dtype != DType::boolean && dtype != DType::i32 && dtype != DType::i64;
}

void ProblemOptions::declare(OptionSet& options) {
  options.group("Tensors from files: a name in the file, or a .npy file");
  options.positional("file", file_, ".safetensors file with q, k, v and any other input by name");
  for (const auto& line : kOperands<Problem>) {
    if (line.meaning.empty()) continue;
    options.text(option_name(std::string(line.name)), chosen_[std::string(line.name)],
                 fmt::format("{}, {}", line.meaning, line.written_shapes()), "NAME|NPY");
  }
  options.text("--without", without_, "Inputs of the file to leave out: bias,mask", "NAMES");
  options.choice("--layout", layout_, {"bhsd", "bshd"},
                 "Order of dimensions of q, k, v and O in memory");

  options.group("Tensors of a given shape, drawn from N(0, 1)");
  options.text("--shape", shape_, "Batch, heads, rows and head dimension of q", "B,H,S,D");
  options.number("--heads-kv", heads_kv_, "Heads of k and v, a divisor of q's (default: as q)");
  options.number("--seqlen-kv", seqlen_kv_, "Rows of k and v (default: as q)");
  options.number("--head-dim-v", head_dim_v_, "Head dimension of v (default: as q)");
  options.flag("--v-in-k", v_in_k_, "V is the first --head-dim-v columns of K, in the same memory");
  options.number("--paged", page_size_, "K and v in pages of that many rows, in a random order");
  options.text("--with", with_, "More inputs: bias,mask,sinks,alibi_slopes,seqlens_kv,o_scale,...",
               "NAMES");
  options.number("--seed", seed_, "Seed of the random inputs");

  options.group("Types");
  options.text("--dtype", dtype_,
               "f32, f16, bf16, f8e4m3 or f8e5m2 (default f16); inputs from files are converted",
               "DTYPE");
  options.text("--kv-dtype", kv_dtype_, "Type of k and v: as q, or fp8", "DTYPE");
  options.text("--v-dtype", v_dtype_, "Type of v: as k, or the other type of fp8", "DTYPE");
  options.flag("--v-transposed", v_transposed_,
               "V is [B, Hkv, Dv, columns]: fp8, as the operator transpose_v makes it");
  options.text("--out-dtype", o_dtype_, "Type of O (default: as q; f16 for fp8)", "DTYPE");
  options.flag("--no-lse", no_lse_, "Do not compute the log-sum-exp of the rows");
  for (const LargestValue& one : kLargestOutputs) {
    if (largest_.contains(one.flag)) continue;
    std::vector<std::string_view> names;
    for (const LargestValue& other : kLargestOutputs) {
      if (std::string_view(other.flag) == one.flag) names.emplace_back(other.name);
    }
    options.flag(one.flag, largest_[one.flag],
                 fmt::format("Also {} of each sequence and head", fmt::join(names, " and ")));
  }

  options.group("What is computed");
  options.flag("--causal", causal_, "Query i sees no key after i + offset");
  options.choice("--alignment", alignment_, {"top_left", "bottom_right", "given"},
                 "The offset: 0, Skv - Sq, or --causal-offset");
  options.number("--causal-offset", causal_offset_, "The offset, with --alignment given");
  options.text("--window", window_, "Keys seen left and right of the diagonal; -1 for no limit",
               "L,R");
  options.number("--softcap", softcap_, "s = softcap * tanh(s / softcap); 0 is off");
  options.number("--scale", scale_, "Softmax scale (default 1 / sqrt(head dimension))");
  options.number("--dropout", dropout_, "Probability that a pair is dropped");
  options.number("--dropout-seed", dropout_seed_, "Seed of the dropout mask");
  options.number("--dropout-offset", dropout_offset_, "Offset of the dropout mask");
  options.number("--kv-scale-block", kv_scale_block_,
                 "Keys per block of k_scale and v_scale; 0: all");
  options.number("--max-seqlen-q", max_seqlen_q_,
                 "Packed: most queries of a sequence; 0: not known");
  options.number("--max-seqlen-kv", max_seqlen_kv_,
                 "Packed: most keys of a sequence; 0: not known; also in pages");
}

bool ProblemOptions::has_files() const {
  return !file_.empty() || std::any_of(chosen_.begin(), chosen_.end(),
                                       [](const auto& choice) { return !choice.second.empty(); });
}

bool ProblemOptions::draws_d_lse() const {
  const std::vector<std::string> names = bench::split(with_, ',');
  return std::find(names.begin(), names.end(), "d_lse") != names.end();
}

bool ProblemOptions::given() const { return !shape_.empty() || has_files(); }

Result<std::optional<DType>> ProblemOptions::dtype_option(const std::string& option,
                                                          const std::string& name) const {
  if (name.empty()) return std::optional<DType>();
  const std::optional<DType> dtype = dtype_from_string(name);
  if (dtype && is_float(*dtype)) return dtype;
  return invalid("{}: is '{}', wanted f32, f16, bf16, f8e4m3 or f8e5m2", option, name);
}

Result<ProblemOptions::Types> ProblemOptions::types() const {
  const Result<std::optional<DType>> q = dtype_option("--dtype", dtype_);
  if (!q.ok()) return q.status();
  const Result<std::optional<DType>> kv = dtype_option("--kv-dtype", kv_dtype_);
  if (!kv.ok()) return kv.status();
  const Result<std::optional<DType>> v = dtype_option("--v-dtype", v_dtype_);
  if (!v.ok()) return v.status();
  Types types{.q = *q, .k = *kv ? *kv : *q, .v = *v};
  if (!types.v) types.v = types.k;
  return types;
}

// Puts keys and values in pages, if requested: as many pages as they fill.
Status ProblemOptions::apply_paging(Problem& problem) const {
  if (!page_size_) return {};
  const int64_t batch = problem.k.shape[0], heads = problem.k.shape[1], rows = problem.k.shape[2];
  if (*page_size_ < 1) return invalid("--paged: is {}, wanted 1 or more", *page_size_);
  const int64_t pages = rows / *page_size_ + (rows % *page_size_ != 0 ? 1 : 0);
  for (TensorDesc* const tensor : {&problem.k, &problem.v}) {
    *tensor =
        in_layout(tensor->dtype, {batch * pages, heads, *page_size_, tensor->shape[3]}, layout_);
  }
  problem.page_table = bench::contiguous(DType::i32, Shape{batch, pages});
  problem.max_seqlen_kv = rows;  // the capacity of all pages
  if (!problem.seqlens_kv) problem.seqlens_kv = bench::contiguous(DType::i32, Shape{batch});
  return {};
}

Result<Problem> ProblemOptions::from_shape(bool with_d_lse) const {
  const Result<Shape> parsed =
      bench::parse_numbers("--shape", shape_, 4, "B,H,S,D such as 2,8,512,64");
  if (!parsed.ok()) return parsed.status();
  const Result<Types> types = this->types();
  if (!types.ok()) return types.status();
  const Shape& q = *parsed;
  const Shape k = {q[0], heads_kv_.value_or(q[1]), seqlen_kv_.value_or(q[2]), q[3]};
  const Shape v = {k[0], k[1], k[2], head_dim_v_.value_or(q[3])};
  Problem problem;
  problem.q = in_layout(types->q.value_or(DType::f16), q, layout_);
  problem.k = in_layout(types->k.value_or(problem.q.dtype), k, layout_);
  problem.v = in_layout(types->v.value_or(problem.k.dtype), v, layout_);
  if (v_transposed_) {
    problem.v = bench::contiguous(problem.v.dtype, Shape{v[0], v[1], v[3], columns_of_keys(v[2])});
  }
  for (const std::string& name : bench::split(with_, ',')) {
    if (with_d_lse && name == "d_lse") continue;  // not part of the problem itself
    const std::optional<TensorDesc> desc = generated_input(name, q, k);
    if (!desc || !bench::set_tensor(problem, name, *desc)) {
      return invalid(
          "--with: is '{}', wanted bias, mask, sinks, alibi_slopes, q_scale, k_scale, v_scale, "
          "o_scale, seqlens_q, seqlens_kv or tree_mask{}",
          name, with_d_lse ? ", or d_lse" : "");
    }
  }
  FLASHCORE_RETURN_IF_ERROR(apply_paging(problem));
  if (v_in_k_) {
    if (v[3] > k[3])
      return invalid("--v-in-k: is given with {} columns of v, wanted at most {}", v[3], k[3]);
    problem.v = bench::first_columns(problem.k, v[3]);
  }
  return problem;
}

Result<Problem> ProblemOptions::from_sources(const bench::TensorSources& sources) const {
  const Result<Types> types = this->types();
  if (!types.ok()) return types.status();
  Problem problem;
  for (const auto& [name, source] : sources) {
    const Result<TensorDesc> desc = describe_source(name, source, layout_,
                                                    name == "k"   ? types->k
                                                    : name == "v" ? types->v
                                                                  : types->q);
    if (!desc.ok()) return desc.status();
    bench::set_tensor(problem, name, *desc);
  }
  return problem;
}

Status ProblemOptions::apply_options(Problem& problem) const {
  const Result<std::optional<DType>> o_dtype = dtype_option("--out-dtype", o_dtype_);
  if (!o_dtype.ok()) return o_dtype.status();
  problem.v_transposed = v_transposed_;
  describe_outputs(problem, layout_, *o_dtype, !no_lse_, largest_);
  problem.causal = causal_;
  problem.alignment = alignment_ == "top_left"       ? Alignment::top_left
                      : alignment_ == "bottom_right" ? Alignment::bottom_right
                                                     : Alignment::given;
  problem.causal_offset = causal_offset_;
  if (!window_.empty()) {
    const Result<Shape> window =
        bench::parse_numbers("--window", window_, 2, "L,R such as 128,0 (-1 for no limit)");
    if (!window.ok()) return window.status();
    problem.window_left = (*window)[0];
    problem.window_right = (*window)[1];
  }
  problem.softcap = static_cast<float>(softcap_);
  if (scale_) problem.softmax_scale = static_cast<float>(*scale_);
  problem.dropout_p = static_cast<float>(dropout_);
  problem.kv_scale_block = kv_scale_block_;
  problem.max_seqlen_q = max_seqlen_q_;
  if (max_seqlen_kv_ != 0) problem.max_seqlen_kv = max_seqlen_kv_;
  return {};
}

Result<bench::ProblemInputs> ProblemOptions::read(
    const std::map<std::string, std::string>& gradients) const {
  if (!given()) {
    return invalid(
        "tensors: there are none, wanted a .safetensors file, --q, --k and --v, or "
        "--shape B,H,S,D");
  }
  const bool files = has_files() || std::any_of(gradients.begin(), gradients.end(),
                                                [](auto& one) { return !one.second.empty(); });
  if (files && !shape_.empty()) {
    return invalid("--shape: is '{}' together with files, wanted either a shape or files", shape_);
  }
  bench::ProblemInputs inputs;
  if (files) {
    const Result<std::optional<DType>> raw = dtype_option("--dtype", dtype_);
    if (!raw.ok()) return raw.status();
    bench::InputFiles wanted{
        .file = file_, .chosen = chosen_, .without = bench::split(without_, ','), .raw = *raw};
    for (const auto& [name, value] : gradients) {
      wanted.chosen[name] = value;
      wanted.more.push_back(name);
    }
    Result<bench::TensorSources> sources = bench::find_inputs(wanted);
    if (!sources.ok()) return sources.status();
    inputs.sources = std::move(*sources);
  }
  Result<Problem> problem = files ? from_sources(inputs.sources) : from_shape(!gradients.empty());
  if (!problem.ok()) return problem.status();
  FLASHCORE_RETURN_IF_ERROR(apply_options(*problem));
  inputs.problem = *problem;
  inputs.seed = seed_;
  inputs.dropout_seed = dropout_seed_;
  inputs.dropout_offset = dropout_offset_;
  return inputs;
}

}  // namespace flashcore::cli
