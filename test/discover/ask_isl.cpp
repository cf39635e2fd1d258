#include "discover/oracles.h"

#ifdef TESSERA_TEST_ISL
#include <fmt/ranges.h>
#include <isl/ctx.h>
#include <isl/map.h>
#include <isl/options.h>
#include <isl/polynomial.h>
#include <isl/set.h>
#include <isl/val.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "discover/prove/comprehension.h"
#endif

namespace tessera {

#ifndef TESSERA_TEST_ISL
bool has_isl() { return false; }
SecondOpinion ask_isl(const Claim&, uint64_t) { return {}; }
#else
namespace {

struct NotAffine {  // sizes that have to be numbers
    std::vector<std::string> sizes;
};
struct NotASum {
    std::string why;
};

// One product: coefficient * sum over variables of [conditions] * elements.
struct Addend {
    int64_t above = 1, below = 1;
    std::vector<std::string> variables = {}, conditions = {};
    std::vector<std::pair<int, std::vector<std::string>>> elements = {};
};
using Terms = std::vector<Addend>;

// Indices and conditions as isl writes them.
class Text {
  public:
    static std::string index(const Expr& e) {
        std::vector<std::string> parts;
        switch (e.kind()) {
            case ExprKind::Const: return std::to_string(e.node().integer);
            case ExprKind::Var: return e.node().name;
            case ExprKind::Add:
                for (const Expr& a : e.args()) parts.push_back(index(a));
                return fmt::format("({})", fmt::join(parts, " + "));
            case ExprKind::Mul: {
                std::vector<std::string> sizes;
                int64_t constant = 1;
                for (const Expr& a : e.args()) {
                    if (a.as_int()) {
                        constant *= *a.as_int();
                        continue;
                    }
                    parts.push_back(index(a));
                    for (std::string& s : free_symbols(a))
                        if (!s.starts_with("_")) sizes.push_back(std::move(s));
                }
                if (parts.size() > 1) throw NotAffine{sizes};
                return parts.empty() ? std::to_string(constant) : fmt::format("({} * {})", constant, parts[0]);
            }
            case ExprKind::FloorDiv:
            case ExprKind::Mod: {
                const std::optional<int64_t> by = e.arg(1).as_int();
                if (!by) throw NotAffine{free_symbols(e.arg(1))};
                if (*by < 1) throw NotASum{"a division by 0"};
                return e.is(ExprKind::Mod) ? fmt::format("(({}) mod {})", index(e.arg(0)), *by)
                                           : fmt::format("floor(({})/{})", index(e.arg(0)), *by);
            }
            case ExprKind::Min:
            case ExprKind::Max:
                for (const Expr& a : e.args()) parts.push_back(index(a));
                return fmt::format("{}({})", e.is(ExprKind::Min) ? "min" : "max", fmt::join(parts, ", "));
            default: throw NotASum{"an index that is computed"};
        }
    }

