#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "discover/prove/comprehension.h"
#include "discover/prove/prove.h"

namespace tessera {
namespace {

using Form = Term::Form;
constexpr const char* kWindowAttrs[] = {"strides", "pads", "dilations"};

template <typename F>
void for_each_op(Rule& rule, const F& f) {
    std::function<void(Term&)> walk = [&](Term& t) {
        if (t.form == Form::Op) f(t);
        for (Term& a : t.args) walk(a);
    };
    for (Term& t : rule.pattern) walk(t);
    for (auto& [slot, t] : rule.lets) walk(t);
    for (Term& t : rule.replacement) walk(t);
}

bool has_window(const Term& t) { return t.op->attr("strides") && t.op->attr("pads"); }

const Term* given(const Term& t, std::string_view name) {
    for (const auto& [attr, value] : t.attrs)
        if (attr == name) return &value;
    return nullptr;
}

// The attribute as a variable that all windows of both sides share, where they have the same value; false where not.
bool make_variable(Claim& claim, const std::string& attr) {
    Rule& rule = claim.rule;
    std::optional<std::string> value;
    bool shared = true, some = false;
    int64_t spatial = 0;
    for_each_op(rule, [&](Term& t) {
        if (!has_window(t) || !t.op->attr(attr)) return;
        some = true;
        const Term* v = given(t, attr);
        std::string text = v ? to_string(*v, rule) : "";
        if (!value) value = text;
        shared &= *value == text && (!v || v->form == Form::List);
        if (const Term* pad = given(t, "auto_pad"); pad && attr == "pads") shared = false;
    });
    for (const RuleVariable& v : rule.variables) shared &= v.name != attr;
    // A window on the left binds it.
    std::function<bool(const Term&)> binds = [&](const Term& t) {
        return (t.form == Form::Op && has_window(t) && t.op->attr(attr)) ||
               std::any_of(t.args.begin(), t.args.end(), binds);
    };
    shared &= std::any_of(rule.pattern.begin(), rule.pattern.end(), binds);
    for (const auto& [name, shape] : claim.shapes) spatial = std::max(spatial, shape.rank() - 2);
    if (!some || !shared || spatial < 1) return false;
    int slot = static_cast<int>(rule.variables.size());
    rule.variables.push_back({attr, TermKind::Ints, ""});
    for_each_op(rule, [&](Term& t) {
        if (!has_window(t) || !t.op->attr(attr)) return;
        std::erase_if(t.attrs, [&](const auto& entry) { return entry.first == attr; });
        Term variable;
        variable.kind = TermKind::Ints;
        variable.name = attr;
        variable.slot = slot;
        t.attrs.emplace_back(attr, variable);
    });
    std::vector<Expr> list;
    int64_t count = attr == "pads" ? 2 * spatial : spatial;
    for (int64_t i = 0; i < count; ++i)
        list.push_back(symbol(fmt::format("{}_{}", attr, i)) + (attr == "pads" ? 0 : 1));
    claim.values.insert_or_assign(attr, RuleValue(std::move(list)));
    return true;
}

// Sizes that are numbers as symbols, the same for the same number at the same axis of tensors of the same rank.
Claim with_symbolic_sizes(const Claim& claim) {
    Claim out = claim;
    for (auto& [name, shape] : out.shapes)
        for (int64_t d = 0; d < shape.rank(); ++d)
            if (auto n = shape[d].as_int(); n && *n > 1)
                shape[d] = symbol(fmt::format("K{}_{}_{}", shape.rank(), d, *n));
    return out;
}

// Whether the left side may take another value for one size, beside the sizes that it takes. Most that it does not take
// are seen here, without the many draws that a window may need until it fits. A size of 1 says nothing: it broadcasts.
bool may_differ(const Claim& claim, Bindings sizes, const std::string& shared, const std::string& own) {
    const auto usual = sizes.find(shared);
    const std::optional<int64_t> n = usual == sizes.end() ? std::nullopt : usual->second.as_int();
    if (!n) return true;
    for (const int64_t by : {1, -1, 2, -2}) {
        if (*n + by < 2) continue;
        sizes.insert_or_assign(own, Expr(*n + by));
        bool left = false;
        if (build_sides(claim, sizes, &left).ok() || left) return true;
    }
    return false;
}

// Each size that stands in several places apart, where the sides still make sense.
Claim with_independent_sizes(const Claim& claim) {
    Claim out = claim;
    Bindings sizes;
    const bool fits = check_well_formed(claim, &sizes).ok();
    std::set<std::string> seen;
    for (auto& [name, shape] : out.shapes)
        for (int64_t d = 0; d < shape.rank(); ++d) {
            if (!shape[d].is(ExprKind::Var) || seen.insert(shape[d].node().name).second) continue;
            const Dim shared = shape[d];
            const std::string own = fmt::format("{}_{}{}", shared.node().name, name, d);
            shape[d] = symbol(own);
            const bool possible = !fits || may_differ(out, sizes, shared.node().name, own);
            if (!possible || !check_well_formed(out, &sizes).ok()) shape[d] = shared;
        }
    return out;
}

// Siblings that are equal parts of one tensor, as parts of whatever sizes they have themselves.
std::optional<Claim> with_own_parts(const Claim& claim) {
    const Rule& rule = claim.rule;
    if (rule.pattern.size() < 2 || rule.replacement.size() != 1) return {};
    const Term& whole = rule.replacement[0];
    const Term *axis = given(whole, "axis"), *count = given(whole, "num_outputs");
    if (whole.form != Form::Op || whole.op->name != "split" || whole.args.size() != 1 || !axis || !count) return {};
    std::vector<std::string> roots, sizes;
    for (const Term& root : rule.pattern) {
        if (root.form != Form::Op || root.bound_slot >= 0) return {};
        const std::string name = fmt::format("part{}", roots.size());
        roots.push_back(fmt::format("{}@{}", name, to_string(root, rule)));
        sizes.push_back(fmt::format("dim({}, {})", name, to_string(*axis, rule)));
    }
    Result<Rules> read =
        read_rules(fmt::format("{}: ({}) => split({}, [{}], axis={})", rule.name, fmt::join(roots, ", "),
                               to_string(whole.args[0], rule), fmt::join(sizes, ", "), to_string(*axis, rule)),
                   rule.source);
    if (!read.ok()) return {};
    Claim out{std::move(read->front()), claim.shapes, claim.values};
    out.rule.exactness = rule.exactness;
    out.rule.grows = rule.grows;
    out.rule.evidence = rule.evidence;
    return out;
}

// The forms of a claim, made one after the other as they are asked for.
class Forms {
  public:
    explicit Forms(const Claim& claim) : claim_(claim) {}

