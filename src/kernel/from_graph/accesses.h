// How definitions read one another, seen through views: tensors that only place elements elsewhere (transpose, slice,
// reshape, expand) and are never kept.
#pragma once

#include "kernel/from_graph/choose_layouts.h"
#include "kernel/from_graph/definitions.h"

namespace tessera {

struct Reading {
    int source;            // a definition that is no view
    std::vector<Expr> at;  // over the reader's variables
};

class Accesses {
  public:
    // `kept`: by definition, whether it must be materialized for readers other than kernels. `blocks`: for a GPU.
    Accesses(const Definitions& all, const Layouts& layouts, std::vector<bool> live, std::vector<bool> kept,
             bool blocks = false);

    const Definition& def(int n) const { return all_.list[size_t(n)]; }
    const std::vector<int>& order(int n) const { return layouts_.order[size_t(n)]; }
    bool live(int n) const { return live_[size_t(n)]; }
    bool kept(int n) const { return kept_[size_t(n)]; }
    bool is_view(int n) const { return view_[size_t(n)]; }
    const Expr& body(int n) const { return bodies_[size_t(n)]; }  // with views put in
    const std::vector<Reading>& reads(int n) const { return reads_[size_t(n)]; }
    const std::vector<int>& readers(int n) const { return readers_[size_t(n)]; }  // live, no views, each once
    int count() const { return int(all_.list.size()); }
    std::string name(int n) const;  // for people
    // Where the element at these indices lies in memory, in elements from the first.
    Expr place(int n, const std::vector<Expr>& at) const;

  private:
    // Whether neighbours of a reshaped tensor lie apart, since its source lies in another order than its axes'.
    bool scatters(int n) const;

    const Definitions& all_;
    const Layouts& layouts_;
    std::vector<bool> live_, kept_, view_;
    std::vector<Expr> bodies_;
    std::vector<std::vector<Reading>> reads_;
    std::vector<std::vector<int>> readers_;
};

// Whether a reader over `shape` that reads a source of shape `of` at `at` reads each element once, its own: indices are
// different variables, up to dimensions of one element.
bool same_elements(const std::vector<Expr>& shape, const std::vector<Expr>& of, const std::vector<Expr>& at);

// The same up to a reshape: each index is made of digits, which are the reader's variables or parts of them.
bool same_elements_by_digits(const std::vector<Expr>& shape, const std::vector<Expr>& of, const std::vector<Expr>& at);

bool depends_on_any(const Expr& e, const std::vector<ReduceAxis>& axes);

// A sum of products of two operands, one of which alone has the axis that is innermost in memory.
bool is_contraction(const Accesses& acc, int n);
// A reduction along what is contiguous in memory.
bool is_row_reduction(const Accesses& acc, int n);

// Sizes and work, for costs: symbols are taken for some size that is usual.
double size_of(const Expr& e);
double elements_of(const std::vector<Expr>& shape);
double bytes_of(const Definition& d);
// Whether an index is more than sums, products, quotients and remainders of a definition's indices: elements that are
// neighbours need not come from neighbours.
bool chooses_place(const Expr& index);
// Does it take quotients or remainders?
bool divides_place(const Expr& index);
// Whether it is a quotient whose step is not its divisor: an index of a resize to fewer elements.
bool scales_place(const Expr& index);
double operations(const Expr& body);  // of one element, costly functions by what they cost; sums of indices are free

}  // namespace tessera
