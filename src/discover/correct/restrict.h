// A side of a claim computed on a strip of its output alone: the strip is pulled back through the bodies of the ops to
// the inputs, which are sliced. A window at the border of an image keeps the padding that it still meets.
#pragma once

#include "discover/correct/differences.h"
#include "graph/graph.h"

namespace tessera {

// Writes sizes and terms of one claim in the language of rules.
class TermWriter {
  public:
    explicit TermWriter(const Claim& claim);

    std::string size(const Expr& e) const;  // over dim(x, 0), ...
    std::string slice(const std::string& of, int64_t axis, const Expr& begin, const Expr& end) const;
    std::string whole(const Value& value) const;  // the term that a value of build_sides' graph is

    // The term of a value on a strip. E0303 if an op cannot be restricted to it, or if these sizes do not determine
    // whether a window reaches the border.
    Result<std::string> restricted(const Value& value, const Strip& strip) const;

  private:
    const Claim& claim_;
    Bindings dims_;

    std::string call(const Node& node, const std::vector<std::string>& inputs, const AttrMap& attrs) const;
    Result<std::string> through_window(const Node& node, const Strip& strip) const;
    Result<std::string> through_body(const Node& node, const Strip& strip) const;
};

}  // namespace tessera
