#include "rewrite/refute/refute.h"

#include <limits>

#include "base/clock.h"
#include "graph/text/literal.h"
#include "graph/text/print.h"
#include "graph/verify.h"
#include "rewrite/refute/compare_sides.h"
#include "rewrite/rules/apply_rules.h"

namespace tessera {
namespace {

constexpr int kUnchanged = 5;  // graphs that the rule leaves as they are, for each that is asked for
constexpr int kFewest = 10;    // graphs without which a rule is not said to hold
constexpr double kLargeRoundoff = 1e-6, kDoubles = 1e-9;
constexpr int kBroadDraws = 4;        // of inputs that show what cancels
constexpr int kWideDraws = 6;         // of inputs over the whole range of a type
constexpr int kSmallerDraws = 400;    // graphs drawn to find a smaller counterexample
constexpr int kSimplerElements = 64;  // elements of inputs that are simplified

// One way to try a rule.
struct Trial {
    SampleOptions sample;
    bool field = false;
    bool fold = false;  // what the rule makes of constants is computed at once
    std::vector<Values> values = {};
    bool bitwise = false;
};

Trial plan(Exactness exactness, Draw& draw) {
    Trial trial;
    const int64_t pick = draw.below(100);
    trial.fold = draw.chance(40);
    if (exactness == Exactness::Exact) {
        trial.bitwise = true;
        trial.sample.integers = pick < 25;
        trial.sample.mixed = trial.sample.bytes = draw.chance(30);
        trial.sample.special = draw.chance(30);
        trial.sample.extremes = pick % 10 < 3;
        trial.sample.literals = true;
        trial.sample.floats = pick < 60 ? DType::f64 : pick < 80 ? DType::f32 : pick < 92 ? DType::f16 : DType::bf16;
        trial.values = {Values::Special, Values::Ordinary, Values::Special};
    } else {
        trial.sample.integers = pick < 15;
        trial.sample.floats = pick < 75 ? DType::f64 : pick < 88 ? DType::f32 : pick < 95 ? DType::f16 : DType::bf16;
        trial.values = {Values::Whole, Values::Ordinary};
        if (exactness == Exactness::Reassociates) {
            trial.sample.mixed = draw.chance(20);
            trial.sample.extremes = pick % 5 == 0;
            trial.values.push_back(Values::Extreme);
            trial.values.push_back(Values::Large);
        }
    }
    trial.field = !trial.sample.integers && !trial.sample.mixed && !trial.sample.special &&
                  exactness != Exactness::Approximates && !trial.fold;
    return trial;
}

const Attr* given_or_default(const Node& node, const AttrDef& def) {
    if (auto it = node.attrs().find(def.name); it != node.attrs().end()) return &it->second;
    return def.fallback ? &*def.fallback : nullptr;
}

// The same ops with the same attributes on the same values, one after the other.
bool writes_the_same(const Graph& a, const Graph& b) {
    if (a.nodes().size() != b.nodes().size() || a.outputs().size() != b.outputs().size()) return false;
    for (const Value* v : a.outputs())
        if (!v->type().is_tensor()) return false;
    std::map<const Value*, const Value*> same;
    for (size_t i = 0; i < a.inputs().size(); ++i) same[a.inputs()[i].get()] = b.inputs()[i].get();
    auto are_same = [&](const Value* x, const Value* y) {
        if (!x || !y) return x == y;
        if (x->tensor() && y->tensor()) {
            const Tensor &s = *x->tensor(), &t = *y->tensor();
            return s.dtype() == t.dtype() && s.sizes() == t.sizes() && s.dtype() != DType::string &&
                   std::memcmp(s.data(), t.data(), static_cast<size_t>(s.bytes())) == 0;
        }
        auto it = same.find(x);
        return it != same.end() && it->second == y;
    };
    for (size_t n = 0; n < a.nodes().size(); ++n) {
        const Node &x = *a.nodes()[n], &y = *b.nodes()[n];
        if (&x.op() != &y.op() || x.inputs().size() != y.inputs().size() || x.output_count() != y.output_count())
            return false;
        for (size_t i = 0; i < x.inputs().size(); ++i)
            if (!are_same(x.inputs()[i], y.inputs()[i])) return false;
        for (const AttrDef& def : x.op().attrs) {
            const Attr *l = given_or_default(x, def), *r = given_or_default(y, def);
            if (!l != !r || (l && *l != *r)) return false;
        }
        for (size_t i = 0; i < x.output_count(); ++i) same[x.output(i)] = y.output(i);
    }
    for (size_t i = 0; i < a.outputs().size(); ++i)
        if (!are_same(a.outputs()[i], b.outputs()[i])) return false;
    return true;
}

bool has_float_attributes(const Term& t) {
    if (t.form == Term::Form::Op)
        for (const AttrDef& a : t.op->attrs)
            if (a.kind == AttrKind::Float || a.kind == AttrKind::Floats) return true;
    return std::any_of(t.args.begin(), t.args.end(), [](const Term& a) { return has_float_attributes(a); });
}

// Whether the right side computes an attribute that is rounded to f32.
bool computes_float_attributes(const Rule& rule) {
    auto computes = [](auto& self, const Term& t) -> bool {
        if (t.form == Term::Form::Op)
            for (const auto& [name, value] : t.attrs)
                if (const AttrDef* def = t.op->attr(name);
                    def && value.form == Term::Form::Call &&
                    (def->kind == AttrKind::Float || def->kind == AttrKind::Floats))
                    return true;
        return std::any_of(t.args.begin(), t.args.end(), [&](const Term& a) { return self(self, a); });
    };
    return std::any_of(rule.replacement.begin(), rule.replacement.end(),
                       [&](const Term& t) { return computes(computes, t); }) ||
           std::any_of(rule.lets.begin(), rule.lets.end(), [&](const auto& l) { return computes(computes, l.second); });
}

// Whether the right side computes a float that becomes a constant of the elements' type.
bool computes_constants(const Rule& rule) {
    auto computes = [](auto& self, const Term& t) -> bool {
        if (t.form == Term::Form::Call) return t.kind == TermKind::Float;
        return t.form == Term::Form::Op &&
               std::any_of(t.args.begin(), t.args.end(), [&](const Term& a) { return self(self, a); });
    };
    auto any = [&](const Term& t) { return computes(computes, t); };
    return std::any_of(rule.replacement.begin(), rule.replacement.end(), any) ||
           std::any_of(rule.lets.begin(), rule.lets.end(), [&](const auto& l) { return any(l.second); });
}

bool has_float_attributes(const Rule& rule) {
    for (const auto* terms : {&rule.pattern, &rule.replacement})
        for (const Term& t : *terms)
            if (has_float_attributes(t)) return true;
    return std::any_of(rule.lets.begin(), rule.lets.end(),
                       [](const auto& l) { return has_float_attributes(l.second); });
}

std::string tensor_text(const Tensor& t) {
    std::string out = t.rank() == 0 ? "" : "[";
    for (int64_t i = 0; i < t.elements(); ++i) out += (i ? ", " : "") + element_text(t, i);
    return out + (t.rank() == 0 ? "" : "]") + " : " + to_string(type_of(Datum(t)));
}

class Refutation {
  public:
    Refutation(const Rule& rule, const RefuteOptions& options)
        : rule_(rule),
          options_(options),
          sampler_(rule),
          rounds_attributes_(computes_float_attributes(rule)),
          rounds_constants_(computes_constants(rule)) {
        verdict_.rule = rule.name;
        verdict_.seed = options.seed;
    }

