#include "engine/products.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "engine/access.hpp"
#include "engine/collective.hpp"
#include "engine/machine_parts.hpp"
#include "engine/product_arithmetic.hpp"
#include "engine/product_operands.hpp"
#include "engine/scheduler.hpp"

namespace flashcore::sim {
namespace {

constexpr int kWarpgroupRows = 64;

struct Operands {  // a lane's arguments
  float* d;
  const uint32_t* a;
  uint64_t a_descriptor, b_descriptor;
};

// .aligned: all threads of a warpgroup execute the same
// instruction. The first warp to arrive determines which one.
void take_step(Warp& warp, const Meeting& meeting) {
  constexpr size_t kWarps = WarpgroupSteps::kWarps;
  const auto index = static_cast<size_t>(warp.index);
  WarpgroupSteps& group = warp.block->warpgroups[index / kWarps];
  const uint64_t number = group.taken[index % kWarps]++;
  if (number == group.first + group.steps.size()) {
    group.steps.push_back({meeting.what, meeting.site});
  }
  const WarpgroupSteps::Step& step = group.steps[number - group.first];
  if (step.site != meeting.site || std::strcmp(step.what, meeting.what) != 0) {
    report(Fault::divergent_warpgroup, meeting.site, step.site,
           format("warp %d is at %s, another warp of its warpgroup was at %s,", warp.index,
                  meeting.what, step.what));
    give_up();
  }
  const uint64_t slowest = *std::min_element(group.taken.begin(), group.taken.end());
  for (; group.first < slowest; ++group.first) group.steps.pop_front();
}

Operands& operands_of(const Meeting& meeting, size_t lane) {
  return *static_cast<Operands*>(meeting.arguments[lane]);
}

float poison_value() { return std::bit_cast<float>(0x01010101u * policy().poison); }

// Calls each(the lane's register, its value among the warp's rows).
template <class Each>
void for_each_value(Accumulators& d, Each each) {
  for (size_t lane = 0; lane < kLanes; ++lane) {
    for (size_t i = 0; i < static_cast<size_t>(d.columns) / 2; ++i) {
      const size_t row = lane / 4 + 8 * (i >> 1 & 1), column = i / 4 * 8 + 2 * (lane % 4) + (i & 1);
      each(lane, d.lane[lane][i], d.value[row * static_cast<size_t>(d.columns) + column]);
    }
  }
}

// While products add to them, the registers hold poison: a thread's write there is detected.
void check_untouched(Warp& warp, Accumulators& d) {
  const auto poison = std::bit_cast<uint32_t>(poison_value());
  int touched = -1;
  for_each_value(d, [&](size_t lane, float& here, float&) {
    if (std::bit_cast<uint32_t>(here) != poison) touched = static_cast<int>(lane);
  });
  if (touched < 0) return;
  report(Fault::register_in_flight, Site(), d.site,
         format("lane %d of warp %d wrote an accumulator before the wait for the product at",
                touched, warp.index));
}

std::shared_ptr<Accumulators> accumulators_of(Warp& warp, const Meeting& meeting, int columns,
                                              Site site) {
  const float* const first = operands_of(meeting, 0).d;
  for (const auto& d : warp.products.accumulators) {
    const bool overlap = d->lane[0] < first + columns / 2 && first < d->lane[0] + d->columns / 2;
    if (!overlap) continue;
    if (d->lane[0] != first || d->columns != columns) {
      report(Fault::register_in_flight, site, d->site,
             "accumulators overlap, in another shape, those of the product in flight at");
      give_up();
    }
    check_untouched(warp, *d);
    return d;
  }
  auto d = std::make_shared<Accumulators>();
  d->columns = columns;
  d->value.resize(static_cast<size_t>(kWarpRows * columns));
  for (size_t lane = 0; lane < kLanes; ++lane) d->lane[lane] = operands_of(meeting, lane).d;
  const float poison = poison_value();
  for_each_value(*d, [&](size_t, float& here, float& value) { value = here, here = poison; });
  warp.products.accumulators.push_back(d);
  return d;
}

// All lanes start the product: each must know of the writes of its operands.
void begin_reads(Warp& warp, const std::vector<uint32_t>& pieces, Site site) {
  std::array<const Thread*, kLanes> distinct{};
  size_t count = 0;
  for (int lane = 0; lane < kLanes; ++lane) {
    const Thread* const thread = &warp.lanes[lane];
    const bool known = std::any_of(distinct.begin(), distinct.begin() + count,
                                   [&](auto* other) { return other->seen.is_same(thread->seen); });
    if (!known) distinct[count++] = thread;
  }
  for (const uint32_t piece : pieces) {
    check_range(*warp.block, piece, kPieceBytes, kPieceBytes, "operand of wgmma", site);
    for (size_t i = 0; i < count; ++i) {
      begin_async_read(*const_cast<Thread*>(distinct[i]), *warp.block, piece, site);
    }
    // Counts as one read, although all lanes were checked.
    piece_at(*warp.block, piece).readers -= static_cast<uint32_t>(count - 1);
  }
}

void check_left_untouched(const Warp& warp, const Product& product) {
  if (product.a_in_shared) return;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    if (std::memcmp(product.a_lane[lane], product.a_bits[lane].data(), 16) == 0) continue;
    report(Fault::register_in_flight, Site(), product.site,
           format("lane %zu of warp %d wrote a register of A before the wait for the product at",
                  lane, warp.index));
  }
}

// A warp's products complete in order.
void compute_up_to(Warp& warp, const Product* last) {
  const auto run = [&](const std::vector<std::shared_ptr<Product>>& products) {
    for (const auto& product : products) {
      compute_product(warp, *product);
      if (product.get() == last) return true;
    }
    return false;
  };
  for (const auto& group : warp.products.committed) {
    if (run(group)) return;
  }
  run(warp.products.open);
}

// Finishes a product that has been waited for: its operands are free,
// and its result is in the registers if no other product adds to them.
void finish(Warp& warp, Product& product) {
  compute_product(warp, product);
  check_left_untouched(warp, product);
  Products& products = warp.products;
  for (const auto* pieces : {&product.a_pieces, &product.b_pieces}) {
    for (const uint32_t piece : *pieces) {
      end_async_read(*warp.block, piece, products.agent, products.complete, product.site);
    }
  }
  Accumulators& d = *product.d;
  if (--d.pending > 0) return;
  check_untouched(warp, d);
  for_each_value(d, [](size_t, float& here, float& value) { here = value; });
  std::erase(products.accumulators, product.d);
  if (!products.accumulators.empty()) return;
  for (int lane = 0; lane < kLanes; ++lane) warp.lanes[lane].used_by_products = {};
}

void finish_groups(Warp& warp, size_t pending_groups) {
  take_groups(warp.products.committed, pending_groups, [&](const auto& group) {
    ++warp.products.complete;
    for (const auto& product : group) finish(warp, *product);
  });
  for (int lane = 0; lane < kLanes; ++lane) {
    Thread& thread = warp.lanes[lane];
    thread.seen = join(thread.seen, warp.products.agent, warp.products.complete);
  }
}

void check_operands(const Product& product, const Meeting& meeting, const ProductOptions& options,
                    Site site) {
  const Operands& first = operands_of(meeting, 0);
  for (size_t lane = 1; lane < kLanes; ++lane) {
    const Operands& other = operands_of(meeting, lane);
    if (other.b_descriptor == first.b_descriptor && other.a_descriptor == first.a_descriptor) {
      continue;
    }
    report(Fault::descriptor_not_uniform, site, Site(),
           format("lane %zu has another one than lane 0", lane));
    break;
  }
  check_descriptor(first.b_descriptor, site);
  if (product.a_in_shared) check_descriptor(first.a_descriptor, site);
  if (options.columns % 8 != 0 || options.columns < 8 || options.columns > 256) give_up();
}

uint32_t* mark_of(const Thread& thread, const void* address) {
  const auto* const p = static_cast<const unsigned char*>(address);
  if (p < thread.stack_bottom || p >= thread.stack_bottom + Stacks::kBytes) return nullptr;
  return thread.marks + (p - thread.stack_bottom) / static_cast<std::ptrdiff_t>(sizeof(uint32_t));
}

// Checks that no register of the product has been used since the warp's last
// fence. Registers that another product adds to have not: they are in flight.
void check_fence(const Warp& warp, const Meeting& meeting, int columns, Site site) {
  const uint32_t fence = warp.products.fence;
  bool is_missing = fence == 0;
  const auto check = [&](const Thread& thread, const void* registers, int count) {
    const uint32_t* const marks = registers == nullptr ? nullptr : mark_of(thread, registers);
    for (int i = 0; marks != nullptr && i < count; ++i) {
      is_missing = is_missing || marks[i] >= fence;
    }
  };
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const Operands& operands = operands_of(meeting, lane);
    check(warp.lanes[lane], operands.d, columns / 2);
    check(warp.lanes[lane], operands.a, 4);
  }
  if (!is_missing) return;
  report(Fault::missing_wgmma_fence, site, Site(),
         format("warp %d has used a register of the product since its last one", warp.index));
}

