#include "rewrite/refute/refute.h"

#include <chrono>
#include <limits>

#include "graph/text/literal.h"
#include "graph/text/print.h"
#include "graph/verify.h"
#include "rewrite/refute/compare_sides.h"
#include "rewrite/rules/apply_rules.h"

namespace tessera {
namespace {

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
        trial.sample.special = draw.chance(30);
        trial.sample.floats = pick < 60 ? DType::f64 : pick < 80 ? DType::f32 : pick < 92 ? DType::f16 : DType::bf16;
        trial.values = {Values::Special, Values::Ordinary, Values::Special};
    } else {
        trial.sample.integers = pick < 15;
        trial.sample.floats = pick < 80 ? DType::f64 : pick < 95 ? DType::f32 : DType::f16;
        trial.values = {Values::Whole, Values::Ordinary};
    }
    trial.field =
        !trial.sample.integers && !trial.sample.special && exactness != Exactness::Approximates && !trial.fold;
    return trial;
}

std::string tensor_text(const Tensor& t) {
    std::string out = t.rank() == 0 ? "" : "[";
    for (int64_t i = 0; i < t.elements(); ++i) out += (i ? ", " : "") + element_text(t, i);
    return out + (t.rank() == 0 ? "" : "]") + " : " + to_string(type_of(Datum(t)));
}

class Refutation {
  public:
    Refutation(const Rule& rule, const RefuteOptions& options) : rule_(rule), options_(options), sampler_(rule) {
        verdict_.rule = rule.name;
        verdict_.seed = options.seed;
    }

    Result<Verdict> run() {
        const auto began = std::chrono::steady_clock::now();
        auto seconds = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count(); };
        while (verdict_.instances < options_.instances && verdict_.draws < options_.draws) {
            if (options_.cancel && options_.cancel->load(std::memory_order_relaxed))
                return Error(Code::E0410, "the check of {} was cancelled", rule_.name);
            if (verdict_.draws % 64 == 0 && seconds() > options_.seconds) break;
            Draw draw(options_.seed, fmt::format("{}/{}", rule_.name, verdict_.draws++));
            Trial trial = plan(rule_.exactness, draw);
            std::optional<Pair> pair = draw_pair(trial, draw);
            if (!pair) continue;
            std::optional<Found> found = compare(*pair, trial, draw, true);
            if (!found) continue;
            if (options_.minimise) minimise(*found, trial);
            verdict_.kind = Verdict::Kind::Refuted;
            verdict_.counterexample = describe(*found);
            return verdict_;
        }
        verdict_.kind = verdict_.instances > 0 ? Verdict::Kind::Holds : Verdict::Kind::Untested;
        return verdict_;
    }

  private:
    struct Pair {
        Sample sample;
        std::unique_ptr<Graph> right;
        Sides sides(const Rule& rule, const Trial& trial) const {
            return {&sample, sample.graph.get(), right.get(), rule.exactness, trial.bitwise};
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
        const Sides sides = pair.sides(rule_, trial);
        bool compared = false, undefined = false, floats = false;
        auto by_values = [&](Values values) -> std::optional<Found> {
            Inputs inputs = draw_inputs(pair.sample, values, draw);
            Comparison c = compare_values(sides, inputs);
            undefined |= c.undefined || c.outcome == Comparison::Outcome::Nothing;
            floats |= c.has_floats;
            compared |= c.outcome == Comparison::Outcome::Agree;
            if (c.outcome != Comparison::Outcome::Differ) return std::nullopt;
            std::string how = values == Values::Special ? "special values" : c.floats_differ ? "floats" : "integers";
            return Found{std::move(pair), how, c.difference, std::move(inputs)};
        };
        for (Values values : trial.values)
            if (auto found = by_values(values)) return found;
        // What is not defined for every number may be for those above 0.
        if (undefined)
            if (auto found = by_values(Values::Positive)) return found;
        if (count && compared) {
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
    Verdict verdict_;
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
        return Error(Code::E0305, "{}: no graph was found that it applies to, so it is not known to hold", rule.name)
            .at(rule.source)
            .note("{} graphs drawn, seed {}", verdict.draws, verdict.seed)
            .hint("its condition may never hold, or its two sides have different types");
    return Error(Code::E0305, "{} changes what this graph computes: {}", rule.name, verdict.counterexample->difference)
        .at(rule.source)
        .note("seed {}\n{}", verdict.seed, verdict.counterexample->to_string());
}

}  // namespace tessera