    Result<Verdict> run() {
        const double began = thread_seconds();  // what other programs do changes no verdict
        auto seconds = [&] { return thread_seconds() - began; };
        while (verdict_.instances < options_.instances && verdict_.draws < options_.draws &&
               unchanged_ < kUnchanged * options_.instances) {
            if (options_.cancel && options_.cancel->load(std::memory_order_relaxed))
                return Error(Code::E0410, "the check of {} was cancelled", rule_.name);
            if (verdict_.draws % 64 == 0 && seconds() > options_.seconds) break;
            Draw draw(options_.seed, fmt::format("{}/{}", rule_.name, verdict_.draws++));
            Trial trial = plan(rule_.exactness, draw);
            trial.field &= !rounds_attributes_;
            std::optional<Pair> pair = draw_pair(trial, draw);
            if (!pair) continue;
            // Where the rule wrote what was there before, nothing is learnt.
            if (writes_the_same(*pair->sample.graph, *pair->right)) {
                ++unchanged_;
                continue;
            }
            std::optional<Found> found = compare(*pair, trial, draw, true);
            if (!found) continue;
            if (options_.minimise) minimise(*found, trial);
            verdict_.kind = Verdict::Kind::Refuted;
            verdict_.counterexample = describe(*found);
            return verdict_;
        }
        if (verdict_.instances == 0) verdict_.instances = unchanged_;
        const bool enough = verdict_.instances >= std::min(kFewest, options_.instances);
        verdict_.kind = enough ? Verdict::Kind::Holds : Verdict::Kind::Untested;
        return verdict_;
    }

