#include "graph/evaluate/strip/program.h"

#include <algorithm>

#include "base/numeric.h"
#include "graph/evaluate/strip/loops.h"

namespace tessera::strip {
namespace {

// The variable to run strips along, by cost; -1 where one element at a time is best.
int choose_lane(const Plan& plan, int root, const std::vector<BoxDim>& box) {
    int best = -1;
    double least = 0;
    for (const BoxDim& d : box) {
        if (d.count < 2) continue;
        double lanes = static_cast<double>(std::min(d.count, kStrip));
        double cost = box.size() == 1 ? 0 : strip_cost(plan, root, d.var, d.count) + 20 / lanes;
        if (box.size() > 1 && d.stride != 1) cost += 0.6;
        if (best >= 0 && cost >= least) continue;
        best = d.var;
        least = cost;
    }
    bool reduces = false;
    for (const PlanNode& n : plan.nodes) reduces |= n.op == Op::Reduce;
    if (best < 0 || !reduces) return best;
    if (box.size() == 1) least = strip_cost(plan, root, best, plan.extents[best]);
    return strip_cost(plan, root, -1, 1) + 20 < least ? -1 : best;
}

}  // namespace

Program::Program(const Plan& plan, int root, const std::vector<BoxDim>& typical)
    : plan_(plan), current_(plan.extents.size(), 0), changed_(plan.extents.size(), 0) {
    lane_ = choose_lane(plan, root, typical);
    root_ = instantiate(root, lane_);
    place_buffers();
}

int64_t Program::width(int lane) const { return lane < 0 ? 1 : std::min(kStrip, plan_.extents[lane]); }

int Program::instantiate(int node, int lane) {
    const PlanNode& p = plan_.nodes[node];
    if (lane >= 0 && !has_var(p.vars, lane)) lane = -1;
    const int64_t key = static_cast<int64_t>(node) * 128 + lane + 1;
    if (auto found = made_.find(key); found != made_.end()) return found->second;
    RunNode n;
    n.plan = &p;
    n.lane = lane;
    if (p.op == Op::Reduce) {
        n.inner_lane = lane >= 0 ? -1 : best_axis(plan_, p);
        for (int a : p.axes)
            if (a != n.inner_lane) n.loops.push_back(a);
        n.args.push_back(instantiate(p.args[0], lane >= 0 ? lane : n.inner_lane));
    } else {
        for (int a : p.args) n.args.push_back(a < 0 ? -1 : instantiate(a, lane));
        for (const PlanNode::Gather& g : p.gathers) n.gathers.push_back(instantiate(g.node, lane));
    }
    for (int v = static_cast<int>(plan_.extents.size()) - 1; v >= 0; --v)
        if (has_var(p.vars, v)) n.vars.push_back(v);
    nodes_.push_back(std::move(n));
    return made_[key] = static_cast<int>(nodes_.size()) - 1;
}

void Program::place_buffers() {
    auto each = [&](auto&& give) {
        for (RunNode& n : nodes_) {
            const Op op = n.plan->op;
            give(n.integer, width(n.lane));
            bool one = op == Op::Reduce || (op == Op::Load && n.plan->fallible) || (op == Op::Select && n.args[2] >= 0);
            if (one) give(n.scratch, width(n));
            if ((op == Op::Reduce && n.plan->compensated) || (op == Op::Select && n.args[2] >= 0))
                give(n.scratch2, width(n));
        }
    };
    int64_t total = kStrip;  // the last one is for stores of a single value
    each([&](int64_t*&, int64_t size) { total += (size + 7) / 8 * 8; });
    memory_.assign(total, 0);
    int64_t at = 0;
    each([&](int64_t*& p, int64_t size) {
        p = memory_.data() + at;
        at += (size + 7) / 8 * 8;
    });
    for (RunNode& n : nodes_) {
        if (n.plan->op != Op::Const) continue;
        if (n.plan->real_valued())
            *n.real() = n.plan->real;
        else
            *n.integer = n.plan->integer;
        n.tick = 0;
        n.end = 1;
    }
}

bool Program::run(const std::vector<BoxDim>& box, Target target) {
    std::vector<BoxDim> dims;  // all but the lanes'
    BoxDim lanes{-1, 0, 1, 0};
    for (const BoxDim& d : box) {
        if (d.count <= 0) return true;
        if (d.var == lane_)
            lanes = d;
        else
            dims.push_back(d);
        set(d.var, d.begin);
    }
    std::vector<int64_t> at(dims.size(), 0);
    int64_t offset = 0;
    while (true) {
        for (int64_t l = 0; l < lanes.count; l += kStrip) {
            const int64_t count = std::min(kStrip, lanes.count - l);
            if (lanes.var >= 0) set(lanes.var, lanes.begin + l);
            if (!eval(root_, {0, count, {}})) return false;
            store(target, offset + l * lanes.stride, lanes.stride, count);
        }
        size_t d = dims.size();
        while (d > 0) {
            --d;
            offset += dims[d].stride;
            if (++at[d] < dims[d].count) {
                set(dims[d].var, dims[d].begin + at[d]);
                break;
            }
            offset -= dims[d].stride * dims[d].count;
            at[d] = 0;
            set(dims[d].var, dims[d].begin);
            if (d == 0) return true;
        }
        if (dims.empty()) return true;
    }
}

void Program::store(const Target& target, int64_t offset, int64_t stride, int64_t count) {
    const RunNode& n = nodes_[root_];
    const int64_t* from = n.integer;
    if (n.lane < 0 && count > 1) {
        int64_t* filled = memory_.data() + memory_.size() - kStrip;
        std::fill(filled, filled + count, *n.integer);
        from = filled;
    }
    if (n.plan->real_valued())
        write_reals(target.dtype, target.data, offset, stride, count, reinterpret_cast<const double*>(from));
    else
        write_ints(target.dtype, target.data, offset, stride, count, from);
}

int64_t Program::value_at(const Affine& a) const {
    int64_t v = a.constant;
    for (const Affine::Term& t : a.terms) v += t.factor * current_[t.var];
    return v;
}

bool Program::fail(const PlanNode& n, int dim, int64_t index, int64_t extent) {
    fault_ = {n.slot, dim, index, extent};
    return false;
}

bool Program::compute(RunNode& n, const Range& r) {
    const PlanNode& p = *n.plan;
    Range range = r;
    if (!p.fallible) range.mask = {};
    switch (p.op) {
        case Op::Const: return true;
        case Op::Affine: {
            const int64_t base = value_at(p.affine), step = n.lane < 0 ? 0 : p.affine.factor(n.lane);
            for (int64_t i = range.begin; i < range.end; ++i) n.integer[i] = base + step * i;
            break;
        }
        case Op::Test: {
            int64_t begin = range.begin, end = range.end;
            narrow(p, n.lane, begin, end);
            for (int64_t i = range.begin; i < range.end; ++i) n.integer[i] = i >= begin && i < end;
            break;
        }
        case Op::Load:
            if (!load(n, range)) return false;
            break;
        case Op::Apply:
            if (!apply(n, range)) return false;
            break;
        case Op::Select:
            if (!select(n, range)) return false;
            break;
        case Op::Reduce:
            if (!(n.lane < 0 ? reduce_across(n) : reduce_lanes(n, range))) return false;
            break;
    }
    n.tick = now_;
    n.begin = range.begin;
    n.end = range.end;
    n.mask_id = range.mask.lanes ? range.mask.id : 0;
    return true;
}

bool Program::within(const PlanNode& n, int lane, const Range& r) const {
    for (const PlanNode::Check& c : n.checks) {
        const int64_t base = value_at(c.index), step = lane < 0 ? 0 : c.index.factor(lane);
        const int64_t first = base + step * r.begin, last = base + step * (r.end - 1);
        if (std::min(first, last) < 0 || std::max(first, last) >= c.extent) return false;
    }
    return true;
}

bool Program::load(RunNode& n, const Range& r) {
    const PlanNode& p = *n.plan;
    const Slot& slot = plan_.slots[p.slot];
    int64_t base = value_at(p.affine);
    const int64_t stride = n.lane < 0 ? 0 : p.affine.factor(n.lane);
    if (p.fallible) {
        const bool safe = within(p, n.lane, r);
        if (!safe) return gather(n, r, base, stride, true);
        for (size_t i = 0; i < p.gathers.size(); ++i) {
            const RunNode& index = nodes_[n.gathers[i]];
            if (index.lane >= 0) return gather(n, r, value_at(p.affine), stride, false);
            if (!eval(n.gathers[i], kOne)) return false;
            const int64_t at = *index.integer;
            if (at < 0 || at >= p.gathers[i].extent) return fail(p, p.gathers[i].dim, at, p.gathers[i].extent);
            base += at * p.gathers[i].stride;
        }
    }
    const int64_t count = r.end - r.begin;
    if (p.real_valued())
        read_reals(slot.dtype, slot.data, base + stride * r.begin, stride, count, n.real() + r.begin);
    else
        read_ints(slot.dtype, slot.data, base + stride * r.begin, stride, count, n.integer + r.begin);
    return true;
}

// An offset for each lane; a lane that the mask leaves out reads element 0, which is there because some lane is in.
bool Program::gather(RunNode& n, const Range& r, int64_t base, int64_t stride, bool check) {
    const PlanNode& p = *n.plan;
    const Slot& slot = plan_.slots[p.slot];
    const int64_t* mask = r.mask.lanes;
    int64_t* offsets = n.scratch;
    if (check)
        for (const PlanNode::Check& c : p.checks) {
            const int64_t first = value_at(c.index), step = n.lane < 0 ? 0 : c.index.factor(n.lane);
            for (int64_t i = r.begin; i < r.end; ++i) {
                const int64_t at = first + step * i;
                if ((!mask || mask[i]) && (at < 0 || at >= c.extent)) return fail(p, c.dim, at, c.extent);
            }
        }
    for (int64_t i = r.begin; i < r.end; ++i) offsets[i] = base + stride * i;
    for (size_t k = 0; k < p.gathers.size(); ++k) {
        if (!eval(n.gathers[k], r)) return false;
        const PlanNode::Gather& g = p.gathers[k];
        const RunNode& index = nodes_[n.gathers[k]];
        for (int64_t i = r.begin; i < r.end; ++i) {
            const int64_t at = index.integer[index.lane < 0 ? 0 : i];
            if (static_cast<uint64_t>(at) < static_cast<uint64_t>(g.extent))
                offsets[i] += at * g.stride;
            else if (!mask || mask[i])
                return fail(p, g.dim, at, g.extent);
        }
    }
    if (mask)
        for (int64_t i = r.begin; i < r.end; ++i) offsets[i] = mask[i] ? offsets[i] : 0;
    const int64_t count = r.end - r.begin;
    if (p.real_valued())
        gather_reals(slot.dtype, slot.data, offsets + r.begin, count, n.real() + r.begin);
    else
        gather_ints(slot.dtype, slot.data, offsets + r.begin, count, n.integer + r.begin);
    return true;
}

bool Program::apply(RunNode& n, const Range& r) {
    const PlanNode& p = *n.plan;
    for (int a : n.args)
        if (!eval(a, r)) return false;
    const RunNode &a = nodes_[n.args[0]], &b = nodes_[n.args.back()];
    const int64_t count = r.end - r.begin;
    auto ints = [&](const RunNode& x) { return Ints{x.integer + (x.lane < 0 ? 0 : r.begin), x.lane < 0}; };
    auto reals = [&](const RunNode& x) { return Reals{x.real() + (x.lane < 0 ? 0 : r.begin), x.lane < 0}; };
    double* real = n.real() + r.begin;
    int64_t* integer = n.integer + r.begin;
    const bool from_real = is_float(p.from), to_real = p.real_valued();
    switch (p.kind) {
        case ExprKind::Lt:
        case ExprKind::Le:
        case ExprKind::Eq:
        case ExprKind::Ne:
            from_real ? real_compare(p.kind, reals(a), reals(b), count, integer)
                      : int_compare(p.kind, p.from, ints(a), ints(b), count, integer);
            return true;
        case ExprKind::Cast:
        case ExprKind::CastSaturate: {
            const bool saturate = p.kind == ExprKind::CastSaturate;
            if (from_real && to_real) cast_real_to_real(p.dtype, saturate, reals(a), count, real);
            if (from_real && !to_real) cast_real_to_int(p.dtype, saturate, reals(a), count, integer);
            if (!from_real && to_real) cast_int_to_real(p.from, p.dtype, saturate, ints(a), count, real);
            if (!from_real && !to_real) cast_int_to_int(p.from, p.dtype, saturate, ints(a), count, integer);
            return true;
        }
        case ExprKind::Call:
            if (!from_real && is_dot(p.fn))
                int_dot(p.fn, ints(a), ints(b), count, integer);
            else if (!from_real)
                int_unary(p.kind, p.fn, p.from, ints(a), count, integer);
            else if (to_real)
                real_call(p.fn, reals(a), reals(b), count, real);
            else
                real_test(p.fn, reals(a), count, integer);
            return true;
        case ExprKind::Neg:
            if (to_real) {
                const double zero = -0.0;
                real_binary(ExprKind::Sub, {&zero, true}, reals(a), count, real);
                return true;
            }
            [[fallthrough]];
        case ExprKind::Not:
        case ExprKind::BitNot: int_unary(p.kind, p.fn, p.dtype, ints(a), count, integer); return true;
        default: break;
    }
    if (to_real)
        real_binary(p.kind, reals(a), reals(b), count, real);
    else
        int_binary(p.kind, p.dtype, ints(a), ints(b), count, integer);
    return true;
}

}  // namespace tessera::strip