    static std::string condition(const Expr& c, bool holds = true) {
        auto both = [&](const char* op) {
            return fmt::format("({} {} {})", condition(c.arg(0), holds), op, condition(c.arg(1), holds));
        };
        switch (c.kind()) {
            case ExprKind::Const: return (c.node().integer != 0) == holds ? "(0 = 0)" : "(0 = 1)";
            case ExprKind::Not: return condition(c.arg(0), !holds);
            case ExprKind::And: return both(holds ? "and" : "or");
            case ExprKind::Or: return both(holds ? "or" : "and");
            default: break;
        }
        if (c.args().size() != 2 || c.arg(0).dtype() != DType::i64 || c.node().reads)
            throw NotASum{"a condition on values"};
        auto compared = [&](const char* op, const char* denied) {
            return fmt::format("({} {} {})", index(c.arg(0)), holds ? op : denied, index(c.arg(1)));
        };
        switch (c.kind()) {
            case ExprKind::Lt: return compared("<", ">=");
            case ExprKind::Le: return compared("<=", ">");
            case ExprKind::Eq: return compared("=", "!=");
            case ExprKind::Ne: return compared("!=", "=");
            default: throw NotASum{"a condition on values"};
        }
    }
};

class Products {
  public:
    Terms of(const Expr& e) {
        switch (e.kind()) {
            case ExprKind::Const: return constant(e);
            case ExprKind::Load: {
                Addend t;
                std::vector<std::string> at;
                for (const Expr& i : e.args()) at.push_back(Text::index(i));
                t.elements.emplace_back(e.node().slot, std::move(at));
                return {t};
            }
            case ExprKind::Add:
            case ExprKind::Sub: {
                Terms out = of(e.arg(0)), more = of(e.arg(1));
                for (Addend& t : more) {
                    if (e.is(ExprKind::Sub)) t.above = -t.above;
                    out.push_back(std::move(t));
                }
                return limited(std::move(out));
            }
            case ExprKind::Neg: {
                Terms out = of(e.arg(0));
                for (Addend& t : out) t.above = -t.above;
                return out;
            }
            case ExprKind::Mul: return product(of(e.arg(0)), of(e.arg(1)));
            case ExprKind::Div: {
                if (!e.arg(1).is(ExprKind::Const)) throw NotASum{"a division"};
                Terms below = constant(e.arg(1));
                if (below.empty()) throw NotASum{"a division"};
                Terms out = of(e.arg(0));
                for (Addend& t : out) scale(t, below[0].below, below[0].above);
                return out;
            }
            case ExprKind::Select: {
                const std::string holds = Text::condition(e.arg(0)), denied = Text::condition(e.arg(0), false);
                Terms out = of(e.arg(1)), otherwise = of(e.arg(2));
                for (Addend& t : out) t.conditions.push_back(holds);
                for (Addend& t : otherwise) {
                    t.conditions.push_back(denied);
                    out.push_back(std::move(t));
                }
                return limited(std::move(out));
            }
            case ExprKind::Reduce: return sum(e);
            case ExprKind::Cast:
                if (is_float(e.arg(0).dtype()) && (e.dtype() == e.arg(0).dtype() || e.dtype() == DType::f64))
                    return of(e.arg(0));
                throw NotASum{"a cast"};
            default: throw NotASum{"a function"};
        }
    }

  private:
    int next_ = 0;

    static Terms limited(Terms t) {
        if (t.size() > 60) throw NotASum{"too many terms"};
        return t;
    }

    static void scale(Addend& t, int64_t above, int64_t below) {
        t.above *= above;
        t.below *= below;
        const int64_t g = std::gcd(t.above, t.below);
        t.above /= g;
        t.below /= g;
        if (t.below < 0) t.above = -t.above, t.below = -t.below;
        if (std::abs(t.above) > (int64_t{1} << 30) || t.below > (int64_t{1} << 30)) throw NotASum{"a constant"};
    }

    static Terms constant(const Expr& e) {
        double value = is_float(e.dtype()) ? e.node().real : static_cast<double>(e.node().integer);
        if (value == 0) return {};
        Addend t;
        while (value != std::floor(value) && t.below < (int64_t{1} << 24)) value *= 2, t.below *= 2;
        if (value != std::floor(value) || std::fabs(value) > 0x1p30) throw NotASum{"a constant"};
        t.above = static_cast<int64_t>(value);
        return {t};
    }

    Terms product(const Terms& a, const Terms& b) {
        Terms out;
        for (const Addend& x : a)
            for (const Addend& y : b) {
                Addend t = x;
                scale(t, y.above, y.below);
                t.variables.insert(t.variables.end(), y.variables.begin(), y.variables.end());
                t.conditions.insert(t.conditions.end(), y.conditions.begin(), y.conditions.end());
                t.elements.insert(t.elements.end(), y.elements.begin(), y.elements.end());
                out.push_back(std::move(t));
            }
        return limited(std::move(out));
    }

