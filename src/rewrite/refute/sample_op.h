// What the sampler knows of single ops: which inputs and attributes go together. A draft is one op of a pattern while
// its inputs and attributes are being found; proposals are likely to fit, and inference has the last word.
#pragma once

#include <map>
#include <set>

#include "graph/graph.h"
#include "rewrite/refute/sample_draw.h"

namespace tessera {

struct SampleOptions {
    DType floats = DType::f64;  // of tensors that may hold floats
    bool integers = false;      // integers, where the ops take them
    bool mixed = false;         // any type that an op takes, each time anew
    bool bytes = false;         // of those, also floats and integers of 8 bits and less that only store
    bool special = false;       // constants may hold NaN, infinities and zeros of either sign
    bool extremes = false;      // constants may hold the integers at which arithmetic wraps, or a double rounds
    bool literals = false;      // any number that a literal stands for, not only the one that it names
    bool tiny = false;          // sizes of 1 and 2 only, to find a small counterexample
};

// Draws the sizes of one instance from a small set, so that sizes are often equal.
class SizePool {
  public:
    SizePool(Draw& draw, const SampleOptions& options);
    int64_t size() { return draw_->pick(sizes_); }
    int64_t nonzero() { return std::max<int64_t>(size(), 1); }
    Sizes shape(int64_t rank);
    Sizes shape() { return shape(rank()); }
    int64_t rank(int64_t least = 0);
    // A shape that broadcasts with `other`: sizes of 1, leading dimensions left out, often the same.
    Sizes broadcastable(const Sizes& other, bool may_grow = true);
    Draw& draw() { return *draw_; }
    void offer(int64_t length);  // a shape may have it once, however long it is
    std::optional<int64_t> offered() const { return length_; }

  private:
    Draw* draw_;
    std::vector<int64_t> sizes_;
    std::optional<int64_t> length_ = {};
    bool tiny_;
};

struct Wanted {
    Sizes sizes = {};
};

struct Draft {
    const OpDef* op = nullptr;
    std::vector<Value*> inputs = {};  // null: not given, or not settled yet
    std::vector<bool> settled = {};   // decided, including decided to be absent
    AttrMap attrs = {};
    std::set<std::string> open = {};        // attributes still to be drawn
    std::map<std::string, int> slots = {};  // attributes that stand for a variable
    std::optional<Wanted> want = {};        // the result that the enclosing op requests
    std::optional<DType> want_dtype = {};
    size_t outputs = 1;
    std::map<std::string, std::vector<int64_t>> plan = {};  // inputs that were drawn together

    bool has(size_t i) const { return i < inputs.size() && inputs[i]; }
    std::optional<Sizes> sizes(size_t i) const;                     // of a settled input
    const Tensor* contents(size_t i) const;                         // of a constant
    std::optional<int64_t> integer(const std::string& name) const;  // given, or the default; nothing while undecided
    const std::vector<int64_t>* ints(const std::string& name) const;
    const std::string* string(const std::string& name) const;
    const ParamDef& param(size_t i) const { return op->inputs[std::min(i, op->inputs.size() - 1)]; }
};

struct Proposal {
    Sizes sizes = {};
    std::optional<Tensor> contents = {};  // of an input that makes sense with these only: a shape, indices
    bool positive = false;                // its elements must be above 0
};

// For input i, from what is settled. Nothing where what is settled leaves no choice that would fit.
std::optional<Proposal> propose_input(Draft& draft, size_t i, SizePool& pool);

// Whether most shapes do not fit the op's inputs, so that one is better proposed than met by chance.
bool needs_shape(const OpDef& op);

// A value for an attribute; nothing while it depends on inputs that are not there yet.
std::optional<Attr> propose_attr(const Draft& draft, const std::string& name, SizePool& pool);

// An allowed element type that satisfies a rule's constraint; nothing if there is none.
std::optional<DType> some_type(const DTypes& allowed, const std::string& constraint, const SampleOptions& options,
                               Draw& draw);

// Short, so that two are often alike.
std::string random_string(Draw& draw);

// Elements for a constant.
Tensor random_constant(DType dtype, const Sizes& sizes, bool positive, Draw& draw, const SampleOptions& options);

}  // namespace tessera
