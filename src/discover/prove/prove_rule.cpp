#include "discover/prove/prove_rule.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <set>

#include "discover/check/check_cases.h"
#include "discover/check/check_exactness.h"
#include "discover/check/check_laws.h"
#include "discover/check/verify_rule.h"
#include "discover/prove/comprehension.h"
#include "rewrite/refute/refute.h"
#include "rewrite/refute/sample.h"
#include "rewrite/rules/match.h"

namespace tessera {
namespace {

// Whether the rule applies with these sizes: both sides can be built, and have one type.
bool applies(const Claim& claim) { return build_sides(claim).ok(); }

struct Place {
    std::string name;
    int64_t axis, size;
    int64_t times = 1;  // of the symbol that stands for it
    bool done = false;
};

// Sizes of a drawn claim as symbols: alone where the rule applies with another size there, as a multiple where it
// applies with multiples (groups), with others where it applies with all of them changed, and as a number where none is
// so.
class Abstraction {
  public:
    explicit Abstraction(const Claim& drawn) : drawn_(drawn), out_(drawn) {
        for (const auto& [name, shape] : drawn.shapes)
            for (int64_t d = 0; d < shape.rank(); ++d)
                if (auto n = shape[d].as_int(); n && *n > 1) places_.push_back({name, d, *n});
    }

    Claim run() {
        for (Place& p : places_) replace({&p});
        for (Place& p : places_)
            for (int64_t k = 2; k <= p.size && !p.done; ++k)
                if (p.size % k == 0) replace({&p}, {k});
        for (size_t i = 0; i < places_.size(); ++i) {
            std::vector<Place*> same;
            for (size_t j = i; j < places_.size(); ++j)
                if (!places_[j].done && places_[j].size == places_[i].size) same.push_back(&places_[j]);
            // Two that go together, or all.
            for (size_t j = 1; j < same.size() && !places_[i].done; ++j) replace({same[0], same[j]});
            if (!places_[i].done && same.size() > 2) replace(same);
        }
        for (Place& p : places_)
            for (Place& q : places_)
                if (!p.done && !q.done && q.size < p.size && p.size % q.size == 0)
                    replace({&p, &q}, {p.size / q.size, 1});
        return std::move(out_);
    }

  private:
    const Claim& drawn_;
    Claim out_;
    std::vector<Place> places_;
    int next_ = 0;