  private:
    struct Pair {
        Sample sample;
        std::unique_ptr<Graph> right;
        Sides sides(const Rule& rule, const Trial& trial) const {
            Sides sides{&sample, sample.graph.get(), right.get(), rule.exactness, trial.bitwise};
            sides.float_attributes = has_float_attributes(rule);
            sides.computed = computed_types(*sample.graph);
            return sides;
        }
        int64_t elements() const {
            int64_t n = 0;
            for (const auto& [name, sizes] : sample.sizes) n += element_count(sizes).value() + int64_t(sizes.size());
            for (const auto& v : sample.graph->constants()) n += v->tensor()->elements() + v->tensor()->rank();
            return n;
        }
    };
    // A pair on which the sides differ, and the values that show it; none where the field showed it.
    struct Found {
        Pair pair;
        std::string how, difference;
        std::optional<Inputs> inputs = {};
    };

    std::optional<Pair> draw_pair(const Trial& trial, Draw& draw) {
        std::optional<Sample> sample = sampler_.draw(draw, trial.sample);
        if (!sample) return std::nullopt;
        Pair pair{std::move(*sample), {}};
        pair.right = pair.sample.graph->clone();
        pair.right->set_name("right");
        PassContext context;
        context.precision = Precision::Fast;
        if (!trial.fold) context.fold_limit = std::numeric_limits<int64_t>::min() / 2;
        if (!apply_rule(rule_, *pair.right->outputs()[0], context, true)) return std::nullopt;
        pair.right->sort();
        pair.right->erase_unused();
        return pair;
    }

