#include "discover/check/check_arithmetic.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "base/gcd.h"

namespace tessera::checker {
namespace {

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();  // has no negation

int64_t sum_of(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_add_overflow(a, b, &r) || r == kLeast) throw Refused{"a number is too large"};
    return r;
}

int64_t product_of(int64_t a, int64_t b) {
    int64_t r;
    if (__builtin_mul_overflow(a, b, &r) || r == kLeast) throw Refused{"a number is too large"};
    return r;
}

int64_t rounded_down(int64_t a, int64_t b) {  // b > 0
    int64_t q = a / b;
    return q * b > a ? q - 1 : q;
}

int64_t constant_in(const Whole& p) {
    auto found = p.find({});
    return found == p.end() ? 0 : found->second;
}

bool only_constant(const Whole& p) { return p.empty() || (p.size() == 1 && p.begin()->first.empty()); }

// p - 1 >= 0 negated: what holds where p >= 0 does not.
Whole denied(const Whole& p) { return plus(constant_whole(-1), p, -1); }

// Inequalities: a coefficient for each product of atoms, in the order of `columns`, then the constant. Of those that
// differ in their constants alone the smallest counts.
struct Rows {
    using Row = std::vector<int64_t>;
    std::vector<Product> columns;
    std::vector<Row> rows;
    bool clash = false;

    explicit Rows(const Conjunction& facts) {
        for (const Whole& f : facts)
            for (const auto& [product, c] : f)
                if (!product.empty()) columns.push_back(product);
        std::sort(columns.begin(), columns.end());
        columns.erase(std::unique(columns.begin(), columns.end()), columns.end());
        for (const Whole& f : facts) {
            Row row(columns.size() + 1);
            row.back() = constant_in(f);
            size_t at = 0;
            for (const auto& [product, c] : f) {
                if (product.empty()) continue;
                while (columns[at] != product) ++at;
                row[at] = c;
            }
            insert(std::move(row));
        }
    }

    void insert(Row row) {
        const size_t width = columns.size();
        int64_t common = 0;
        for (size_t i = 0; i < width; ++i)
            if (row[i] != 0) common = gcd_of(common, row[i]);
        if (common == 0) {
            clash |= row[width] < 0;
            return;
        }
        for (size_t i = 0; common > 1 && i < width; ++i) row[i] /= common;
        row[width] = rounded_down(row[width], common);
        bool known = false;
        for (Row& other : rows) {
            size_t same = 0, opposite = 0;
            while (same < width && other[same] == row[same]) ++same;
            while (opposite < width && other[opposite] == -row[opposite]) ++opposite;
            if (opposite == width && sum_of(row[width], other[width]) < 0) clash = true;
            if (same < width) continue;
            other[width] = std::min(other[width], row[width]);
            known = true;
        }
        if (!known) rows.push_back(std::move(row));
    }

    // Eliminates one product after the other; true where nothing can satisfy all rows.
    bool unsatisfiable() {
        while (!clash && !rows.empty() && rows.size() < 900) {
            std::vector<std::pair<long, long>> signs(columns.size());
            for (const Row& row : rows)
                for (size_t i = 0; i < signs.size(); ++i)
                    if (row[i] != 0) ++(row[i] > 0 ? signs[i].first : signs[i].second);
            auto cost = [&](size_t i) {
                const auto [above, below] = signs[i];
                return above + below == 0 ? std::numeric_limits<long>::max() : above * below - above - below;
            };
            size_t away = 0;
            for (size_t i = 1; i < signs.size(); ++i)
                if (cost(i) < cost(away)) away = i;
            std::vector<Row> lower, upper, others;
            for (Row& row : rows) (row[away] > 0 ? lower : row[away] < 0 ? upper : others).push_back(std::move(row));
            rows = std::move(others);
            for (const Row& p : lower)
                for (const Row& q : upper) {
                    if (clash) return true;
                    Row sum(p.size());
                    for (size_t i = 0; i < p.size(); ++i)
                        if (p[i] != 0 || q[i] != 0)
                            sum[i] = sum_of(product_of(p[i], -q[away]), product_of(q[i], p[away]));
                    insert(std::move(sum));
                }
        }
        return clash;
    }
};

}  // namespace

Whole constant_whole(int64_t value) { return value ? Whole{{{}, value}} : Whole{}; }

Whole plus(const Whole& a, const Whole& b, int64_t scale) {
    Whole out = a;
    for (const auto& [product, c] : b) {
        int64_t& to = out[product];
        to = sum_of(to, product_of(c, scale));
        if (to == 0) out.erase(product);
    }
    return out;
}