void issue(Warp& warp, const Meeting& meeting, const ProductOptions& options, Site site) {
  Products& products = warp.products;
  if (products.agent == 0) products.agent = new_agent(*warp.block->cluster);
  const Operands& first = operands_of(meeting, 0);
  const auto product = std::make_shared<Product>();
  product->site = site, product->kind = static_cast<int>(options.type);
  product->overwrite = options.overwrite, product->b_is_mn_major = options.b_is_mn_major;
  product->a_is_mn_major = options.a_is_mn_major;
  product->a_in_shared = first.a == nullptr;
  check_operands(*product, meeting, options, site);
  check_fence(warp, meeting, options.columns, site);
  product->d = accumulators_of(warp, meeting, options.columns, site);
  product->d->site = site;
  ++product->d->pending;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    const Operands& operands = operands_of(meeting, lane);
    RegisterRange& used = warp.lanes[lane].used_by_products;
    used.add(operands.d, static_cast<size_t>(options.columns) / 2 * sizeof(float));
    if (operands.a != nullptr) used.add(operands.a, sizeof product->a_bits[lane]);
  }
  for (size_t lane = 0; lane < kLanes && !product->a_in_shared; ++lane) {
    product->a_lane[lane] = operands_of(meeting, lane).a;
    std::memcpy(product->a_bits[lane].data(), product->a_lane[lane], 16);
  }
  // There is no guarantee that a warp reads only its own rows of A.
  if (product->a_in_shared && options.a_is_mn_major) {
    mn_major_pieces(product->a_pieces, first.a_descriptor, kWarpgroupRows);
  } else if (product->a_in_shared) {
    k_major_pieces(product->a_pieces, first.a_descriptor, kWarpgroupRows);
  }
  if (options.b_is_mn_major) {
    mn_major_pieces(product->b_pieces, first.b_descriptor, options.columns);
  } else {
    k_major_pieces(product->b_pieces, first.b_descriptor, options.columns);
  }
  begin_reads(warp, product->a_pieces, site);
  begin_reads(warp, product->b_pieces, site);
  products.open.push_back(product);
  ++products.issued;
  // Late products run in the wait.
  if (policy().completion != Completion::late) {
    add_completion([&warp, product] { compute_up_to(warp, product.get()); });
  }
}

}  // namespace