    // `count`: towards the verdict.
    std::optional<Found> compare(Pair& pair, const Trial& trial, Draw& draw, bool count) {
        std::vector<std::string> faults = violations(*pair.right);
        if (!faults.empty()) return Found{std::move(pair), "the rewritten graph", faults[0]};
        Sides sides = pair.sides(rule_, trial);
        bool compared = false, undefined = false, floats = false, elements = false;
        const bool narrower = narrows(sides.computed, computed_types(*pair.right));
        const bool reassociates = rule_.exactness == Exactness::Reassociates && !narrower;
        const bool may_round =
            sides.computed.roundoff > kDoubles && (reassociates || rule_.exactness == Exactness::Approximates);
        const bool wider = may_round && reassociates && !trial.fold && !rounds_constants_;
        const bool stores = stores_floats(*pair.right);
        auto in_wider = [&](Inputs& inputs) -> std::optional<Found> {
            if (!wider) return std::nullopt;
            Comparison c = compare_wider(sides, inputs);
            if (c.outcome != Comparison::Outcome::Differ || !c.floats_differ) return std::nullopt;
            return Found{std::move(pair), "floats, computed in f64", c.difference, std::move(inputs)};
        };
        auto by_values = [&](Values values) -> std::optional<Found> {
            Inputs inputs = draw_inputs(pair.sample, values, draw);
            // Floats of 8 bits and less are stored: they saturate or not, and overflow in no op.
            sides.may_overflow = values == Values::Large && !stores;
            // Functions such as exp make much of how a large number was rounded.
            if (values == Values::Large && sides.computed.roundoff > kLargeRoundoff) return in_wider(inputs);
            Comparison c = compare_values(sides, inputs);
            undefined |= c.undefined || c.outcome == Comparison::Outcome::Nothing;
            floats |= c.has_floats;
            compared |= c.outcome == Comparison::Outcome::Agree;
            elements |= c.elements > 0;
            if (c.outcome == Comparison::Outcome::Agree && c.has_floats) return in_wider(inputs);
            if (c.outcome != Comparison::Outcome::Differ) return std::nullopt;
            // Where numbers cancel out, narrow floats leave nothing but how they were rounded.
            const bool rounded = c.floats_differ == (rule_.exactness == Exactness::Reassociates);
            if (may_round && rounded && agree_when_wider(sides, inputs)) return std::nullopt;
            std::string how = values == Values::Special ? "special values" : c.floats_differ ? "floats" : "integers";
            return Found{std::move(pair), how, c.difference, std::move(inputs)};
        };
        for (Values values : trial.values) {
            if (auto found = by_values(values)) return found;
        }
        // Arithmetic that moves into a narrower type overflows, and underflows, where it did not.
        if (rule_.exactness == Exactness::Reassociates && narrower)
            for (int again = 0; again < kWideDraws; ++again)
                if (auto found = by_values(Values::Wide)) return found;
        const bool singles = trial.sample.floats == DType::f32 && !trial.sample.integers && !trial.sample.mixed;
        if (wider && singles)
            if (auto found = by_cancellation(pair, sides, draw)) return found;
        // What is not defined for every number may be for those above 0.
        if (undefined)
            if (auto found = by_values(Values::Positive)) return found;
        if (count && compared && !elements) {
            ++unchanged_;  // nothing was compared
        } else if (count && compared) {
            ++verdict_.instances;
            ++(trial.bitwise ? verdict_.by_bits : floats ? verdict_.by_floats : verdict_.by_integers);
        }
        if (!trial.field) return std::nullopt;
        bool beyond = false;
        for (int again = 0; again < 2; ++again) {
            Comparison c = compare_in_field(sides, draw, beyond);
            if (c.outcome == Comparison::Outcome::Differ) return Found{std::move(pair), "the field", c.difference};
            if (c.outcome != Comparison::Outcome::Agree) continue;
            if (count && !compared) ++verdict_.instances;
            if (count) ++verdict_.by_field;
            break;
        }
        if (count) verdict_.beyond_field += beyond;
        return std::nullopt;
    }

    // Terms of the right side that cancel over the reals leave nothing but how they were rounded: for most numbers, not
    // where one side happens to be on the other side of a step.
    std::optional<Found> by_cancellation(Pair& pair, const Sides& sides, Draw& draw) {
        int64_t elements = 0, lost = 0;
        std::string difference;
        Inputs shown;
        for (int again = 0; again < kBroadDraws; ++again) {
            Inputs inputs = draw_inputs(pair.sample, Values::Broad, draw);
            Losses losses = losses_by_cancellation(sides, inputs);
            elements += losses.elements;
            lost += losses.lost;
            if (losses.lost == 0) continue;
            difference = losses.difference;
            shown = std::move(inputs);
        }
        if (elements < kBroadDraws || 4 * lost < elements) return std::nullopt;
        return Found{std::move(pair), "floats, rounded to f32", difference, std::move(shown)};
    }

