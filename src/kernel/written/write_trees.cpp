// Rows through decision trees: several walks at once, so that one waits for memory while others go on, and no branch
// depends on the data. Rows side by side in one tree; of the rows that are left, and where there are few, trees side by
// side.
#include "graph/ops/forest.h"
#include "kernel/written/write_kernel.h"

namespace tessera {
namespace {

constexpr int64_t kRowsAtOnce = 16, kStepsAtOnce = 4;
constexpr int64_t kFewestRows = 16, kMostRows = 256, kRowBlocks = 64;  // of a parallel round, and how many rounds

class TreeWalk {
  public:
    explicit TreeWalk(KernelWriter& w)
        : w_(w), rows_(w.op().shape(0)[0]), targets_(w.op().integer("n_targets")), dense_(w.op().has(3)) {}

    Stmt write() {
        const std::vector<Expr>& nodes = w_.op().shape(1).dims();
        x_ = w_.in(0), words_ = w_.in(1), splits_ = w_.in(1, DType::f32, nodes), trees_ = w_.in(2);
        if (dense_) weights_ = w_.in(3);
        y_ = w_.out(0);
        sums_ = w_.scratch(DType::f64, {rows_, Expr(targets_)});
        const Expr block =
            clamp(ceil_div(ceil_div(rows_, kRowBlocks), kRowsAtOnce) * kRowsAtOnce, kFewestRows, kMostRows);
        return w_.parallel(ceil_div(rows_, block), [&](const Expr& b) {
            const Expr first = b * block, count = min(block, rows_ - first), whole = floor_div(count, kRowsAtOnce);
            auto each = [&](const std::function<Stmt(const Expr&, const Expr&)>& f) {
                return w_.loop(count, [&](const Expr& i) {
                    return w_.loop(targets_, [&](const Expr& k) { return f(first + i, k); });
                });
            };
            return seq({
                each([&](const Expr& row, const Expr& k) {
                    return sums_.set({row, k}, real_const(0));
                }),
                w_.loop(trees(),
                        [&](const Expr& t) {
                            return w_.loop(whole,
                                           [&](const Expr& c) { return along_rows(t, first + c * kRowsAtOnce); });
                        }),
                w_.loop(count - whole * kRowsAtOnce,
                        [&](const Expr& i) {
                            return w_.loop(floor_div(trees(), kTreesAtOnce), [&](const Expr& g) {
                                return along_trees(g * kTreesAtOnce, first + whole * kRowsAtOnce + i);
                            });
                        }),
                each([&](const Expr& row, const Expr& k) {
                    return y_.set({row, k}, sums_.at({row, k}));
                }),
            });
        });
    }

  private:
    using At = std::function<Expr(const Expr& i)>;

    const Expr& trees() const { return w_.op().shape(2)[0]; }
    Expr tree(const Expr& t, int64_t word) const { return cast(trees_.at({t, Expr(word)}), DType::i64); }

    Stmt along_rows(const Expr& t, const Expr& row) {
        return walk(
            kRowsAtOnce, [&](const Expr&) { return t; }, [&](const Expr& r) { return row + r; }, tree(t, 2));
    }

    // The last of them is the deepest.
    Stmt along_trees(const Expr& first, const Expr& row) {
        return walk(
            kTreesAtOnce, [&](const Expr& i) { return first + i; }, [&](const Expr&) { return row; },
            tree(first + (kTreesAtOnce - 1), 2));
    }

    // Walks i < count through tree(i) with row(i), in rounds of some steps until all are in a leaf.
    Stmt walk(int64_t count, const At& tree_of, const At& row_of, const Expr& depth) {
        auto unrolled = [&](int64_t n, const KernelWriter::Body& body) { return w_.loop(n, body, LoopKind::Unrolled); };
        return w_.local(DType::i64, {Expr(count)}, [&](const Elements& node) {
            return w_.local(DType::boolean, {}, [&](const Elements& inner) {
                Expr any = int_const(0, DType::boolean);
                for (int64_t i = 0; i < count; ++i)
                    any = logical_or(any, lt(node.at({Expr(i)}), tree(tree_of(Expr(i)), 1)));
                auto step = [&](const Expr&) {
                    return unrolled(count, [&](const Expr& i) { return node.set({i}, next(node.at({i}), row_of(i))); });
                };
                auto where_inner = [&](Stmt s) { return if_then(inner.at({}), std::move(s)); };
                return seq({
                    unrolled(count, [&](const Expr& i) { return node.set({i}, tree(tree_of(i), 0)); }),
                    inner.set({}, gt(depth, 0)),
                    w_.loop(floor_div(depth, kStepsAtOnce),
                            [&](const Expr&) {
                                return where_inner(seq({unrolled(kStepsAtOnce, step), inner.set({}, any)}));
                            }),
                    where_inner(w_.loop(mod(depth, kStepsAtOnce), step)),
                    unrolled(count, [&](const Expr& i) { return add_leaf(node.at({i}), tree_of(i), row_of(i)); }),
                });
            });
        });
    }

    Expr next(const Expr& node, const Expr& row) const {
        const Expr word = words_.at({node, Expr(0)}), split = splits_.at({node, Expr(1)});
        const bool missing = w_.op().integer("missing") != 0;
        Expr feature = cast(word, DType::i64);
        if (missing) feature = select(lt(feature, 0), feature - int64_t{INT32_MIN}, feature);
        Expr value;
        if (w_.op().integer("negated") != 0) {
            const Expr negated = ge(feature, int64_t{kNegatedFeature});
            value = x_.at({row, select(negated, feature - int64_t{kNegatedFeature}, feature)});
            value = select(negated, -value, value);
        } else {
            value = x_.at({row, feature});
        }
        Expr most = le(value, split);
        if (missing) most = logical_or(most, logical_and(call(Fn::IsNan, {value}), lt(word, int_const(0, DType::i32))));
        return cast(words_.at({node, select(most, Expr(2), Expr(3))}), DType::i64);
    }

    Stmt add_leaf(const Expr& node, const Expr& t, const Expr& row) {
        auto add = [&](const Expr& k, const Expr& weight) {
            return sums_.set({row, k}, sums_.at({row, k}) + cast(weight, DType::f64));
        };
        if (!dense_) return add(targets_ == 1 ? Expr(0) : tree(t, 3), splits_.at({node, Expr(1)}));
        const Expr leaf = cast(words_.at({node, Expr(1)}), DType::i64);
        return w_.loop(targets_, [&](const Expr& k) { return add(k, weights_.at({leaf, k})); });
    }

    KernelWriter& w_;
    const Expr rows_;
    const int64_t targets_;
    const bool dense_;
    Elements x_, words_, splits_, trees_, weights_, y_, sums_;
};

Stmt write_walk_trees(KernelWriter& w) { return TreeWalk(w).write(); }

}  // namespace

std::vector<KernelWriting> tree_kernels() { return {{"walk_trees", write_walk_trees}}; }

}  // namespace tessera