void fence_products(Site site) {
  meet({"wgmma.fence", kAllLanes, true}, nullptr, site, [](Warp& warp, Meeting& meeting) {
    take_step(warp, meeting);
    warp.products.fence = ++fences;
  });
}

void issue_product(float* d, const uint32_t* a, uint64_t a_descriptor, uint64_t b_descriptor,
                   const ProductOptions& options, Site site) {
  Operands operands{d, a, a_descriptor, b_descriptor};
  meet({"wgmma", kAllLanes, true}, &operands, site, [&](Warp& warp, Meeting& meeting) {
    take_step(warp, meeting);
    issue(warp, meeting, options, site);
  });
}

void commit_products(Site site) {
  meet({"wgmma.commit_group", kAllLanes, true}, nullptr, site, [](Warp& warp, Meeting& meeting) {
    take_step(warp, meeting);
    warp.products.committed.push_back(std::move(warp.products.open));
    warp.products.open.clear();
  });
}

void wait_products(size_t pending_groups, Site site) {
  meet({"wgmma.wait_group", kAllLanes, true}, nullptr, site, [&](Warp& warp, Meeting& meeting) {
    take_step(warp, meeting);
    if (warp.products.committed.size() <= pending_groups) return true;
    if (policy().completion == Completion::early) {
      finish_groups(warp, pending_groups);
      return true;
    }
    // The others continue as long as they can.
    add_completion([&warp, pending_groups] {
      finish_groups(warp, pending_groups);
      wake(warp);
    });
    for (int lane = 0; lane < kLanes; ++lane) {
      warp.lanes[lane].waiting = {"wgmma.wait_group", site};
    }
    return false;
  });
}

void on_access_to_products(Thread& thread, const void* address, uint32_t bytes, Site site) {
  const Products& products = thread.warp->products;
  const auto lane = static_cast<size_t>(thread.lane);
  const auto at = reinterpret_cast<uintptr_t>(address);
  const auto overlaps = [&](const void* first, size_t size) {
    const auto begin = reinterpret_cast<uintptr_t>(first);
    return at < begin + size && begin < at + bytes;
  };
  for (const auto& d : products.accumulators) {
    if (!overlaps(d->lane[lane], static_cast<size_t>(d->columns) / 2 * sizeof(float))) continue;
    report(Fault::register_in_flight, site, d->site,
           name_of(thread) + " uses an accumulator before the wait for the product at");
  }
  const auto check_left = [&](const std::vector<std::shared_ptr<Product>>& group) {
    for (const auto& product : group) {
      if (product->a_in_shared || !overlaps(product->a_lane[lane], sizeof product->a_bits[lane])) {
        continue;
      }
      report(Fault::register_in_flight, site, product->site,
             name_of(thread) + " uses a register of A before the wait for the product at");
    }
  };
  check_left(products.open);
  for (const auto& group : products.committed) check_left(group);
}

}  // namespace flashcore::sim