    // Until `stop` says so; the claim itself comes last.
    void each(const std::function<bool(const Claim&)>& stop) {
        std::vector<Claim> bases{claim_};
        if (std::optional<Claim> own = with_own_parts(claim_))
            if (independent(*own).shapes != independent(claim_).shapes) bases.insert(bases.begin(), *own);
        std::set<std::string> seen;
        for (int attrs : {7, 3, 5, 6, 1, 2, 4, 0}) {  // strides, pads, dilations
            if (!with_variables(claim_, attrs)) continue;
            for (size_t shape = 0; shape < 4 * bases.size(); ++shape) {
                std::optional<Claim> form = with_variables(shaped(bases[shape / 4], shape % 4), attrs);
                if (form && seen.insert(to_string(*form)).second && stop(*form)) return;
            }
        }
    }

  private:
    const Claim& claim_;
    std::map<std::string, Claim> independent_;

    const Claim& independent(const Claim& claim) {
        const std::string text = to_string(claim);
        auto found = independent_.find(text);
        if (found == independent_.end()) found = independent_.emplace(text, with_independent_sizes(claim)).first;
        return found->second;
    }

    Claim shaped(const Claim& claim, size_t how) {
        switch (how) {
            case 0: return independent(with_symbolic_sizes(claim));
            case 1: return with_symbolic_sizes(claim);
            case 2: return independent(claim);
            default: return claim;
        }
    }

    static std::optional<Claim> with_variables(Claim claim, int attrs) {
        for (int i = 0; i < 3; ++i)
            if ((attrs >> i & 1) && !make_variable(claim, kWindowAttrs[i])) return {};
        return claim;
    }
};

}  // namespace

void each_general(const Claim& claim, const std::function<bool(const Claim&)>& stop) { Forms(claim).each(stop); }

std::vector<Claim> generalise(const Claim& claim) {
    std::vector<Claim> all;
    each_general(claim, [&](const Claim& form) {
        all.push_back(form);
        return false;
    });
    return all;
}

}  // namespace tessera
