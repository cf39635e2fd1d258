// What the kernels of attention have in common: the kernel they write, what becomes of the product of queries and keys,
// and what is stored of a result.
#pragma once

#include <optional>

#include "kernel/analyse/attention.h"
#include "kernel/analyse/attention_score.h"

namespace tessera {

class AttentionBuilder {
  protected:
    AttentionBuilder(const Compute& compute, const Attention& attention);

    // Shared memory of a block, under a name that no other buffer has.
    int add(std::string name, DType dtype, const std::vector<int64_t>& sizes);

    const Expr& keys() const { return a_.key.extent; }
    const ReduceAxis& column_axis() const { return a_.product->axes[a_.column]; }

    // Splits the score function; `factor` is what the operands of the product were to be multiplied with.
    void find_score(double factor);
    // Whether the score is the product times a positive constant, apart from conditions.
    bool plain_score() const { return score_.value == a_.score_load; }
    // How scores of two neighbouring keys are made: with one load for both, where a mask or bias is loaded.
    LoopKind pairs_of_scores() const;
    // The score at an index, without score_.scale. The condition `skipped` is assumed to hold.
    Expr score(const Bindings& at, const Expr& product, std::optional<size_t> skipped = {}) const;

    struct Finished {
        int buffer = -1;
        std::vector<Expr> to;
        Expr value;
    };
    // What is stored of a result, given the sum of its weights. A row without weights is zero.
    Finished finished(Bindings at, Expr value, const Expr& weights) const;

    static Expr real(double value) { return constant(value, DType::f32); }

    const Compute& compute_;
    const Attention& a_;
    Kernel kernel_;
    AttentionScore score_;
};

}  // namespace tessera
