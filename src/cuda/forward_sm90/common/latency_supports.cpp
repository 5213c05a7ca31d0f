#include "cuda/forward_sm90/common/latency_supports.hpp"

#include "cuda/attention/latency/key_tiles.hpp"
#include "cuda/host/latency_supports.hpp"
#include "problem/entries.hpp"

namespace flashcore::cuda::forward_sm90 {
namespace {

using attention::latency::Cover;

constexpr int32_t kHopper = 90;  // code for 9.0a runs nowhere else

// Whether every query sees every key and tiles of keys are full: no tile needs a mask.
bool is_whole(const ForwardProblem& p) {
  return !entries_vary(p) && p.band.unlimited() && p.seqlen_kv > 0 &&
         p.seqlen_kv % attention::latency::kBlockKv == 0;
}

}  // namespace

Supports latency_supports() {
  return host::latency_supports({kHopper, kHopper}, Feature::unmapped_o);
}

Cover cover_of(const ForwardProblem& p) {
  if (is_whole(p)) return Cover::whole;
  ForwardProblem open = p;
  open.band.right = Band::kUnlimited;
  return is_whole(open) ? Cover::band : Cover::any;
}

std::string_view cover_name(Cover cover) {
  return cover == Cover::any ? "any" : cover == Cover::band ? "band" : "whole";
}

}  // namespace flashcore::cuda::forward_sm90
