// The score function of attention, split into the condition for -inf and the value elsewhere.
#pragma once

#include "expr/expr.h"

namespace tessera {

struct AttentionScore {
    std::vector<Expr> conditions;  // all of which hold where the score is not -inf
    Expr value;                    // in f32
    double scale = 1;              // the score is value * scale, above 0
};
AttentionScore split_score(const Expr& score);

// c, where a condition says that key <= query + c, and c mentions neither of them and loads nothing.
std::optional<Expr> causal_offset(const Expr& condition, const Expr& query, const Expr& key);

}  // namespace tessera