    void replace(const std::vector<Place*>& together, std::vector<int64_t> times = {}) {
        if (std::any_of(together.begin(), together.end(), [](const Place* p) { return p->done; })) return;
        times.resize(together.size(), times.empty() ? 1 : times.back());
        Claim other = drawn_;
        for (int64_t size : {97, 14}) {
            for (size_t i = 0; i < together.size(); ++i)
                other.shapes[together[i]->name][together[i]->axis] = Dim(size * times[i]);
            if (!applies(other)) return;
        }
        const Expr s = symbol(fmt::format("N{}", next_++));
        for (size_t i = 0; i < together.size(); ++i) {
            out_.shapes[together[i]->name][together[i]->axis] = s * times[i];
            together[i]->done = true;
        }
    }
};

Claim abstracted(const Claim& drawn) { return Abstraction(drawn).run(); }

std::optional<Claim> draw_claim(const Rule& rule, const Sampler& sampler, Draw& draw) {
    SampleOptions options;
    options.floats = DType::f32;
    std::optional<Sample> sample = sampler.draw(draw, options);
    if (!sample) return {};
    std::optional<Match> match = find_match(rule, *sample->graph->outputs()[0], [](const Match&) { return true; });
    if (!match) return {};
    Claim claim{rule, {}};
    auto shape_of = [&](Value* v) -> std::optional<Shape> {
        if (!v->type().is_tensor() || v->type().tensor().dtype != DType::f32) return {};
        const Shape& shape = v->type().tensor().shape;
        if (auto sizes = shape.sizes()) return Shape(*sizes);
        auto bound = sample->sizes.find(v->name());
        return bound == sample->sizes.end() ? std::nullopt : std::optional<Shape>(Shape(bound->second));
    };
    for (size_t i = 0; i < rule.variables.size(); ++i) {
        const RuleVariable& variable = rule.variables[i];
        const RuleValue& v = match->slots[i];
        bool is_let = false, is_bound = false;
        for (const auto& [slot, term] : rule.lets) is_let |= slot == static_cast<int>(i);
        if (is_let) continue;
        if (auto* value = std::get_if<Value*>(&v)) {
            if ((*value)->kind() == Value::Kind::Result) is_bound = true;  // y@op(...)
            if ((*value)->contents() || ((*value)->is_constant() && is_int((*value)->tensor()->dtype()))) {
                if (!(*value)->is_constant()) return {};
                std::vector<Expr> list;
                const Tensor& t = *(*value)->tensor();
                for (int64_t k = 0; k < t.elements(); ++k) list.emplace_back(t.int_at(k));
                if (t.rank() == 1)
                    claim.values.emplace(variable.name, std::move(list));
                else if (t.rank() == 0)
                    claim.values.emplace(variable.name, list[0]);
                else
                    return {};
                continue;
            }
            if (is_bound) continue;
            std::optional<Shape> shape = shape_of(*value);
            if (!shape) return {};
            claim.shapes.emplace(variable.name, *shape);
        } else if (auto* list = std::get_if<std::vector<Value*>>(&v)) {
            for (size_t k = 0; k < list->size(); ++k) {
                std::optional<Shape> shape = shape_of((*list)[k]);
                if (!shape) return {};
                claim.shapes.emplace(fmt::format("{}.{}", variable.name, k), *shape);
            }
        } else if (!std::holds_alternative<std::monostate>(v)) {
            claim.values.emplace(variable.name, v);
        }
    }
    if (!applies(claim)) return {};
    return abstracted(claim);
}

std::string where_text(const Claim& claim);

std::string attr_text(const Attr& a) {
    if (auto* n = std::get_if<int64_t>(&a)) return std::to_string(*n);
    if (auto* x = std::get_if<float>(&a)) return fmt::format("{}", *x);
    if (auto* text = std::get_if<std::string>(&a)) return *text;
    if (auto* list = std::get_if<std::vector<int64_t>>(&a)) return fmt::format("[{}]", fmt::join(*list, ","));
    return "...";
}

// What a claim is for beside shapes: attributes.
std::string attributes_text(const Claim& claim) {
    Claim bare = claim;
    bare.shapes.clear();
    return where_text(bare);
}

std::string where_text(const Claim& claim) {
    std::string text = shapes_text(claim);
    for (const auto& [name, value] : claim.values) {
        if (auto* list = std::get_if<std::vector<Expr>>(&value)) text += fmt::format(" {}: {}", name, Shape(*list));
        if (auto* one = std::get_if<Expr>(&value)) text += fmt::format(" {}: {}", name, to_string(*one));
        if (auto* real = std::get_if<double>(&value)) text += fmt::format(" {}: {}", name, *real);
        if (auto* word = std::get_if<std::string>(&value)) text += fmt::format(" {}: {}", name, *word);
        if (auto* rest = std::get_if<AttrMap>(&value))
            for (const auto& [attr, given] : *rest) text += fmt::format(" {}={}", attr, attr_text(given));
    }
    return text;
}

// Terms without a name get one, so that a match binds them.
Rule with_names(Rule rule) {
    std::function<void(Term&)> walk = [&](Term& t) {
        if (t.form == Term::Form::Variable && t.slot < 0) {
            t.name = fmt::format("any{}", rule.variables.size());
            t.slot = static_cast<int>(rule.variables.size());
            rule.variables.push_back({t.name, t.kind, ""});
        }
        for (Term& a : t.args) walk(a);
        for (auto& [name, a] : t.attrs) walk(a);
    };
    for (Term& t : rule.pattern) walk(t);
    return rule;
}

}  // namespace

std::vector<Claim> draw_claims(const Rule& written, int count) {
    constexpr int kDraws = 1500;
    const Rule rule = with_names(written);
    Sampler sampler(rule);
    std::set<std::string> seen;
    std::map<std::string, std::vector<Claim>> by_attributes;
    size_t found = 0;
    for (int i = 0; i < kDraws && found < 4 * static_cast<size_t>(count); ++i) {
        Draw draw(7, fmt::format("{}/{}", rule.name, i));
        std::optional<Claim> claim = draw_claim(rule, sampler, draw);
        if (!claim || !seen.insert(where_text(*claim)).second) continue;
        by_attributes[attributes_text(*claim)].push_back(std::move(*claim));
        ++found;
    }
    // Some of every attribute before more of one.
    std::vector<Claim> out;
    for (size_t i = 0; out.size() < std::min(found, static_cast<size_t>(count)); ++i)
        for (auto& [attributes, claims] : by_attributes)
            if (i < claims.size() && static_cast<int>(out.size()) < count) out.push_back(std::move(claims[i]));
    return out;
}

namespace {

// Whether a claim is all that the rule's own conditions admit.
bool is_all_of(const Claim& claim, const Rule& rule) {
    Claim bare{rule, claim.shapes, claim.values};
    if (!check_names(bare).ok()) return false;
    bare.rule.conditions.clear();
    for (const RuleVariable& v : rule.variables)
        if (claim.shapes.contains(v.name) && v.constraint.empty()) return false;
    const Rule needed = to_rule(bare);
    std::set<std::string> stated;
    for (const Term& c : rule.conditions) stated.insert(to_string(c, rule));
    return std::all_of(needed.conditions.begin(), needed.conditions.end(),
                       [&](const Term& c) { return stated.contains(to_string(c, needed)); });
}

}  // namespace

namespace {

// The steps of one case of a rule; none, and the reason, where they are not found.
std::optional<std::string> steps_of_case(const Rule& one, bool by_meaning, std::string& reason) {
    Result<checker::ElementRule> element = checker::element_rule(one, by_meaning);
    if (!element.ok()) {
        reason = element.error().message();
        return {};
    }
    const std::string kind = by_meaning ? "elements by meaning\n" : "elements\n";
    Status holds = verify_rule(one, {{one.name, {{}, {}, {kind}}}});
    if (holds.ok()) return "";
    checker::rewrite_by_laws(*element);
    Result<Claim> claim = checker::claim_of(*element);
    Result<Proof> proof = claim.ok() ? prove(*claim) : Result<Proof>(claim.error());
    reason = proof.ok() ? proof->reason : proof.error().message();
    if (proof.ok() && proof->proved()) return proof->certificate.text;
    reason += fmt::format("; {}; of one element: {}", holds.error().message(), to_string(element->rule));
    for (const auto& [name, e] : element->elements) reason += fmt::format("; {} is {}", name, e.what);
    return {};
}

}  // namespace

RuleProof prove_for_any_rank(const Rule& rule) {
    RuleProof out;
    const Result<std::vector<Rule>> cases = checker::cases_of(rule);
    if (!cases.ok()) {
        out.reason = cases.error().message();
        return out;
    }
    for (bool by_meaning : {false, true}) {
        const std::string kind = by_meaning ? "elements by meaning\n" : "elements\n";
        std::string steps;
        bool found = true, empty = true;
        for (const Rule& one : *cases) {
            const std::optional<std::string> part = steps_of_case(one, by_meaning, out.reason);
            found = part.has_value();
            if (!found) break;
            empty &= part->empty();
            steps += (cases->size() > 1 ? "case\n" : "") + *part;
        }
        if (!found) continue;
        if (empty) steps.clear();
        Status holds = verify_rule(rule, {{rule.name, {{}, {}, {kind + steps}}}});
        if (holds.ok()) {
            out.proved = true;
            out.where = "any rank";
            out.entry = fmt::format("rule {}\n{}{}end\n", rule.name, kind, steps);
            return out;
        }
        out.reason = holds.error().message();
    }
    return out;
}

RuleProof prove_rule(const Rule& rule) {
    constexpr int kClaims = 32;
    RuleProof out = prove_for_any_rank(rule);
    if (out.proved) return out;
    out = {};
    std::set<int64_t> ranks;
    for (const Claim& claim : draw_claims(rule, kClaims)) {
        Result<Proof> proof = prove(claim, {.certificate = false});
        if (!proof.ok() || !proof->proved()) {
            out.reason =
                fmt::format("{} (where {})", proof.ok() ? proof->reason : proof.error().message(), where_text(claim));
            out.proved = false;
            return out;
        }
        // A proof is about real numbers; bits are the checker's to judge.
        if (rule.exactness == Exactness::Exact && exactness_of(claim) != Exactness::Exact) {
            out.reason = fmt::format("it is said to be exact, and its sides do not do the same operations (where {})",
                                     where_text(claim));
            out.proved = false;
            return out;
        }
        if (out.claims++ == 0) out.where = where_text(claim);
        if (!out.proved && is_all_of(claim, rule)) {
            out.proved = true;
            out.where = where_text(claim);
        }
        for (const auto& [name, shape] : claim.shapes) ranks.insert(shape.rank());
    }
    if (out.claims == 0) {
        out.reason = "no shapes of floats were found that it matches";
        return out;
    }
    if (out.proved) return out;
    if (Result<Verdict> tried = refute(rule, {.instances = 60, .draws = 2000, .minimise = false});
        tried.ok() && tried->kind == Verdict::Kind::Refuted) {
        out.reason = fmt::format("{} cases hold, and random graphs refute it", out.claims);
        return out;
    }
    out.by_cases = true;
    out.reason = fmt::format("{} cases hold, ranks {} to {}; it says nothing of others: {}", out.claims,
                             ranks.empty() ? 0 : *ranks.begin(), ranks.empty() ? 0 : *ranks.rbegin(), out.where);
    return out;
}

}  // namespace tessera
