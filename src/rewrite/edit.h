// Helpers of the graph passes: iterating over all graphs of a model, replacing values, and recording rewrites.
#pragma once

#include "rewrite/pass.h"

namespace tessera {

// The graph and all graphs nested in it, outer ones first, in the order of their nodes.
std::vector<Graph*> all_graphs(Graph& graph);

// The shape of a tensor of known rank; null for anything else.
const Shape* shape_of(const Value* v);

// The value of all elements of a small tensor, if they are equal.
std::optional<Expr> splat(const Tensor& t);

bool has_nested(const Node& node);
// Whether equal inputs give equal outputs: neither the node nor its nested graphs draw random numbers.
bool repeatable(const Node& node);

// A hash of a sample of the elements.
uint64_t fingerprint(const Tensor& t);
// Hash and equality of op, attributes and inputs, up to the operand order of commutative ops.
uint64_t hash_of(const Node& node);
bool do_the_same(const Node& a, const Node& b);

// Whether inference accepts the node's inputs and gives its outputs' types.
bool agrees(const Node& node);
// Whether all users of the value agree with its type. A user that does not would fail at run time if it is executed;
// more precise types must not turn that into a compile-time error.
bool users_agree(const Value& value);

// Replaces the uses of `from` by `to`, which keeps the declared type of `from`. With `rename`, `to` takes its name.
// Returns false and leaves the graph unchanged if a user would not agree.
bool put_in_place(Value& from, Value& to, bool rename);

// Records a rewrite, if recording is enabled: describes the removed nodes when constructed, and the added nodes when
// done() is called.
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

// Erases unused nodes and constants, in nested graphs first.
void sweep(Graph& graph);

}  // namespace tessera
