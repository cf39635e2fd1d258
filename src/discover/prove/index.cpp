#include "discover/prove/index.h"

#include <algorithm>

#include "base/hash.h"
#include "expr/simplify.h"

namespace tessera::prover {

int64_t Poly::coefficient(uint64_t key) const {
    for (const Mono& m : terms)
        if (m.key == key) return m.coefficient;
    return 0;
}

size_t PolyHash::operator()(const Poly& p) const {
    uint64_t h = p.terms.size();
    for (const Mono& m : p.terms) h = mix(mix(h, m.key), static_cast<uint64_t>(m.coefficient));
    return h;
}

Poly combined(const Poly& a, int64_t by_a, const Poly& b, int64_t by_b) {
    Poly out;
    const Mono *x = a.terms.begin(), *y = b.terms.begin();
    const Mono *const last_x = a.terms.end(), *const last_y = b.terms.end();
    while (x != last_x || y != last_y) {
        if (y == last_y || (x != last_x && x->key < y->key)) {
            out.terms.push_back({x->key, times(x->coefficient, by_a)});
            ++x;
        } else if (x == last_x || y->key < x->key) {
            out.terms.push_back({y->key, times(y->coefficient, by_b)});
            ++y;
        } else {
            const int64_t c = plus(times(x->coefficient, by_a), times(y->coefficient, by_b));
            if (c) out.terms.push_back({x->key, c});
            ++x, ++y;
        }
    }
    return out;
}

Poly operator+(const Poly& a, const Poly& b) { return combined(a, 1, b, 1); }
Poly operator-(const Poly& a, const Poly& b) { return combined(a, 1, b, -1); }
Poly operator-(const Poly& a) { return combined({}, 1, a, -1); }

uint64_t multiply_keys(uint64_t a, uint64_t b) {
    if (a == 0) return b;
    if (b == 0) return a;
    const Product x = atoms_of(a), y = atoms_of(b);
    if (x.size() + y.size() > 4) throw Unsupported{"a product of more than four sizes"};
    std::array<int, 4> ids;
    int* const end = std::merge(x.begin(), x.end(), y.begin(), y.end(), ids.begin());
    uint64_t key = 0;
    for (int* i = end; i != ids.begin();) key = key << 16 | static_cast<uint64_t>(*--i);
    return key;
}

Poly operator*(const Poly& a, const Poly& b) {
    if (a.terms.size() == 1 && a.terms[0].key == 0) return combined({}, 1, b, a.terms[0].coefficient);
    if (b.terms.size() == 1 && b.terms[0].key == 0) return combined({}, 1, a, b.terms[0].coefficient);
    Poly out;
    for (const Mono& x : a.terms) {
        Poly row;
        for (const Mono& y : b.terms)
            row.terms.push_back({multiply_keys(x.key, y.key), times(x.coefficient, y.coefficient)});
        std::sort(row.terms.begin(), row.terms.end());
        out = out + row;
    }
    return out;
}

int Atoms::variable(const std::string& name, bool size) {
    auto [it, fresh] = names_.try_emplace(name, static_cast<int>(all_.size()));
    if (fresh) {
        if (all_.size() > 60000) throw Unsupported{"too many variables"};
        all_.push_back({Atom::Kind::Var, size, name, {}});
    }
    return it->second;
}

Poly Atoms::make(Atom::Kind kind, std::vector<Poly> args) {
    using Kind = Atom::Kind;
    const Poly &a = args[0], &b = args[1];
    if (a == b && (kind == Kind::Min || kind == Kind::Max || kind == Kind::Select)) return a;
    if (a.is_constant() && b.is_constant() && kind != Kind::Select) {
        int64_t x = a.constant(), y = b.constant();
        switch (kind) {
            case Kind::Min: return std::min(x, y);
            case Kind::Max: return std::max(x, y);
            case Kind::Div:
                if (y > 0) return floor_quotient(x, y);
                break;
            case Kind::Mod:
                if (y > 0) return floor_remainder(x, y);
                break;
            default: break;
        }
    }
    if (kind == Kind::Div && b == Poly(1)) return a;
    if (kind == Kind::Mod && b == Poly(1)) return 0;
    if ((kind == Kind::Div || kind == Kind::Mod) && a.terms.empty()) return 0;
    auto key = std::make_pair(kind, args);
    auto found = made_.find(key);
    if (found != made_.end()) return Poly::atom(found->second);
    if (all_.size() > 60000) throw Unsupported{"too many quotients"};
    int id = static_cast<int>(all_.size());
    all_.push_back({kind, false, {}, std::move(args)});
    made_.emplace(std::move(key), id);
    return Poly::atom(id);
}

Poly Atoms::convert(const Expr& e) {
    auto folded = [&](Atom::Kind kind) {
        Poly p = convert(e.arg(0));
        for (size_t i = 1; i < e.args().size(); ++i) p = make(kind, {p, convert(e.arg(i))});
        return p;
    };
    switch (e.kind()) {
        case ExprKind::Const: return e.node().integer;
        case ExprKind::Var: return Poly::atom(variable(e.node().name, true));
        case ExprKind::Add: {
            Poly p;
            for (const Expr& a : e.args()) p = p + convert(a);
            return p;
        }
        case ExprKind::Mul: {
            Poly p = 1;
            for (const Expr& a : e.args()) p = p * convert(a);
            return p;
        }
        case ExprKind::FloorDiv: return make(Atom::Kind::Div, {convert(e.arg(0)), convert(e.arg(1))});
        case ExprKind::Mod: return make(Atom::Kind::Mod, {convert(e.arg(0)), convert(e.arg(1))});
        case ExprKind::Min: return folded(Atom::Kind::Min);
        case ExprKind::Max: return folded(Atom::Kind::Max);
        case ExprKind::Select: {
            Cases cases = when(e.arg(0), true);
            if (cases.size() != 1) throw Unsupported{"a choice of sizes by more than one condition"};
            std::vector<Poly> args{convert(e.arg(1)), convert(e.arg(2))};
            args.insert(args.end(), cases[0].begin(), cases[0].end());
            return make(Atom::Kind::Select, std::move(args));
        }
        default: throw Unsupported{"an index that is computed: " + to_string(e)};
    }
}

Cases Atoms::when(const Expr& c, bool holds) {
    auto both = [](const Cases& x, const Cases& y) {
        Cases out;
        for (const Guards& a : x)
            for (const Guards& b : y) {
                Guards g = a;
                g.insert(g.end(), b.begin(), b.end());
                out.push_back(std::move(g));
            }
        return out;
    };
    auto difference = [&](size_t from, size_t to) { return convert(c.arg(to)) - convert(c.arg(from)); };
    switch (c.kind()) {
        case ExprKind::Const: return (c.node().integer != 0) == holds ? Cases{{}} : Cases{};
        case ExprKind::Not: return when(c.arg(0), !holds);
        case ExprKind::And:
        case ExprKind::Or: {
            if (holds == (c.is(ExprKind::And))) return both(when(c.arg(0), holds), when(c.arg(1), holds));
            Cases out = when(c.arg(0), holds);
            for (Guards& g : both(when(c.arg(0), !holds), when(c.arg(1), holds))) out.push_back(std::move(g));
            return out;
        }
        case ExprKind::Lt:
        case ExprKind::Le:
        case ExprKind::Eq:
        case ExprKind::Ne: break;
        default: throw Unsupported{"a condition on values: " + to_string(c)};
    }
    if (c.arg(0).dtype() != DType::i64 || c.node().reads) throw Unsupported{"a condition on values: " + to_string(c)};
    if (c.is(ExprKind::Lt) || c.is(ExprKind::Le)) {
        Poly d = difference(0, 1) - Poly(c.is(ExprKind::Lt) ? 1 : 0);
        return {{holds ? d : -d - Poly(1)}};
    }
    Poly d = difference(0, 1);
    if ((c.is(ExprKind::Eq)) == holds) return {{d, -d}};
    return {{d - Poly(1)}, {-d - Poly(1)}};
}

Poly Atoms::substitute(const Poly& p, const Map& map) {
    auto may_change = [&](int id) { return all_[static_cast<size_t>(id)].kind != Atom::Kind::Var || map.contains(id); };
    if (std::none_of(p.terms.begin(), p.terms.end(), [&](const Mono& m) {
            const Product ids = atoms_of(m.key);
            return std::any_of(ids.begin(), ids.end(), may_change);
        }))
        return p;
    Poly out;
    for (const Mono& m : p.terms) {
        Poly product = m.coefficient;
        bool changed = false;
        for (int id : atoms_of(m.key)) {
            auto found = map.find(id);
            Poly factor;
            if (found != map.end()) {
                factor = found->second;
                changed = true;
            } else if (all_[static_cast<size_t>(id)].kind == Atom::Kind::Var) {
                factor = Poly::atom(id);
            } else {
                std::vector<Poly> args = all_[static_cast<size_t>(id)].args;
                bool inside = false;
                for (Poly& a : args) {
                    Poly replaced = substitute(a, map);
                    inside |= !(replaced == a);
                    a = std::move(replaced);
                }
                factor = inside ? make(all_[static_cast<size_t>(id)].kind, std::move(args)) : Poly::atom(id);
                changed |= inside;
            }
            product = product * factor;
        }
        if (!changed) {
            product = Poly();
            product.terms.push_back(m);
        }
        out = out + product;
    }
    return out;
}

bool Atoms::mentions(const Poly& p, int id) const {
    for (const Mono& m : p.terms)
        for (int a : atoms_of(m.key)) {
            if (a == id) return true;
            for (const Poly& arg : all_[static_cast<size_t>(a)].args)
                if (mentions(arg, id)) return true;
        }
    return false;
}

void Atoms::collect(const Poly& p, std::vector<int>& ids) const {
    for (const Mono& m : p.terms)
        for (int a : atoms_of(m.key)) {
            if (std::find(ids.begin(), ids.end(), a) != ids.end()) continue;
            for (const Poly& arg : all_[static_cast<size_t>(a)].args) collect(arg, ids);
            ids.push_back(a);
        }
}

const Atoms::Description& Atoms::describe(const Poly& p) {
    auto [it, fresh] = described_.try_emplace(p);
    if (fresh) {
        collect(p, it->second.ids);
        for (const int id : it->second.ids) it->second.some |= uint64_t{1} << (id & 63);
        it->second.hash = mix(PolyHash{}(p), 0x5bd1e995);
    }
    return it->second;
}

std::string Atoms::print(const Poly& p) const {
    if (p.terms.empty()) return "0";
    std::string out;
    auto sum = [&](const Mono& m) {
        int64_t c = m.coefficient;
        out += out.empty() ? (c < 0 ? "-" : "") : (c < 0 ? " - " : " + ");
        std::string size = std::to_string(c < 0 ? -c : c);
        bool first = true;
        if (m.key == 0 || (c != 1 && c != -1)) {
            out += size;
            first = false;
        }
        for (int id : atoms_of(m.key)) {
            if (!first) out += "*";
            first = false;
            const Atom& a = all_[static_cast<size_t>(id)];
            if (a.kind == Atom::Kind::Var) {
                out += a.name;
                continue;
            }
            static const char* const kNames[] = {"", "floordiv", "mod", "min", "max", "select"};
            out += kNames[static_cast<int>(a.kind)];
            out += "(";
            for (size_t i = 0; i < a.args.size(); ++i) out += (i ? ", " : "") + print(a.args[i]);
            out += ")";
        }
    };
    for (size_t i = 0; i < p.terms.size(); ++i)
        if (p.terms[i].key != 0) sum(p.terms[i]);
    if (p.constant()) sum(p.terms[0]);
    return out;
}

}  // namespace tessera::prover
