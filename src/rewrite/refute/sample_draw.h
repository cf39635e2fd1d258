// Random choices for the sampler, all from one seed.
#pragma once

#include <algorithm>
#include <vector>

#include "base/random.h"
#include "graph/tensor.h"

namespace tessera {

class Draw {
  public:
    Draw(uint64_t seed, std::string_view stream) : random_(seed, stream) {}
    Draw(uint64_t seed, uint64_t stream) : random_(seed, stream) {}

    uint64_t bits() { return random_.bits(next_++); }
    int64_t below(int64_t n) { return n <= 0 ? 0 : static_cast<int64_t>(bits() % static_cast<uint64_t>(n)); }
    int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }  // both inclusive
    bool chance(int percent) { return below(100) < percent; }
    double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
    template <typename T>
    const T& pick(const std::vector<T>& from) {
        return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
    }
    template <typename T>
    T pick(std::initializer_list<T> from) {
        return from.begin()[below(static_cast<int64_t>(from.size()))];
    }
    template <typename T>
    void shuffle(std::vector<T>& list) {
        for (size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[static_cast<size_t>(below(int64_t(i)))]);
    }
    std::vector<int64_t> permutation(int64_t n) {
        std::vector<int64_t> p;
        for (int64_t i = 0; i < n; ++i) p.push_back(i);
        shuffle(p);
        return p;
    }
    // `count` of 0 to n - 1, ascending.
    std::vector<int64_t> subset(int64_t n, int64_t count) {
        std::vector<int64_t> p = permutation(n);
        p.resize(static_cast<size_t>(std::min(n, count)));
        std::sort(p.begin(), p.end());
        return p;
    }

    // The choices from here on can be made again.
    uint64_t position() const { return next_; }
    void go_to(uint64_t position) { next_ = position; }

  private:
    RandomStream random_;
    uint64_t next_ = 0;
};

}  // namespace tessera