Whole times(const Whole& a, const Whole& b) {
    Whole out;
    for (const auto& [x, c] : a)
        for (const auto& [y, d] : b) {
            Product product = x;
            product.insert(product.end(), y.begin(), y.end());
            std::sort(product.begin(), product.end());
            out = plus(out, {{std::move(product), product_of(c, d)}});
        }
    return out;
}

int Names::declare(const std::string& name, Kind kind) {
    auto [it, fresh] = by_name_.emplace(name, static_cast<int>(entries_.size()));
    if (fresh) entries_.push_back({kind, name, {}});
    return it->second;
}

int Names::find(const std::string& name) const {
    auto it = by_name_.find(name);
    return it == by_name_.end() ? -1 : it->second;
}

Whole Names::atom(Kind kind, std::vector<Whole> parts) {
    const Whole &a = parts[0], &b = parts[1];
    bool numbers = only_constant(a) && only_constant(b);
    int64_t x = constant_in(a), y = constant_in(b);
    if (kind == Kind::Least && numbers) return constant_whole(std::min(x, y));
    if (kind == Kind::Largest && numbers) return constant_whole(std::max(x, y));
    if ((kind == Kind::Least || kind == Kind::Largest || kind == Kind::Choice) && a == b) return a;
    if (kind == Kind::Quotient || kind == Kind::Remainder) {
        bool quotient = kind == Kind::Quotient;
        if (a.empty()) return {};
        if (only_constant(b) && y == 1) return quotient ? a : Whole{};
        if (numbers && y > 0) return constant_whole(quotient ? rounded_down(x, y) : x - y * rounded_down(x, y));
    }
    auto [it, fresh] = by_parts_.emplace(std::make_pair(kind, parts), static_cast<int>(entries_.size()));
    if (fresh) entries_.push_back({kind, {}, std::move(parts)});
    return {{{it->second}, 1}};
}

Whole Names::read(const Expr& e) {
    Whole out;
    switch (e.kind()) {
        case ExprKind::Const: return constant_whole(e.node().integer);
        case ExprKind::Var: return {{{declare(e.node().name, Kind::Size)}, 1}};
        case ExprKind::Add:
            for (const Expr& a : e.args()) out = plus(out, read(a));
            return out;
        case ExprKind::Mul:
            out = constant_whole(1);
            for (const Expr& a : e.args()) out = times(out, read(a));
            return out;
        case ExprKind::FloorDiv: return atom(Kind::Quotient, {read(e.arg(0)), read(e.arg(1))});
        case ExprKind::Mod: return atom(Kind::Remainder, {read(e.arg(0)), read(e.arg(1))});
        case ExprKind::Min:
        case ExprKind::Max:
            out = read(e.arg(0));
            for (size_t i = 1; i < e.args().size(); ++i)
                out = atom(e.is(ExprKind::Min) ? Kind::Least : Kind::Largest, {out, read(e.arg(i))});
            return out;
        case ExprKind::Select: {
            std::vector<Conjunction> cases = read(e.arg(0), true);
            if (cases.size() != 1) throw Refused{"a choice of sizes that is no conjunction"};
            std::vector<Whole> parts{read(e.arg(1)), read(e.arg(2))};
            for (Whole& p : cases[0]) parts.push_back(std::move(p));
            return atom(Kind::Choice, std::move(parts));
        }
        default: throw Refused{"an index that is no arithmetic"};
    }
}

std::vector<Conjunction> Names::read(const Expr& c, bool holds) {
    auto both = [](const std::vector<Conjunction>& x, const std::vector<Conjunction>& y) {
        std::vector<Conjunction> out;
        for (const Conjunction& a : x)
            for (const Conjunction& b : y) {
                out.push_back(a);
                out.back().insert(out.back().end(), b.begin(), b.end());
            }
        return out;
    };
    switch (c.kind()) {
        case ExprKind::Const:
            return (c.node().integer != 0) == holds ? std::vector<Conjunction>{{}} : std::vector<Conjunction>{};
        case ExprKind::Not: return read(c.arg(0), !holds);
        case ExprKind::And:
        case ExprKind::Or: {
            if (c.is(ExprKind::And) == holds) return both(read(c.arg(0), holds), read(c.arg(1), holds));
            std::vector<Conjunction> out = read(c.arg(0), holds);
            for (Conjunction& more : both(read(c.arg(0), !holds), read(c.arg(1), holds)))
                out.push_back(std::move(more));
            return out;
        }
        case ExprKind::Lt:
        case ExprKind::Le:
        case ExprKind::Eq:
        case ExprKind::Ne: break;
        default: throw Refused{"a condition that is no comparison"};
    }
    if (c.arg(0).dtype() != DType::i64 || c.node().reads) throw Refused{"a condition on values"};
    Whole d = plus(read(c.arg(1)), read(c.arg(0)), -1);
    if (c.is(ExprKind::Lt)) d = plus(d, constant_whole(-1));
    if (c.is(ExprKind::Lt) || c.is(ExprKind::Le)) return {{holds ? d : denied(d)}};
    Whole back = plus({}, d, -1), one = constant_whole(1);
    if (c.is(ExprKind::Eq) == holds) return {{d, back}};
    return {{plus(d, one, -1)}, {plus(back, one, -1)}};
}

