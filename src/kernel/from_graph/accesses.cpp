#include "kernel/from_graph/accesses.h"

#include <algorithm>

#include "expr/divide_within.h"

namespace tessera {

bool chooses_place(const Expr& index) {
    bool found = false;
    visit(index, [&](const Expr& e) {
        const bool linear =
            e.is(ExprKind::Add) || e.is(ExprKind::Mul) || e.is(ExprKind::FloorDiv) || e.is(ExprKind::Mod);
        if (linear || e.args().empty()) return;
        for (const std::string& name : free_symbols(e)) found |= name.starts_with("%i");
    });
    return found;
}

bool divides_place(const Expr& index) {
    bool found = false;
    visit(index, [&](const Expr& e) { found |= e.is(ExprKind::FloorDiv) || e.is(ExprKind::Mod); });
    return found;
}

bool scales_place(const Expr& index) {
    bool found = false;
    visit(index, [&](const Expr& e) {
        const int64_t divisor = e.is(ExprKind::FloorDiv) ? e.arg(1).as_int().value_or(0) : 0;
        if (divisor == 0) return;
        for (const Expr& term : e.arg(0).is(ExprKind::Add) ? e.arg(0).args() : std::vector<Expr>{e.arg(0)}) {
            const int64_t c = term.is(ExprKind::Mul) ? term.arg(0).as_int().value_or(1) : 1;
            found |= !term.as_int() && c != 0 && c % divisor != 0 && divisor % c != 0;
        }
    });
    return found;
}

bool Accesses::scatters(int n) const {
    const Expr& read = body(n);
    const int source = read.node().slot;
    if (def(n).shape.empty() || std::is_sorted(order(source).begin(), order(source).end())) return false;
    if (std::none_of(read.args().begin(), read.args().end(), divides_place)) return false;
    const auto step = step_of(place(source, read.args()), index_vars(def(n).shape)[size_t(order(n).back())]);
    return !step || !step->is_int(1);
}

// On a GPU, a reshape that scatters is priced as what it is, a copy that its source's kernel may make.
Accesses::Accesses(const Definitions& all, const Layouts& layouts, std::vector<bool> live, std::vector<bool> kept,
                   bool blocks)
    : all_(all),
      layouts_(layouts),
      live_(std::move(live)),
      kept_(std::move(kept)),
      view_(all.list.size()),
      bodies_(all.list.size()),
      reads_(all.list.size()),
      readers_(all.list.size()) {
    for (int n = 0; n < count(); ++n) {
        const Definition& d = def(n);
        if (!live_[size_t(n)] || !d.has_body()) continue;
        bodies_[size_t(n)] = map_loads(d.body, [&](const Expr& e) -> Expr {
            if (!is_view(e.node().slot)) return e;
            Bindings at;
            for (size_t k = 0; k < e.args().size(); ++k) at.emplace(fmt::format("%i{}", k), e.arg(k));
            return substitute(body(e.node().slot), at);
        });
        bodies_[size_t(n)] = divide_within(bodies_[size_t(n)], d.axes());
        const Expr& b = bodies_[size_t(n)];
        auto places = [](const Expr& at) { return !at.node().reads && !chooses_place(at); };
        view_[size_t(n)] = d.kind == Definition::Kind::Map && !kept_[size_t(n)] && b.is(ExprKind::Load) &&
                           b.dtype() == d.dtype && std::all_of(b.args().begin(), b.args().end(), places) &&
                           std::none_of(b.args().begin(), b.args().end(), scales_place) &&
                           !(std::any_of(b.args().begin(), b.args().end(), divides_place) &&
                             elements_of(d.shape) > elements_of(def(b.node().slot).shape)) &&
                           !(blocks && scatters(n));
        if (view_[size_t(n)]) continue;
        visit(b, [&](const Expr& e) {
            if (!e.is(ExprKind::Load)) return;
            reads_[size_t(n)].push_back({e.node().slot, e.args()});
            std::vector<int>& list = readers_[size_t(e.node().slot)];
            if (list.empty() || list.back() != n) list.push_back(n);
        });
    }
}

Expr Accesses::place(int n, const std::vector<Expr>& at) const {
    Expr made = 0;
    for (int axis : order(n)) made = made * def(n).shape[size_t(axis)] + at[size_t(axis)];
    return made;
}

std::string Accesses::name(int n) const {
    const Definition& d = def(n);
    if (d.value) return d.value->name();
    if (!d.node) return fmt::format("#{}", n);
    std::string of = d.node->name().empty() ? d.node->output()->name() : d.node->name();
    return d.kind == Definition::Kind::Reduction ? "the sum of " + of : "a part of " + of;
}

bool same_elements(const std::vector<Expr>& shape, const std::vector<Expr>& of, const std::vector<Expr>& at) {
    const std::vector<Expr> vars = index_vars(shape);
    std::vector<bool> used(shape.size());
    for (size_t d = 0; d < at.size(); ++d) {
        if (of[d].is_int(1)) continue;
        auto axis = axis_of(vars, at[d]);
        if (!axis || used[*axis] || !(shape[*axis] == of[d])) return false;
        used[*axis] = true;
    }
    for (size_t d = 0; d < shape.size(); ++d)
        if (!used[d] && !shape[d].is_int(1)) return false;
    return true;
}

namespace {

// A variable that is divided becomes two: its quotient and its rest.
void split_digits(std::vector<ReduceAxis>& digits, std::vector<Expr>& at) {
    constexpr int kRounds = 12;
    for (int round = 0; round < kRounds; ++round) {
        std::optional<std::pair<size_t, int64_t>> found;
        for (const Expr& e : at)
            visit(e, [&](const Expr& x) {
                if (found || (!x.is(ExprKind::FloorDiv) && !x.is(ExprKind::Mod))) return;
                auto by = x.arg(1).as_int();
                for (size_t k = 0; k < digits.size() && by && *by > 1; ++k)
                    if (x.arg(0) == digits[k].var && mod(digits[k].extent, *by).is_int(0)) found = {k, *by};
            });
        if (!found) return;
        auto [k, by] = *found;
        const ReduceAxis whole = digits[k];
        Expr outer = floor_div(whole.extent, by);
        digits[k] = {index_var(fmt::format("%d{}", 2 * round), outer.as_int()), outer};
        digits.push_back({index_var(fmt::format("%d{}", 2 * round + 1), by), Expr(by)});
        for (Expr& e : at) e = substitute(e, {{whole.var.node().name, digits[k].var * by + digits.back().var}});
    }
}

}  // namespace

bool same_elements_by_digits(const std::vector<Expr>& shape, const std::vector<Expr>& of, const std::vector<Expr>& at) {
    std::vector<Expr> vars = index_vars(shape), indices = at;
    std::vector<ReduceAxis> digits;
    for (size_t d = 0; d < shape.size(); ++d) digits.push_back({vars[d], shape[d]});
    split_digits(digits, indices);
    std::erase_if(digits, [](const ReduceAxis& a) { return a.extent.is_int(1); });
    std::vector<bool> used(digits.size());
    Bindings zero;
    for (const ReduceAxis& a : digits) zero.emplace(a.var.node().name, Expr(0));
    for (size_t d = 0; d < of.size(); ++d) {
        if (of[d].is_int(1)) continue;
        if (!substitute(indices[d], zero).is_int(0)) return false;
        Expr covered = 1;
        for (bool more = true; more && !(covered == of[d]);) {
            more = false;
            for (size_t k = 0; k < digits.size() && !more; ++k) {
                const Expr& var = digits[k].var;
                if (used[k] || !depends_on_any(indices[d], {digits[k]})) continue;
                Expr step = substitute(indices[d], {{var.node().name, var + 1}}) - indices[d];
                if (!(step == covered)) continue;
                used[k] = more = true;
                covered = covered * digits[k].extent;
            }
        }
        if (!(covered == of[d])) return false;
        // Nothing else moves it.
        for (size_t k = 0; k < digits.size(); ++k)
            if (!used[k] && depends_on_any(indices[d], {digits[k]})) return false;
    }
    return std::all_of(used.begin(), used.end(), [](bool u) { return u; });
}

bool depends_on_any(const Expr& e, const std::vector<ReduceAxis>& axes) {
    std::vector<std::string> names = free_symbols(e);
    return std::any_of(axes.begin(), axes.end(), [&](const ReduceAxis& a) {
        return std::binary_search(names.begin(), names.end(), a.var.node().name);
    });
}

bool is_contraction(const Accesses& acc, int n) {
    const Definition& d = acc.def(n);
    const Expr& body = acc.body(n);
    if (d.kind != Definition::Kind::Reduction || d.combine != ReduceOp::Sum || !body.is(ExprKind::Mul)) return false;
    if (body.args().size() != 2) return false;
    for (const ReduceAxis& r : d.reduce)
        if (!r.extent.is_int(1) && (!depends_on_any(body.arg(0), {r}) || !depends_on_any(body.arg(1), {r})))
            return false;
    const std::vector<ReduceAxis> axes = d.axes();
    for (size_t k = axes.size(); k-- > 0;) {
        const ReduceAxis& inner = axes[size_t(acc.order(n)[k])];
        if (inner.extent.is_int(1)) continue;
        return depends_on_any(body.arg(0), {inner}) != depends_on_any(body.arg(1), {inner});
    }
    return false;
}

bool is_row_reduction(const Accesses& acc, int n) {
    const Definition& d = acc.def(n);
    if (d.kind != Definition::Kind::Reduction || is_contraction(acc, n)) return false;
    for (const Reading& a : acc.reads(n)) {
        if (a.at.empty()) continue;
        const Expr& inner = a.at[size_t(acc.order(a.source).back())];
        if (depends_on_any(inner, d.reduce) && !depends_on_any(inner, d.axes())) return true;
    }
    return false;
}

double size_of(const Expr& e) {
    constexpr int64_t kUsual = 64;
    if (auto n = e.as_int()) return double(*n);
    SymbolValues values;
    for (const std::string& name : free_symbols(e)) values[name] = kUsual;
    return double(evaluate_int(e, values).value_or(kUsual));
}

double elements_of(const std::vector<Expr>& shape) {
    double n = 1;
    for (const Expr& e : shape) n *= size_of(e);
    return n;
}

double bytes_of(const Definition& d) { return elements_of(d.shape) * double(dtype_bytes(d.dtype)); }

namespace {

// Of an index that is no sum of its variables: a division by what only a run knows is as slow as a function.
double index_operations(const Expr& index) {
    double total = 0;
    if (index.node().reads) return total;
    visit(index, [&](const Expr& e) {
        const bool divides = e.is(ExprKind::FloorDiv) || e.is(ExprKind::Mod);
        if (divides && !e.arg(1).as_int() && !free_symbols(e.arg(0)).empty()) total += 16;
        if (e.is(ExprKind::Min) || e.is(ExprKind::Max) || e.is(ExprKind::Select) || e.is(ExprKind::Cast)) total += 1;
        if (e.is(ExprKind::Call) || e.is(ExprKind::Div)) total += 2;
    });
    return total;
}

}  // namespace

double operations(const Expr& body) {
    double total = 0;
    visit(body, [&](const Expr& e) {
        if (!e.node().reads || e.args().empty()) return;
        switch (e.kind()) {
            case ExprKind::Load:
                for (const Expr& index : e.args()) total += index_operations(index);
                return;
            case ExprKind::Select: total += 1; return;
            case ExprKind::Div:
            case ExprKind::Mod:
            case ExprKind::Rem: total += 4; return;
            case ExprKind::Pow: total += 40; return;
            case ExprKind::Call:
                switch (e.node().fn) {
                    case Fn::Abs:
                    case Fn::Sign:
                    case Fn::Floor:
                    case Fn::Ceil:
                    case Fn::Round:
                    case Fn::Trunc:
                    case Fn::IsNan:
                    case Fn::IsInf: total += 1; return;
                    case Fn::Sqrt: total += 4; return;
                    default: total += 16; return;
                }
            default: total += 1;
        }
    });
    return total;
}

}  // namespace tessera
