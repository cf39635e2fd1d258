// What the passes without rules share: every graph of a model, one value in the place of another, and the record of it.
#pragma once

#include "rewrite/pass.h"

namespace tessera {

// The graph and all that are nested in it, outer ones before inner ones, in the order of their nodes.
std::vector<Graph*> all_graphs(Graph& graph);

// The shape of a tensor of known rank; null for anything else.
const Shape* shape_of(const Value* v);

// All elements of a tensor that is not large, where they are one number.
std::optional<Expr> splat(const Tensor& t);

bool has_nested(const Node& node);
// The same inputs give the same outputs: also what its nested graphs do draws no random numbers.
bool repeatable(const Node& node);

// The op, attributes and inputs, those of a commutative op in either order; nodes that do the same hash to the same.
uint64_t hash_of(const Node& node);
bool do_the_same(const Node& a, const Node& b);

// Whether the node's inputs are what it can take, and its outputs' types what comes of them.
bool agrees(const Node& node);
// Whether all that uses the value agrees with it. What does not would fail at run time, if it is ever run: better known
// inputs must not make an error of it before.
bool users_agree(const Value& value);

// Uses of `from` go to `to`, which keeps what was declared of the type of `from`. With `rename`, `to` takes its name.
// False, and nothing is done, where a user does not agree.
bool put_in_place(Value& from, Value& to, bool rename);

// One rewrite on its way to the record, where one is kept: describes `gone` as it was, and `made` as it is when it is
// done.
class Rewriting {
  public:
    using Nodes = std::vector<const Node*>;
    using Replaced = std::vector<std::pair<std::string, std::string>>;
    Rewriting(PassContext& context, std::string rule, const Nodes& gone);
    void done(const Nodes& made = {}, Replaced replaced = {});

  private:
    PassContext& context_;
    Application application_;
};

// Erases what nobody uses, inside out.
void sweep(Graph& graph);

}  // namespace tessera