void Names::skip() {
    while (!text_.empty() && text_[0] == ' ') text_.remove_prefix(1);
}

bool Names::take(std::string_view symbol) {
    skip();
    if (!text_.starts_with(symbol)) return false;
    text_.remove_prefix(symbol.size());
    return true;
}

Whole Names::parse(std::string_view text) {
    text_ = text;
    depth_ = 0;
    Whole out = parse_sum();
    skip();
    if (!text_.empty()) throw Refused{"\"" + std::string(text) + "\" is no arithmetic"};
    return out;
}

Whole Names::parse_sum() {
    Whole out = take("-") ? plus({}, parse_product(), -1) : parse_product();
    for (bool more = take("+"); more || take("-"); more = take("+")) out = plus(out, parse_product(), more ? 1 : -1);
    return out;
}

Whole Names::parse_product() {
    Whole out = parse_atom();
    while (take("*")) out = times(out, parse_atom());
    return out;
}

Whole Names::parse_atom() {
    skip();
    size_t n = 0;
    auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.'; };
    while (n < text_.size() && is_word(text_[n])) ++n;
    std::string word(text_.substr(0, n));
    text_.remove_prefix(n);
    if (word.empty() || word.size() > 60) throw Refused{"a number or a name is missing"};
    if (std::isdigit(static_cast<unsigned char>(word[0]))) {
        if (word.size() > 18 || !std::all_of(word.begin(), word.end(), [](char c) { return c >= '0' && c <= '9'; }))
            throw Refused{word + " is no number"};
        int64_t number = 0;
        std::from_chars(word.data(), word.data() + word.size(), number);
        return constant_whole(number);
    }
    if (!take("(")) {
        int found = find(word);
        if (found < 0) throw Refused{"there is no " + word};
        return {{{found}, 1}};
    }
    static const std::map<std::string, Kind> kFunctions = {{"floordiv", Kind::Quotient},
                                                           {"mod", Kind::Remainder},
                                                           {"min", Kind::Least},
                                                           {"max", Kind::Largest},
                                                           {"select", Kind::Choice}};
    auto kind = kFunctions.find(word);
    if (kind == kFunctions.end()) throw Refused{"there is no " + word + "()"};
    constexpr int kDeepest = 100;
    if (++depth_ > kDeepest) throw Refused{"arithmetic is nested too deeply"};
    std::vector<Whole> parts{parse_sum()};
    while (take(",")) parts.push_back(parse_sum());
    --depth_;
    if (!take(")") || parts.size() < 2 || (parts.size() > 2) != (kind->second == Kind::Choice))
        throw Refused{word + "() has the wrong arguments"};
    return atom(kind->second, std::move(parts));
}

Whole Names::replace(const Whole& p, const std::map<int, Whole>& by) {
    Whole out;
    for (const auto& [product, c] : p) {
        Whole made = constant_whole(c);
        for (int a : product) {
            auto found = by.find(a);
            if (found != by.end()) {
                made = times(made, found->second);
            } else if (at(a).parts.empty()) {
                made = times(made, {{{a}, 1}});
            } else {
                Entry entry = at(a);
                for (Whole& part : entry.parts) part = replace(part, by);
                made = times(made, atom(entry.kind, std::move(entry.parts)));
            }
        }
        out = plus(out, made);
    }
    return out;
}

void Names::atoms_in(const Whole& p, std::set<int>& found) const {
    for (const auto& [product, c] : p)
        for (int a : product)
            if (found.insert(a).second)
                for (const Whole& part : at(a).parts) atoms_in(part, found);
}

bool Names::occurs(int a, const Whole& p) const {
    std::set<int> found;
    atoms_in(p, found);
    return found.contains(a);
}

thread_local std::function<void(const Names&, const Conjunction&)> Names::observer;

