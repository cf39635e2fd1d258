#include "graph/evaluate/strip/contract.h"

#include <algorithm>
#include <bit>

#include "base/memory.h"
#include "base/numeric.h"
#include "graph/evaluate/strip/multiply.h"

namespace tessera::strip {
namespace {

constexpr int64_t kTileRows = 2048, kTileColumns = 256, kTileInner = 192;
constexpr int64_t kLeastSide = 4, kLeastWork = 8192;
constexpr int64_t kLeastCompensated = 1 << 22;  // f64 sums below this much work carry their rounding errors along

// How many leading bits a value's significand may have.
int significant_bits(const Plan& plan, int id) {
    const PlanNode& n = plan.nodes[id];
    switch (n.op) {
        case Op::Load: return plan.slots[n.slot].dtype == DType::f64 ? 53 : 24;
        case Op::Const: return static_cast<double>(static_cast<float>(n.real)) == n.real ? 24 : 53;
        case Op::Select: return std::max(significant_bits(plan, n.args[0]), significant_bits(plan, n.args[1]));
        case Op::Apply:
            return (n.kind == ExprKind::Cast || n.kind == ExprKind::CastSaturate) && n.dtype != DType::f64 ? 24 : 53;
        default: return 53;
    }
}

void factors(const Plan& plan, int id, std::vector<int>& out) {
    const PlanNode& n = plan.nodes[id];
    if (n.op == Op::Apply && n.kind == ExprKind::Mul) {
        for (int a : n.args) factors(plan, a, out);
    } else {
        out.push_back(id);
    }
}

int product_of(Plan& plan, const std::vector<int>& ids) {
    int made = ids[0];
    for (size_t i = 1; i < ids.size(); ++i) {
        const PlanNode &a = plan.nodes[made], &b = plan.nodes[ids[i]];
        made = plan.add({.op = Op::Apply,
                         .kind = ExprKind::Mul,
                         .dtype = a.dtype,
                         .from = a.dtype,
                         .fallible = a.fallible || b.fallible,
                         .vars = a.vars | b.vars,
                         .args = {made, ids[i]}});
    }
    return made;
}

VarSet vars_of(const Plan& plan, const std::vector<int>& ids) {
    VarSet set = 0;
    for (int id : ids) set |= plan.nodes[id].vars;
    return set;
}

std::vector<int> list_of(VarSet set) {
    std::vector<int> out;
    for (; set; set &= set - 1) out.push_back(std::countr_zero(set));
    return out;
}

// Boxes of at most about `limit` points that cover the variables, one after the other.
class Tiles {
  public:
    Tiles(const Plan& plan, const std::vector<int>& vars, int64_t limit) : plan_(plan), vars_(vars) {
        sizes_.resize(vars.size());
        int64_t points = 1;
        for (size_t i = vars.size(); i-- > 0;) {
            int64_t extent = plan.extents[vars[i]], most = std::max<int64_t>(1, limit / points);
            int64_t parts = (extent + most - 1) / most;
            sizes_[i] = (extent + parts - 1) / parts;
            points *= sizes_[i];
        }
        most_ = points;
        begins_.assign(vars.size(), 0);
    }
    int64_t most_points() const { return most_; }
    int64_t points() const {
        int64_t n = 1;
        for (size_t i = 0; i < vars_.size(); ++i) n *= count(i);
        return n;
    }
    void restart() { begins_.assign(vars_.size(), 0); }
    bool next() {
        for (size_t i = vars_.size(); i-- > 0;) {
            begins_[i] += sizes_[i];
            if (begins_[i] < plan_.extents[vars_[i]]) return true;
            begins_[i] = 0;
        }
        return false;
    }
    // Appends the current tile's dimensions, laid out row-major with `unit` between neighbours.
    void append(std::vector<BoxDim>& box, int64_t unit) const {
        size_t first = box.size();
        for (size_t i = 0; i < vars_.size(); ++i) box.push_back({vars_[i], begins_[i], count(i), 0});
        for (size_t i = box.size(); i-- > first;) {
            box[i].stride = unit;
            unit *= box[i].count;
        }
    }

