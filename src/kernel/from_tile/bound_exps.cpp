#include "kernel/from_tile/bound_exps.h"

#include <algorithm>
#include <map>

namespace tessera::from_tile_detail {
namespace {

using tile::Instruction;
using tile::Kind;

class BoundExps {
  public:
    explicit BoundExps(tile::ProgramData& program) : program_(program) {}

    void walk(tile::Region& region) {
        for (Instruction& i : region.instructions) {
            for (tile::Region& inner : i.regions) walk(inner);
            if (is_exp(i) && is_not_positive(i.inputs[0]))
                i.body = call(Fn::Exp, {min(i.body.arg(0), constant(0, DType::f32))});
            for (int o : i.outputs) made_by_[o] = &i;
        }
    }

  private:
    static bool is_exp(const Instruction& i) {
        return i.kind == Kind::Map && i.inputs.size() == 1 && i.body.is(ExprKind::Call) &&
               i.body.node().fn == Fn::Exp && i.body.dtype() == DType::f32 && i.body.arg(0).is(ExprKind::Load);
    }

    const Instruction* maker(int value, Kind kind) const {
        const auto found = made_by_.find(value);
        return found != made_by_.end() && found->second->kind == kind ? found->second : nullptr;
    }
    const std::vector<int64_t>& shape(int value) const { return program_.types[static_cast<size_t>(value)].shape; }

    bool is_not_positive(int value) const {
        const Instruction* sub = maker(value, Kind::Map);
        if (!sub || !sub->body.is(ExprKind::Sub) || sub->inputs.size() != 2) return false;
        const Expr &a = sub->body.arg(0), &b = sub->body.arg(1);
        if (!a.is(ExprKind::Load) || !b.is(ExprKind::Load) || a.node().slot != 0 || b.node().slot != 1) return false;
        const int x = sub->inputs[0];
        const Instruction* all = maker(sub->inputs[1], Kind::Broadcast);
        if (!all) return false;
        // Of each row one: the axis that was reduced is back, with one element.
        int rows = all->inputs[0];
        std::vector<int64_t> one = shape(rows);
        if (const Instruction* reshaped = maker(rows, Kind::Reshape)) rows = reshaped->inputs[0];
        const int axis = axis_of_largest(rows, x);
        if (axis < 0) return false;
        std::vector<int64_t> wanted = shape(x);
        wanted[static_cast<size_t>(axis)] = 1;
        return one == wanted || (one.empty() && wanted.size() == 1);
    }

    // Of a value that is no less than any element of x in its row: along which axis; or -1.
    int axis_of_largest(int value, int x) const {
        if (const Instruction* reduce = maker(value, Kind::Reduce)) {
            const bool largest = reduce->word == "max" && reduce->regions.empty();
            return largest && is_but_for_nan(reduce->inputs[0], x) ? static_cast<int>(reduce->numbers[0]) : -1;
        }
        const Instruction* larger = maker(value, Kind::Map);
        if (!larger || larger->inputs.size() != 2 || !is_larger_of_two(larger->body)) return -1;
        return std::max(axis_of_largest(larger->inputs[0], x), axis_of_largest(larger->inputs[1], x));
    }

    // select(a < b or a is NaN, b, a), or max(a, b).
    static bool is_larger_of_two(const Expr& e) {
        if (e.is(ExprKind::Max)) return e.arg(0).is(ExprKind::Load) && e.arg(1).is(ExprKind::Load);
        if (!e.is(ExprKind::Select) || !e.arg(0).is(ExprKind::Or)) return false;
        const Expr &less = e.arg(0).arg(0), &unlike = e.arg(0).arg(1), &b = e.arg(1), &a = e.arg(2);
        return less.is(ExprKind::Lt) && less.arg(0).same(a) && less.arg(1).same(b) && unlike.is(ExprKind::Call) &&
               unlike.node().fn == Fn::IsNan && unlike.arg(0).same(a);
    }

    // x, or select(x != x, something, x).
    bool is_but_for_nan(int value, int x) const {
        if (value == x) return true;
        const Instruction* pick = maker(value, Kind::Map);
        if (!pick || pick->inputs.size() != 3 || pick->inputs[2] != x || !pick->body.is(ExprKind::Select)) return false;
        for (size_t i = 0; i < 3; ++i)
            if (!pick->body.arg(i).is(ExprKind::Load) || pick->body.arg(i).node().slot != static_cast<int>(i))
                return false;
        const Instruction* unlike = maker(pick->inputs[0], Kind::Map);
        return unlike && unlike->body.is(ExprKind::Ne) && unlike->inputs == std::vector<int>{x, x};
    }

    tile::ProgramData& program_;
    std::map<int, const Instruction*> made_by_;
};

}  // namespace

void bound_exps(tile::ProgramData& program) { BoundExps(program).walk(program.body); }

}  // namespace tessera::from_tile_detail
