#include "discover/prove/prove_rule.h"

#include <algorithm>
#include <set>

#include "discover/prove/comprehension.h"
#include "rewrite/refute/sample.h"
#include "rewrite/rules/match.h"

namespace tessera {
namespace {

// Whether the rule applies with these sizes: both sides can be built, and have one type.
bool applies(const Claim& claim) { return build_sides(claim).ok(); }

// Sizes of a drawn claim as symbols: alone where the rule applies with another size there, with all others of the same
// number where it does not, and as a number where neither is so.
Claim abstracted(const Claim& drawn) {
    Claim out = drawn;
    struct Place {
        std::string name;
        int64_t axis, size;
        bool done = false;
    };
    std::vector<Place> places;
    for (const auto& [name, shape] : drawn.shapes)
        for (int64_t d = 0; d < shape.rank(); ++d)
            if (auto n = shape[d].as_int(); n && *n > 1) places.push_back({name, d, *n});
    int next = 0;
    auto accepted = [&](const std::vector<Place*>& together) {
        Claim other = drawn;
        for (int64_t size : {97, 14}) {
            for (const Place* p : together) other.shapes[p->name][p->axis] = Dim(size);
            if (!applies(other)) return false;
        }
        return true;
    };
    auto replace = [&](const std::vector<Place*>& together) {
        Expr s = symbol(fmt::format("N{}", next++));
        for (const Place* p : together) out.shapes[p->name][p->axis] = s;
    };
    for (Place& p : places)
        if (accepted({&p})) {
            replace({&p});
            p.done = true;
        }
    for (size_t i = 0; i < places.size(); ++i) {
        if (places[i].done) continue;
        std::vector<Place*> same;
        for (size_t j = i; j < places.size(); ++j)
            if (!places[j].done && places[j].size == places[i].size) same.push_back(&places[j]);
        // Two that go together, or all.
        std::vector<Place*> group;
        for (size_t j = 1; j < same.size() && group.empty(); ++j)
            if (accepted({same[0], same[j]})) group = {same[0], same[j]};
        if (group.empty() && same.size() > 2 && accepted(same)) group = same;
        if (group.empty()) continue;
        replace(group);
        for (Place* p : group) p->done = true;
    }
    return out;
}

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

std::string where_text(const Claim& claim) {
    std::string text = shapes_text(claim);
    for (const auto& [name, value] : claim.values) {
        if (auto* list = std::get_if<std::vector<Expr>>(&value)) text += fmt::format(" {}: {}", name, Shape(*list));
        if (auto* one = std::get_if<Expr>(&value)) text += fmt::format(" {}: {}", name, to_string(*one));
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
    std::vector<Claim> out;
    for (int i = 0; i < kDraws && static_cast<int>(out.size()) < count; ++i) {
        Draw draw(7, fmt::format("{}/{}", rule.name, i));
        std::optional<Claim> claim = draw_claim(rule, sampler, draw);
        if (claim && seen.insert(where_text(*claim)).second) out.push_back(std::move(*claim));
    }
    return out;
}

RuleProof prove_rule(const Rule& rule) {
    constexpr int kClaims = 24;
    RuleProof out;
    std::set<int64_t> ranks;
    ProveOptions options;
    options.certificate = false;
    for (const Claim& claim : draw_claims(rule, kClaims)) {
        Result<Proof> proof = prove(claim, options);
        if (!proof.ok() || !proof->proved()) {
            out.reason =
                fmt::format("{} (where {})", proof.ok() ? proof->reason : proof.error().message(), where_text(claim));
            return out;
        }
        if (out.claims++ == 0) out.where = where_text(claim);
        for (const auto& [name, shape] : claim.shapes) ranks.insert(shape.rank());
    }
    if (out.claims == 0) {
        out.reason = "no shapes of floats were found that it matches";
        return out;
    }
    out.proved = true;
    out.where = fmt::format("{} claims, ranks {} to {}: {}", out.claims, ranks.empty() ? 0 : *ranks.begin(),
                            ranks.empty() ? 0 : *ranks.rbegin(), out.where);
    return out;
}

}  // namespace tessera