    Terms sum(const Expr& e) {
        if (e.node().reduce_op != ReduceOp::Sum) throw NotASum{"a maximum"};
        Bindings renamed;
        std::vector<std::string> variables, conditions;
        for (const ReduceAxis& axis : e.node().axes) {
            const std::string name = fmt::format("_k{}", ++next_);  // of this term: a sum squared has two
            conditions.push_back(fmt::format("0 <= {} < {}", name, Text::index(axis.extent)));
            variables.push_back(name);
            renamed.emplace(axis.var.node().name, index_var(name, std::nullopt));
        }
        Terms out = of(substitute(e.arg(0), renamed));
        for (Addend& t : out) {
            t.variables.insert(t.variables.end(), variables.begin(), variables.end());
            t.conditions.insert(t.conditions.end(), conditions.begin(), conditions.end());
        }
        return out;
    }
};

// How often each product of elements is summed, less how often on the other side: a function that must be 0.
class Difference {
  public:
    Difference(isl_ctx* ctx, const Claim& claim, const Shape& shape) : ctx_(ctx) {
        for (const std::string& s : size_symbols(claim)) {
            sizes_.push_back(s);
            limits_.push_back(s + " >= 0");
        }
        for (int64_t d = 0; d < shape.rank(); ++d) {
            outputs_.push_back(fmt::format("_o{}", d));
            limits_.push_back(fmt::format("0 <= _o{} < {}", d, Text::index(shape[d])));
        }
    }
    ~Difference() {
        for (auto& [signature, sum] : sums_) isl_pw_qpolynomial_free(sum);
    }

    void add(Addend t, int sign) {
        std::stable_sort(t.elements.begin(), t.elements.end(),
                         [](const auto& a, const auto& b) { return a.first < b.first; });
        std::vector<int> signature;
        std::vector<std::vector<std::string>> at;
        for (const auto& [slot, indices] : t.elements) {
            signature.push_back(slot);
            at.push_back(indices);
        }
        if (signature.size() > 5) throw NotASum{"a product of too many elements"};
        // Elements of one tensor change places: every order counts.
        std::vector<size_t> order(at.size());
        std::iota(order.begin(), order.end(), size_t{0});
        do {
            bool own = true;
            for (size_t i = 0; i < order.size(); ++i) own = own && signature[order[i]] == signature[i];
            if (!own) continue;
            std::vector<std::string> indices;
            for (size_t i : order) indices.insert(indices.end(), at[i].begin(), at[i].end());
            add_points(signature, t, indices, sign);
        } while (std::next_permutation(order.begin(), order.end()));
    }

    SecondOpinion verdict() const {
        for (const auto& [signature, sum] : sums_) {
            SecondOpinion here{Opinion::Agrees};
            isl_pw_qpolynomial_foreach_piece(sum, look_at, &here);
            if (here.opinion != Opinion::Agrees) return here;
        }
        return {Opinion::Agrees};
    }

  private:
    isl_ctx* ctx_;
    std::vector<std::string> sizes_, outputs_, limits_;
    std::map<std::vector<int>, isl_pw_qpolynomial*> sums_;

    void add_points(const std::vector<int>& signature, const Addend& t, const std::vector<std::string>& indices,
                    int sign) {
        std::vector<std::string> places = outputs_, from = outputs_, facts = limits_;
        from.insert(from.end(), t.variables.begin(), t.variables.end());
        facts.insert(facts.end(), t.conditions.begin(), t.conditions.end());
        for (size_t i = 0; i < indices.size(); ++i) {
            places.push_back(fmt::format("_i{}", i));
            facts.push_back(fmt::format("_i{} = {}", i, indices[i]));
        }
        const std::string text =
            fmt::format("[{}] -> {{ [{}] -> [{}] : {} }}", fmt::join(sizes_, ","), fmt::join(from, ","),
                        fmt::join(renamed(places), ","), fmt::join(with_renamed(facts), " and "));
        isl_map* map = isl_map_read_from_str(ctx_, text.c_str());
        if (!map) throw NotASum{"isl does not read " + text};
        const isl_bool once = isl_map_is_injective(map);
        isl_set* range = isl_set_compute_divs(isl_map_range(map));
        if (once != isl_bool_true || !range) {
            isl_set_free(range);
            throw NotASum{once == isl_bool_error ? "isl gives up" : "a product that is summed more than once"};
        }
        isl_val* weight = isl_val_div(isl_val_int_from_si(ctx_, sign * t.above), isl_val_int_from_si(ctx_, t.below));
        isl_qpolynomial* constant = isl_qpolynomial_val_on_domain(isl_set_get_space(range), weight);
        isl_pw_qpolynomial* more = isl_pw_qpolynomial_alloc(range, constant);
        auto [it, fresh] = sums_.try_emplace(signature, nullptr);
        it->second = fresh ? more : isl_pw_qpolynomial_add(it->second, more);
        if (!it->second) {
            sums_.erase(it);
            throw NotASum{"isl gives up"};
        }
    }