    // A smaller graph on which the sides differ too, then simpler values.
    void minimise(Found& found, Trial trial) {
        trial.sample.tiny = true;
        for (int i = 0; i < kSmallerDraws; ++i) {
            Draw draw(options_.seed, fmt::format("{}/smaller/{}", rule_.name, i));
            std::optional<Pair> pair = draw_pair(trial, draw);
            if (!pair || pair->elements() >= found.pair.elements()) continue;
            if (auto smaller = compare(*pair, trial, draw, false)) found = std::move(*smaller);
        }
        if (!found.inputs) return;
        const Sides sides = found.pair.sides(rule_, trial);
        int left = kSimplerElements;
        for (auto& [name, datum] : *found.inputs) {
            if (found.pair.sample.fixed.contains(name)) continue;
            const Tensor t = datum.tensor();
            if (t.dtype() == DType::string) continue;
            for (int64_t i = 0; i < t.elements() && left > 0; ++i, --left) {
                const Tensor before = datum.tensor();
                for (double simple : {0.0, 1.0, 2.0, -1.0}) {
                    if (simple <= 0 && found.pair.sample.positive.contains(name)) continue;
                    if (is_float(t.dtype()) ? before.real_at(i) == simple : before.int_at(i) == int64_t(simple)) break;
                    Tensor changed = *Tensor::zeros(t.dtype(), t.sizes());
                    std::memcpy(changed.mutable_data(), before.data(), static_cast<size_t>(before.bytes()));
                    if (is_float(t.dtype()))
                        changed.set_real(i, simple);
                    else
                        changed.set_int(i, static_cast<int64_t>(simple));
                    datum = changed;
                    Comparison c = compare_values(sides, *found.inputs);
                    if (c.outcome == Comparison::Outcome::Differ) {
                        found.difference = c.difference;
                        break;
                    }
                    datum = before;
                }
            }
        }
    }

    Counterexample describe(const Found& found) const {
        Counterexample out;
        out.left = print(*found.pair.sample.graph);
        out.right = print(*found.pair.right);
        out.how = found.how;
        out.difference = found.difference;
        if (found.inputs)
            for (const auto& [name, datum] : *found.inputs) out.inputs.emplace_back(name, tensor_text(datum.tensor()));
        return out;
    }

    const Rule& rule_;
    const RefuteOptions& options_;
    Sampler sampler_;
    const bool rounds_attributes_, rounds_constants_;
    Verdict verdict_;
    int unchanged_ = 0;  // graphs that the rule left as they were, or that have no elements
};

}  // namespace

std::string_view name_of(Verdict::Kind kind) {
    return kind == Verdict::Kind::Holds ? "holds" : kind == Verdict::Kind::Refuted ? "refuted" : "untested";
}

std::string Counterexample::to_string() const {
    std::string text = left + right;
    for (const auto& [name, elements] : inputs) text += fmt::format("{} = {}\n", name, elements);
    return text + fmt::format("by {}: {}\n", how, difference);
}

std::string Verdict::to_string() const {
    std::string text =
        fmt::format("{}: {}, {} graphs of {} drawn, seed {}\n", rule, name_of(kind), instances, draws, seed);
    if (counterexample) text += counterexample->to_string();
    return text;
}

Result<Verdict> refute(const Rule& rule, const RefuteOptions& options) { return Refutation(rule, options).run(); }

Status as_status(const Rule& rule, const Verdict& verdict) {
    if (verdict.kind == Verdict::Kind::Holds) return {};
    if (verdict.kind == Verdict::Kind::Untested)
        return Error(Code::E0305, "{}: the rule is untested: {} found that it matches", rule.name,
                     verdict.instances == 0 ? "no graph was" : fmt::format("only {} graphs were", verdict.instances))
            .at(rule.source)
            .note("{} graphs sampled, seed {}", verdict.draws, verdict.seed)
            .hint("its condition may never hold, or its two sides have different types");
    return Error(Code::E0305, "{} changes what this graph computes: {}", rule.name, verdict.counterexample->difference)
        .at(rule.source)
        .note("seed {}\n{}", verdict.seed, verdict.counterexample->to_string());
}

}  // namespace tessera