bool Names::impossible(const Conjunction& given) {
    std::vector<Conjunction> groups;
    std::vector<std::set<int>> of_groups;
    for (const Whole& f : given) {
        // Joined with every group that it has an atom in common with.
        Conjunction group{f};
        std::set<int> atoms;
        atoms_in(f, atoms);
        for (size_t i = groups.size(); i-- > 0;) {
            bool meets = std::any_of(atoms.begin(), atoms.end(), [&](int a) { return of_groups[i].contains(a); });
            if (!meets) continue;
            group.insert(group.end(), groups[i].begin(), groups[i].end());
            atoms.merge(of_groups[i]);
            groups.erase(groups.begin() + static_cast<std::ptrdiff_t>(i));
            of_groups.erase(of_groups.begin() + static_cast<std::ptrdiff_t>(i));
        }
        groups.push_back(std::move(group));
        of_groups.push_back(std::move(atoms));
    }
    return std::any_of(groups.begin(), groups.end(), [&](const Conjunction& g) { return group_impossible(g); });
}

// What holds of the atoms, and of their products with sizes, is added first.
bool Names::group_impossible(const Conjunction& given) {
    auto [answer, fresh] = answers_.emplace(given, false);
    if (!fresh) return answer->second;
    Conjunction facts = given;
    std::set<int> atoms;
    for (const Whole& f : given) atoms_in(f, atoms);
    Conjunction plain = given;
    for (int a : atoms)
        if (at(a).kind == Kind::Size) plain.push_back({{{a}, 1}});
    auto at_least_one = [&](const Whole& p) {
        if (only_constant(p)) return constant_in(p) >= 1;
        plain.push_back(plus({}, p, -1));
        const bool never = Rows(plain).unsatisfiable();
        plain.pop_back();
        return never;
    };
    for (int a : atoms) {
        const Entry entry = at(a);
        const Whole self = {{{a}, 1}};
        if (entry.kind == Kind::Size) facts.push_back(self);
        const bool least = entry.kind == Kind::Least;
        if (least || entry.kind == Kind::Largest)
            for (const Whole& p : entry.parts) facts.push_back(least ? plus(p, self, -1) : plus(self, p, -1));
        bool quotient = entry.kind == Kind::Quotient;
        if ((quotient || entry.kind == Kind::Remainder) && at_least_one(entry.parts[1])) {
            Whole rest = quotient ? plus(entry.parts[0], times(entry.parts[1], self), -1) : self;
            facts.push_back(rest);
            facts.push_back(plus(plus(entry.parts[1], constant_whole(1), -1), rest, -1));
        }
    }
    std::set<std::pair<int, Product>> products;
    for (const Whole& f : facts)
        for (const auto& [product, c] : f)
            for (size_t i = 0; product.size() > 1 && i < product.size(); ++i)
                if (at(product[i]).kind == Kind::Size) {
                    Product rest = product;
                    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
                    products.emplace(product[i], rest);
                }
    const size_t count = facts.size();
    for (const auto& [size, rest] : products)
        for (size_t i = 0; i < count; ++i) {
            bool short_enough =
                std::all_of(facts[i].begin(), facts[i].end(), [](const auto& m) { return m.first.size() < 3; });
            if (short_enough && facts[i].contains(rest)) facts.push_back(times(facts[i], {{{size}, 1}}));
        }
    answer->second = Rows(facts).unsatisfiable();
    for (auto a = atoms.begin(); !answer->second && a != atoms.end(); ++a) {
        if (at(*a).kind != Kind::Largest) continue;
        std::vector<Conjunction> cases(2, given);  // a maximum is one of its parts
        for (size_t i : {0, 1}) cases[i].push_back(plus(at(*a).parts[i], {{{*a}, 1}}, -1));
        if (std::count(given.begin(), given.end(), cases[0].back()) ||
            std::count(given.begin(), given.end(), cases[1].back()))
            continue;
        answer->second = group_impossible(cases[0]) && group_impossible(cases[1]);
        break;
    }
    if (answer->second && observer) observer(*this, given);
    return answer->second;
}

bool Names::follows(const Conjunction& facts, const Whole& p) {
    if (only_constant(p) && constant_in(p) >= 0) return true;
    // Only what is connected with p matters.
    Conjunction related{denied(p)};
    std::set<int> reached;
    atoms_in(p, reached);
    std::vector<bool> taken(facts.size());
    for (bool more = true; more;) {
        more = false;
        for (size_t i = 0; i < facts.size(); ++i) {
            if (taken[i]) continue;
            std::set<int> atoms;
            atoms_in(facts[i], atoms);
            if (std::none_of(atoms.begin(), atoms.end(), [&](int a) { return reached.contains(a); })) continue;
            taken[i] = more = true;
            reached.merge(atoms);
            related.push_back(facts[i]);
        }
    }
    return group_impossible(related);
}

bool Names::equal(const Conjunction& facts, const Whole& a, const Whole& b) {
    Whole d = plus(a, b, -1);
    return d.empty() || (follows(facts, d) && follows(facts, plus({}, d, -1)));
}

}  // namespace tessera::checker