    // A part of the domain that has a point, where the function is not 0.
    static isl_stat look_at(isl_set* where, isl_qpolynomial* value, void* said) {
        auto& out = *static_cast<SecondOpinion*>(said);
        const isl_bool zero = isl_qpolynomial_is_zero(value), empty = isl_set_is_empty(where);
        if (zero == isl_bool_error || empty == isl_bool_error) {
            out = {Opinion::None, "isl gives up"};
        } else if (zero == isl_bool_false && empty == isl_bool_false) {
            char* text = isl_set_to_str(where);
            out = {Opinion::Disagrees, text ? text : ""};
            free(text);
        }
        isl_set_free(where);
        isl_qpolynomial_free(value);
        return out.opinion == Opinion::Disagrees ? isl_stat_error : isl_stat_ok;
    }

    // The output indices are in the map's range too, under other names.
    std::vector<std::string> renamed(std::vector<std::string> places) const {
        for (size_t d = 0; d < outputs_.size(); ++d) places[d] = fmt::format("_p{}", d);
        return places;
    }
    std::vector<std::string> with_renamed(std::vector<std::string> facts) const {
        for (size_t d = 0; d < outputs_.size(); ++d) facts.push_back(fmt::format("_p{} = _o{}", d, d));
        if (facts.empty()) facts.push_back("0 = 0");
        return facts;
    }
};

SecondOpinion compare(isl_ctx* ctx, const Claim& claim, const std::vector<Comprehension>& roots) {
    for (const Comprehension& root : roots) {
        Products products;
        Difference difference(ctx, claim, root.shape);
        for (Addend& t : products.of(root.left)) difference.add(std::move(t), 1);
        for (Addend& t : products.of(root.right)) difference.add(std::move(t), -1);
        SecondOpinion here = difference.verdict();
        if (here.opinion != Opinion::Agrees) return here;
    }
    return {Opinion::Agrees};
}

}  // namespace

bool has_isl() { return true; }

SecondOpinion ask_isl(const Claim& claim, uint64_t seed) {
    struct Context {
        isl_ctx* ctx = isl_ctx_alloc();
        ~Context() { isl_ctx_free(ctx); }
    } context;
    isl_options_set_on_error(context.ctx, ISL_ON_ERROR_CONTINUE);
    isl_ctx_set_max_operations(context.ctx, 4000000);
    Claim numbered = claim;
    bool symbolic = true;
    for (int round = 0; round < 8; ++round) {
        Result<std::vector<Comprehension>> roots = comprehend(numbered);
        if (!roots.ok()) return {Opinion::None, roots.error().message()};
        try {
            SecondOpinion out = compare(context.ctx, numbered, *roots);
            out.symbolic = symbolic;
            return out;
        } catch (const NotAffine& open) {
            if (open.sizes.empty()) return {Opinion::None, "an index that is not affine"};
            numbered = with_numbers(numbered, open.sizes, 1, seed + static_cast<uint64_t>(round));
            symbolic = false;
        } catch (const NotASum& beyond) {
            return {Opinion::None, beyond.why};
        }
    }
    return {};
}
#endif

}  // namespace tessera