  private:
    int64_t count(size_t i) const { return std::min(sizes_[i], plan_.extents[vars_[i]] - begins_[i]); }
    const Plan& plan_;
    std::vector<int> vars_;
    std::vector<int64_t> sizes_, begins_;
    int64_t most_;
};

// Calls f(offset in the target) for every point of the box, the last dimension fastest.
template <typename F>
void for_each_point(const std::vector<BoxDim>& box, F&& f) {
    std::vector<int64_t> at(box.size(), 0);
    int64_t offset = 0;
    while (true) {
        f(offset);
        size_t d = box.size();
        while (true) {
            if (d == 0) return;
            --d;
            offset += box[d].stride;
            if (++at[d] < box[d].count) break;
            offset -= box[d].stride * box[d].count;
            at[d] = 0;
        }
    }
}

// The tile's box with the target's strides in place of the tile's, and the offset of its first point.
std::vector<BoxDim> in_target(std::vector<BoxDim> tile, const std::vector<BoxDim>& target, int64_t& offset) {
    for (BoxDim& d : tile)
        for (const BoxDim& t : target)
            if (t.var == d.var) {
                d.stride = t.stride;
                offset += t.stride * (d.begin - t.begin);
            }
    return tile;
}

class Running {
  public:
    Running(const Plan& plan, const Contraction& c, const std::vector<BoxDim>& box, Target target, Fault& fault)
        : plan_(plan),
          c_(c),
          box_(box),
          target_(target),
          fault_(fault),
          batch_(plan, c.batch, 1),
          rows_(plan, c.rows, kTileRows),
          columns_(plan, c.columns, kTileColumns),
          inner_(plan, c.inner, kTileInner),
          ld_((columns_.most_points() + kColumnGroup - 1) / kColumnGroup * kColumnGroup + kColumnGroup),
          left_program_(plan, c.left, left_box()),
          right_program_(plan, c.right, right_box()) {}

    Result<bool> run() {
        left_ = TRY(allocate_bytes(8 * rows_.most_points() * inner_.most_points()));
        right_ = TRY(allocate_bytes(8 * ld_ * inner_.most_points()));
        sum_ = TRY(allocate_bytes(8 * ld_ * rows_.most_points()));
        do {
            columns_.restart();
            do {
                rows_.restart();
                do {
                    if (!tile()) return false;
                } while (rows_.next());
            } while (columns_.next());
        } while (batch_.next());
        return true;
    }

  private:
    std::vector<BoxDim> left_box() const {
        std::vector<BoxDim> box;
        batch_.append(box, 0);
        rows_.append(box, inner_.points());
        inner_.append(box, 1);
        return box;
    }
    std::vector<BoxDim> right_box() const {
        std::vector<BoxDim> box;
        batch_.append(box, 0);
        inner_.append(box, ld_);
        columns_.append(box, 1);
        return box;
    }

    bool fill(Program& program, const std::vector<BoxDim>& box, void* data) {
        DType held = plan_.nodes[c_.node].real_valued() ? DType::f64 : DType::i64;
        if (program.run(box, {held, data})) return true;
        fault_ = program.fault();
        return false;
    }

    bool tile() {
        const int64_t m = rows_.points(), n = columns_.points();
        std::fill_n(static_cast<int64_t*>(sum_.get()), ld_ * m, 0);
        inner_.restart();
        do {
            const int64_t k = inner_.points();
            if (!fill(left_program_, left_box(), left_.get())) return false;
            if (!fill(right_program_, right_box(), right_.get())) return false;
            if (plan_.nodes[c_.node].real_valued())
                multiply_add(static_cast<double*>(left_.get()), k, static_cast<double*>(right_.get()), ld_,
                             static_cast<double*>(sum_.get()), ld_, m, n, k, c_.exact);
            else
                multiply_add(static_cast<int64_t*>(left_.get()), k, static_cast<int64_t*>(right_.get()), ld_,
                             static_cast<int64_t*>(sum_.get()), ld_, m, n, k);
        } while (inner_.next());
        store();
        return true;
    }

