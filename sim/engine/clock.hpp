// Vector clocks: what of every agent's past is known to have happened.
//
// An agent is a thread, or something that completes by itself: a transaction barrier, the products
// of a warp, the bulk stores of a thread. An event is an agent and one of its epochs; it happened
// before whatever a clock describes when the clock's component for that agent has reached it.
//
// Clocks are shared and never change, since all threads that leave a barrier know the same.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace flashcore::sim {

using Agent = uint16_t;
using Epoch = uint32_t;  // the first is 1

class Clock {
 public:
  Clock() = default;  // knows nothing
  explicit Clock(std::vector<Epoch> epochs)
      : epochs_(std::make_shared<const std::vector<Epoch>>(std::move(epochs))) {}

  Epoch of(Agent agent) const {
    return epochs_ != nullptr && agent < epochs_->size() ? (*epochs_)[agent] : 0;
  }
  bool is_same(const Clock& other) const { return epochs_ == other.epochs_; }
  bool knows_nothing() const { return epochs_ == nullptr; }

 private:
  friend class ClockJoin;
  std::shared_ptr<const std::vector<Epoch>> epochs_;
};

// The least clock that knows all that was added.
class ClockJoin {
 public:
  void add(const Clock& clock);
  void add(Agent agent, Epoch epoch);
  Clock clock();  // and begins anew

 private:
  std::vector<Epoch> epochs_;
  Clock last_;  // many threads know the same; its components are in epochs_
};

// Both, by way of a small cache: 32 lanes of a warp mostly join the same two clocks.
Clock join(const Clock& a, const Clock& b);
Clock join(const Clock& a, Agent agent, Epoch epoch);

}  // namespace flashcore::sim
