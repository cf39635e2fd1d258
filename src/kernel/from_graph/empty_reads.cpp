// Elements that a body may read of axes that turn out to be empty, such as the last one, of which a clamp makes -1.
#include <algorithm>

#include "kernel/from_graph/definitions.h"
#include "kernel/ir/regions.h"

namespace tessera {
namespace {

class EmptyReads {
  public:
    EmptyReads(const Node& node, const Expr& body) : node_(node), body_(body) {}

    bool any(const Expr& e, const std::vector<Expr>& around) const {
        if (!e.node().reads) return false;
        if (e.is(ExprKind::Load) && may_be_empty(e, around)) return true;
        std::vector<Expr> extents = around;
        for (const ReduceAxis& axis : e.node().axes) extents.push_back(axis.extent);
        return std::any_of(e.args().begin(), e.args().end(), [&](const Expr& a) { return any(a, extents); });
    }

  private:
    // `around`: the extents of all loops around the load.
    bool may_be_empty(const Expr& load, const std::vector<Expr>& around) const {
        const Shape& shape = node_.inputs()[size_t(load.node().slot)]->type().tensor().shape;
        if (elements(around) == elements(shape.dims())) return false;
        for (size_t d = 0; d < load.args().size(); ++d) {
            const Expr& extent = shape[int64_t(d)];
            if (always(le(1, extent), {}) || ends_loops(extent, around)) continue;
            if (!chooses_inside(body_, load, d, extent)) return true;
        }
        return false;
    }

    static Expr elements(const std::vector<Expr>& extents) {
        Expr count = 1;
        for (const Expr& e : extents) count = count * e;
        return count;
    }

    // Whether there is a loop without iterations where `extent` is 0.
    static bool ends_loops(const Expr& extent, const std::vector<Expr>& around) {
        if (extent.is(ExprKind::Mul))
            return std::all_of(extent.args().begin(), extent.args().end(), [&](const Expr& factor) {
                return factor.as_int().value_or(0) != 0 || ends_loops(factor, around);
            });
        return std::any_of(around.begin(), around.end(), [&](const Expr& e) {
            return e == extent || (extent.is(ExprKind::Var) && substitute(e, {{extent.node().name, 0}}).is_int(0));
        });
    }

    const Node& node_;
    const Expr body_;
};

}  // namespace

bool may_read_of_nothing(const Node& node, const Expr& body, const std::vector<Expr>& shape) {
    return EmptyReads(node, body).any(body, shape);
}

}  // namespace tessera