    void store() {
        std::vector<BoxDim> batch, rows, columns;
        batch_.append(batch, 0);
        rows_.append(rows, 0);
        columns_.append(columns, 0);
        int64_t offset = 0;
        in_target(batch, box_, offset);
        rows = in_target(rows, box_, offset);
        columns = in_target(columns, box_, offset);
        const BoxDim last = columns.back();
        columns.pop_back();
        const PlanNode& node = plan_.nodes[c_.node];
        int64_t* row = static_cast<int64_t*>(sum_.get());
        for_each_point(rows, [&](int64_t row_offset) {
            int64_t* from = row;
            for_each_point(columns, [&](int64_t column_offset) {
                const int64_t at = offset + row_offset + column_offset;
                if (node.real_valued()) {
                    write_reals(target_.dtype, target_.data, at, last.stride, last.count,
                                reinterpret_cast<const double*>(from));
                } else {
                    for (int64_t i = 0; i < last.count; ++i) from[i] = int_wrap(node.dtype, from[i]);
                    write_ints(target_.dtype, target_.data, at, last.stride, last.count, from);
                }
                from += last.count;
            });
            row += ld_;
        });
    }

    const Plan& plan_;
    const Contraction& c_;
    const std::vector<BoxDim>& box_;
    const Target target_;
    Fault& fault_;
    Tiles batch_, rows_, columns_, inner_;
    int64_t ld_;  // of a row of the right factor and of the sum
    Program left_program_, right_program_;
    std::shared_ptr<void> left_, right_, sum_;
};

}  // namespace

std::optional<Contraction> as_contraction(Plan& plan, int node) {
    const PlanNode reduce = plan.nodes[node];
    if (reduce.op != Op::Reduce || reduce.reduce_op != ReduceOp::Sum) return std::nullopt;
    std::vector<int> terms;
    factors(plan, reduce.args[0], terms);
    if (terms.size() < 2 || terms.size() > 8) return std::nullopt;

    // The split into two groups that leaves the least to lay out.
    double least = 0;
    std::vector<int> left, right;
    for (unsigned chosen = 1; chosen + 1 < 1u << terms.size(); chosen += 2) {
        std::vector<int> a, b;
        for (size_t i = 0; i < terms.size(); ++i) (chosen >> i & 1 ? a : b).push_back(terms[i]);
        const VarSet va = vars_of(plan, a), vb = vars_of(plan, b);
        const int64_t m = plan.extent_of(reduce.vars & va & ~vb), n = plan.extent_of(reduce.vars & vb & ~va);
        if (m < kLeastSide || n < kLeastSide) continue;
        const double cost = 1.0 / static_cast<double>(m) + 1.0 / static_cast<double>(n);
        if (!left.empty() && cost >= least) continue;
        least = cost;
        left = std::move(a);
        right = std::move(b);
    }
    if (left.empty()) return std::nullopt;
    VarSet axes = 0;
    for (int a : reduce.axes) axes |= bit_of(a);
    const int64_t work = plan.extent_of(reduce.vars | axes);
    if (work < kLeastWork || (reduce.compensated && work < kLeastCompensated)) return std::nullopt;

    Contraction c{.node = node,
                  .left = product_of(plan, left),
                  .right = product_of(plan, right),
                  .batch = {},
                  .rows = {},
                  .columns = {},
                  .inner = reduce.axes,
                  .exact = false};
    VarSet va = plan.nodes[c.left].vars, vb = plan.nodes[c.right].vars;
    const int64_t m = plan.extent_of(reduce.vars & va & ~vb), n = plan.extent_of(reduce.vars & vb & ~va);
    if (n < kColumnGroup && m > n) {
        std::swap(c.left, c.right);
        std::swap(va, vb);
    }
    c.batch = list_of(reduce.vars & va & vb);
    c.rows = list_of(reduce.vars & va & ~vb);
    c.columns = list_of(reduce.vars & vb & ~va);
    c.exact = significant_bits(plan, c.left) + significant_bits(plan, c.right) <= 53;
    return c;
}

Result<bool> run(const Plan& plan, const Contraction& c, const std::vector<BoxDim>& box, Target target, Fault& fault) {
    return Running(plan, c, box, target, fault).run();
}

}  // namespace tessera::strip
