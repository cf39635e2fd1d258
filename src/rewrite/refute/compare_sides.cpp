#include "rewrite/refute/compare_sides.h"

#include <cmath>
#include <limits>

#include "base/numeric.h"
#include "graph/text/literal.h"
#include "graph/wider_floats.h"
#include "rewrite/refute/field.h"

namespace tessera {
namespace {

constexpr int64_t kMaxWork = 20'000'000;
constexpr double kModerate = 100;         // sums of such numbers lose little to rounding
constexpr double kOfStoredFloats = 0.1;   // coarser than this are floats of 8 bits and less
constexpr double kLost = 1000 * 0x1p-24;  // of the largest number: what sums of many f32 may be off by
constexpr int kNear = 8;                  // percent of elements that are a number of the rule, or near one

double least_of(DType dtype) {
    return dtype == DType::f64 ? 0x1p-1074 : dtype == DType::f32 ? 0x1p-149 : dtype == DType::f16 ? 0x1p-24 : 0x1p-133;
}

// What the elements of one tensor are like: a mixture shows a rule that minds one of them, tensors of one kind show
// what two of a kind do together.
struct Style {
    enum class Kind { Any, Zeros, Undefined, Extremes, Ties, Halfway, Neighbours };
    Kind kind = Kind::Any;
    double scale = 1;  // of Wide and Neighbours: around this
};

int mantissa_bits(DType dtype) {
    return dtype == DType::f64 ? 53 : dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8;
}

// Next to the middle between two numbers of a narrower type: rounded to a type between them first, it is that middle.
double next_to_halfway(DType dtype, Draw& draw) {
    const int own = mantissa_bits(dtype);
    int bits = draw.pick({8, 11, 24});
    if (bits >= own) bits = 8;
    if (bits >= own) return static_cast<double>(draw.between(-7, 7)) / 2;
    const int64_t step = draw.chance(50) ? draw.below(4) : draw.below(int64_t{1} << (bits - 1));
    const double middle = 1 + static_cast<double>(2 * step + 1) * std::ldexp(1.0, -bits);
    const double off = std::ldexp(1.0, -static_cast<int>(draw.between(std::min(bits + 1, own - 1), own - 1)));
    const double n = middle + draw.pick({off, -off, off, -off, 0.0});
    return std::ldexp(draw.chance(50) ? n : -n, static_cast<int>(draw.between(-4, 12)));
}
int64_t next_to_halfway_integer(DType dtype, Draw& draw) {
    const int width = static_cast<int>(dtype_bits(dtype)) - 1;
    const int bits = draw.pick({8, 11, 24, 53});
    if (width < bits + 3) return draw.between(0, int_max(dtype));
    const int64_t odd = (int64_t{1} << bits) | (draw.below(int64_t{1} << (bits - 1)) << 1) | 1;
    const int64_t n = (odd << draw.between(1, width - 1 - bits)) + draw.between(-1, 1);
    return is_unsigned_int(dtype) || draw.chance(50) ? n : -n;
}

double special(DType dtype, const Style& style, Draw& draw) {
    constexpr double kInf = std::numeric_limits<double>::infinity(), kNan = std::numeric_limits<double>::quiet_NaN();
    const double most = float_max(dtype), least = least_of(dtype);
    switch (style.kind) {
        case Style::Kind::Zeros: return draw.pick({0.0, -0.0, 0.0, -0.0, 1.0, -1.0});
        case Style::Kind::Undefined: return draw.pick({kNan, kInf, -kInf, 0.0, -0.0, 1.0, -1.0});
        case Style::Kind::Extremes:
            return draw.pick({most, -most, most / 2, least, -least, 0x1p53 + 1, -0x1p24 - 1, 1.0, 0.0});
        case Style::Kind::Ties: return static_cast<double>(draw.between(-7, 7)) / 2;
        case Style::Kind::Halfway: return next_to_halfway(dtype, draw);
        case Style::Kind::Neighbours: {
            const double ulp = std::ldexp(1.0, std::ilogb(style.scale) + 1 - mantissa_bits(dtype));
            return style.scale + static_cast<double>(draw.between(-1, 1)) * ulp;
        }
        case Style::Kind::Any: break;
    }
    return draw.pick({0.0, -0.0, kInf, -kInf, kNan, most, -most, least, -least, 1.0, -1.0});
}

double real(Values values, bool positive, DType dtype, const Style& style, Draw& draw) {
    if (positive) return draw.chance(80) ? 0.25 + draw.uniform() * 2 : std::pow(10, draw.uniform() * 4 - 2);
    switch (values) {
        case Values::Whole: return static_cast<double>(draw.between(-3, 3));
        case Values::Positive: return 0.05 + 0.9 * draw.uniform() + (draw.chance(25) ? 1.0 : 0.0);
        case Values::Large:
            if (draw.chance(50)) return (draw.uniform() * 2 - 1) * style.scale;
            [[fallthrough]];
        case Values::Ordinary: return (draw.uniform() * 2 - 1) * (draw.chance(20) ? 4 : 1.5);
        case Values::Broad: return (draw.uniform() * 2 - 1) * style.scale;
        case Values::Wide: return (draw.chance(40) ? -1 : 1) * style.scale * (1 + draw.uniform());
        case Values::Special:
            if (draw.chance(style.kind == Style::Kind::Any ? 55 : 80)) return special(dtype, style, draw);
            [[fallthrough]];
        default: return (draw.uniform() * 2 - 1) * (draw.chance(20) ? 4 : 1.5);
    }
}

int64_t integer(Values values, bool positive, DType dtype, Draw& draw) {
    const bool no_sign = is_unsigned_int(dtype);
    const int64_t most = int_max(dtype);
    if (values == Values::Special && !positive && draw.chance(15)) return next_to_halfway_integer(dtype, draw);
    if ((values == Values::Special || values == Values::Extreme) && draw.chance(50)) {
        // The last ones are whole numbers that f64 and f32 do not have.
        int64_t v = draw.pick<int64_t>({int_min(dtype), most, 0, 1, -1, int_min(dtype) + 1, most - 1, most / 2 + 1,
                                        (int64_t{1} << 53) + 1, -(int64_t{1} << 53) - 1, (int64_t{1} << 24) + 1});
        v = int_wrap(dtype, v);
        if (!positive || v > 0) return v;
    }
    if (values == Values::Positive || positive) return draw.between(1, 3);
    if (values == Values::Large) return int_wrap(dtype, draw.between(no_sign ? 0 : -2000, 2000));
    return int_wrap(dtype, draw.between(no_sign ? 0 : -4, 5));
}

// One of the numbers that a rule is about, or a neighbour of it.
double near(const std::vector<double>& numbers, bool special, Draw& draw) {
    const double n = draw.pick(numbers);
    if (!special) return draw.pick({n, n, -n, n + 1, n - 1, 2 * n, n / 2, n * 1.001, n * 0.999});
    return draw.pick({n, n, -n, n + 1, n - 1, 2 * n, n / 2, std::nextafter(n, 1e30), std::nextafter(n, -1e30)});
}

Style some_style(Values values, double most, Draw& draw) {
    using Kind = Style::Kind;
    Style style;
    if (values == Values::Special)
        style.kind = draw.pick({Kind::Any, Kind::Any, Kind::Zeros, Kind::Undefined, Kind::Extremes, Kind::Ties,
                                Kind::Halfway, Kind::Neighbours});
    if (style.kind == Kind::Neighbours) style.scale = std::ldexp(1 + draw.uniform(), int(draw.between(-4, 14)) * 3);
    while (style.kind == Kind::Neighbours && style.scale > most / 4) style.scale /= 64;
    // Anything between the square of which is too small, and twice of which is too large.
    if (values == Values::Large) style.scale = draw.pick({10.0, 100.0, 300.0});
    if (values == Values::Broad) style.scale = draw.pick({1.0, 1e3, 1e6});
    if (values == Values::Wide) style.scale = std::pow(most, draw.uniform() * 1.7 - 0.75);
    return style;
}

// Of the left side: what rounds to fewer digits on the right is no reassociation.
double tolerance_of(const Sides& sides) {
    const double worst = std::max(sides.float_attributes ? 1e-6 : 1e-10, sides.computed.roundoff);
    if (sides.exactness != Exactness::Approximates) return worst;
    return std::max({worst, computed_types(*sides.right).roundoff, 1e-2});
}

std::string index_text(int64_t flat, const Sizes& sizes) {
    std::vector<int64_t> at(sizes.size());
    for (size_t d = sizes.size(); d-- > 0;) {
        at[d] = flat % sizes[d];
        flat /= sizes[d];
    }
    return sizes.empty() ? "" : fmt::format("[{}]", fmt::join(at, ","));
}

std::string difference_text(size_t output, const Tensor& a, const Tensor& b, int64_t i) {
    return fmt::format("output {}{} is {} on the left and {} on the right", output, index_text(i, a.sizes()),
                       element_text(a, i), element_text(b, i));
}

bool same_bits(const Tensor& a, const Tensor& b, int64_t i) {
    if (a.dtype() == DType::string) return a.as_strings()[i] == b.as_strings()[i];
    if (is_complex(a.dtype())) {
        const size_t n = dtype_bytes(a.dtype());
        return std::memcmp(static_cast<const char*>(a.data()) + i * int64_t(n),
                           static_cast<const char*>(b.data()) + i * int64_t(n), n) == 0;
    }
    if (!is_float(a.dtype())) return a.int_at(i) == b.int_at(i);
    double x = a.real_at(i), y = b.real_at(i);
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && std::isnan(y);
    return x == y && std::signbit(x) == std::signbit(y);
}

// The largest finite number that came up.
struct Magnitude {
    double value = 0;
    void see(const Datum& d) {
        if (!d.is_tensor() || !is_float(d.tensor().dtype())) return;
        for (int64_t i = 0; i < d.tensor().elements(); ++i) {
            double x = std::fabs(d.tensor().real_at(i));
            if (std::isfinite(x)) value = std::max(value, x);
        }
    }
};

struct SideRun {
    Result<std::vector<Datum>> outputs;
    Magnitude inside;  // of everything computed
};

SideRun run_side(const Graph& graph, const Inputs& inputs) {
    Magnitude inside;
    for (const auto& [name, datum] : inputs) inside.see(datum);
    for (const auto& v : graph.constants()) inside.see(Datum(*v->tensor()));
    EvaluateOptions options;
    options.max_work = kMaxWork;
    options.observe = [&](const Value&, const Datum& d) { inside.see(d); };
    auto outputs = evaluate(graph, inputs, options);
    return {std::move(outputs), inside};
}

Comparison differ(std::string how, bool floats = false) {
    Comparison c{Comparison::Outcome::Differ, std::move(how)};
    c.floats_differ = floats;
    return c;
}

}  // namespace

Inputs draw_inputs(const Sample& sample, Values values, Draw& draw) {
    Inputs inputs;
    double most = float_max(DType::f32);  // of the narrowest type
    for (const auto& v : sample.graph->inputs())
        if (const DType t = v->type().tensor().dtype; is_float(t)) most = std::min(most, float_max(t));
    const Style shared = some_style(values, most, draw);
    const bool stores = values == Values::Large && stores_floats(*sample.graph);
    const bool alike = values == Values::Wide ? draw.chance(70) : draw.chance(50);
    for (const auto& v : sample.graph->inputs()) {
        const std::string& name = v->name();
        if (auto fixed = sample.fixed.find(name); fixed != sample.fixed.end()) {
            inputs[name] = fixed->second;
            continue;
        }
        const DType dtype = v->type().tensor().dtype;
        const bool positive = sample.positive.contains(name);
        Style style = alike ? shared : some_style(values, most, draw);
        if (stores) style.scale = 600;  // more than some of them have
        auto made = Tensor::zeros(dtype, sample.sizes.at(name));
        CHECK(made.ok());
        for (int64_t i = 0; i < made->elements(); ++i) {
            if (!sample.numbers.empty() && !positive && values != Values::Positive && draw.chance(kNear)) {
                const double n = near(sample.numbers, values == Values::Special, draw);
                const bool any = values == Values::Special || (values == Values::Large && std::isfinite(n));
                if (is_float(dtype) && (any || std::fabs(n) <= kModerate))
                    made->set_real(i, n);
                else if (is_int(dtype) && std::fabs(n) < 0x1p62)
                    made->set_int(i, int_wrap(dtype, static_cast<int64_t>(n)));
                continue;
            }
            if (dtype == DType::boolean)
                made->set_int(i, draw.chance(50));
            else if (dtype == DType::string)
                made->mutable_strings()[static_cast<size_t>(i)] = random_string(draw);
            else if (is_int(dtype))
                made->set_int(i, integer(values, positive, dtype, draw));
            else if (is_float(dtype))
                made->set_real(i, real(values, positive, dtype, style, draw));
        }
        inputs[name] = std::move(*made);
    }
    return inputs;
}

Comparison compare_values(const Sides& sides, const Inputs& inputs) {
    SideRun left = run_side(*sides.left, inputs);
    if (!left.outputs.ok()) return {};
    SideRun right = run_side(*sides.right, inputs);
    if (!right.outputs.ok()) return differ("the right side fails: " + right.outputs.error().message());
    Comparison result{Comparison::Outcome::Agree};
    const double rounding = tolerance_of(sides);
    for (size_t k = 0; k < left.outputs->size(); ++k) {
        const Datum &l = (*left.outputs)[k], &r = (*right.outputs)[k];
        if (!l.is_tensor() || !r.is_tensor()) return {};
        const Tensor &a = l.tensor(), &b = r.tensor();
        if (a.dtype() != b.dtype() || a.sizes() != b.sizes())
            return differ(fmt::format("output {} is {} on the left and {} on the right", k, to_string(type_of(l)),
                                      to_string(type_of(r))));
        const bool floats = is_float(a.dtype());
        result.has_floats |= floats;
        result.elements += a.elements();
        Magnitude out;
        out.see(l);
        // Rounding is relative to the numbers that were added up, within reason.
        double scale = sides.exactness == Exactness::Approximates
                           ? out.value
                           : std::min(std::max(left.inside.value, right.inside.value), 1e4 * std::max(1.0, out.value));
        for (int64_t i = 0; i < a.elements(); ++i) {
            if (floats && !std::isfinite(a.real_at(i))) result.undefined = true;
            if (same_bits(a, b, i)) continue;
            if (sides.bitwise) return differ(difference_text(k, a, b, i), floats);
            if (floats) {
                double x = a.real_at(i), y = b.real_at(i);
                if (!std::isfinite(x)) continue;  // undefined, or too large: not what the rule speaks of
                if (sides.may_overflow && !std::isfinite(y)) continue;
                if (std::fabs(x - y) <= rounding * scale) continue;
            } else if (is_int(a.dtype()) && sides.exactness == Exactness::Approximates) {
                if (std::fabs(a.real_at(i) - b.real_at(i)) <= 1) continue;
            }
            return differ(difference_text(k, a, b, i), floats);
        }
    }
    return result;
}

namespace {

// What a literal is rounded to, as the literal.
void restore_literals(const Tensor& narrow, Tensor& wide, const std::vector<double>& literals) {
    const DType type = narrow.dtype();
    for (int64_t i = 0; i < wide.elements(); ++i)
        for (double n : literals)
            if (n != narrow.real_at(i) && float_from_bits(type, float_to_bits(type, n)) == narrow.real_at(i))
                wide.set_real(i, n);
}

// The graph in a wider type; null where an op has no such form.
std::unique_ptr<Graph> in_wider(const Graph& graph, const WiderFloats& wider, const std::vector<double>& literals) {
    auto wide = std::make_unique<Graph>(graph.name());
    wide->info() = graph.info();
    std::unordered_map<const Value*, Value*> map;
    for (const auto& v : graph.inputs()) map[v.get()] = wide->add_input(v->name(), widened(v->type(), wider));
    for (const auto& v : graph.constants()) {
        auto t = widened(*v->tensor(), wider);
        if (!t.ok()) return nullptr;
        if (t->dtype() != v->tensor()->dtype()) restore_literals(*v->tensor(), *t, literals);
        map[v.get()] = wide->constant(std::move(*t), v->name());
    }
    for (const auto& node : graph.nodes())
        if (!add_widened(*wide, *node, map, wider).ok()) return nullptr;
    for (const Value* v : graph.outputs()) wide->add_output(map.at(v));
    return wide;
}

const WiderFloats kAllToDoubles{{DType::f32, DType::f16, DType::bf16}, DType::f64};

Comparison compare_in(Sides sides, const Inputs& inputs, const WiderFloats& wider,
                      const std::vector<double>& literals) {
    const std::unique_ptr<Graph> left = in_wider(*sides.left, wider, literals),
                                 right = in_wider(*sides.right, wider, literals);
    if (!left || !right) return {};
    Inputs wide;
    for (const auto& [name, datum] : inputs) {
        auto t = widened(datum.tensor(), wider);
        if (!t.ok()) return {};
        wide[name] = std::move(*t);
    }
    sides.left = left.get();
    sides.right = right.get();
    return compare_values(sides, wide);
}

}  // namespace

bool agree_when_wider(const Sides& sides, const Inputs& inputs) {
    using Outcome = Comparison::Outcome;
    return compare_in(sides, inputs, kAllToDoubles, {}).outcome == Outcome::Agree ||
           (sides.exactness == Exactness::Approximates &&
            compare_in(sides, inputs, kHalvesToSingles, {}).outcome == Outcome::Agree);
}

Comparison compare_wider(const Sides& sides, const Inputs& inputs) {
    Sides wide = sides;
    if (wide.computed.roundoff <= kOfStoredFloats) wide.computed = {};
    const Comparison as_written = compare_in(wide, inputs, kAllToDoubles, sides.sample->numbers_of_rule);
    if (as_written.outcome != Comparison::Outcome::Differ) return as_written;
    // The engine takes a constant for the literal that is rounded to it, and the sides may be equal for what it is.
    return compare_in(std::move(wide), inputs, kAllToDoubles, {});
}

Losses losses_by_cancellation(const Sides& sides, const Inputs& inputs) {
    const std::unique_ptr<Graph> wide = in_wider(*sides.left, kAllToDoubles, sides.sample->numbers_of_rule);
    if (!wide) return {};
    Inputs wide_inputs;
    for (const auto& [name, datum] : inputs) {
        auto t = widened(datum.tensor(), kAllToDoubles);
        if (!t.ok()) return {};
        wide_inputs[name] = std::move(*t);
    }
    const SideRun left = run_side(*sides.left, inputs), right = run_side(*sides.right, inputs),
                  exact = run_side(*wide, wide_inputs);
    if (!left.outputs.ok() || !right.outputs.ok() || !exact.outputs.ok()) return {};
    Losses out;
    for (size_t k = 0; k < left.outputs->size(); ++k) {
        const Tensor &a = (*left.outputs)[k].tensor(), &b = (*right.outputs)[k].tensor();
        const Tensor& e = (*exact.outputs)[k].tensor();
        if (!is_float(a.dtype()) || a.sizes() != b.sizes() || a.sizes() != e.sizes()) continue;
        for (int64_t i = 0; i < a.elements(); ++i) {
            const double x = a.real_at(i), y = b.real_at(i), wanted = e.real_at(i);
            if (!std::isfinite(x) || !std::isfinite(y) || !std::isfinite(wanted)) continue;
            ++out.elements;
            if (std::fabs(y - wanted) <= kLost * left.inside.value + 1000 * std::fabs(x - wanted)) continue;
            ++out.lost;
            out.difference = difference_text(k, a, b, i) + ", which cancels terms that the left side does not have";
        }
    }
    return out;
}

Comparison compare_in_field(const Sides& sides, Draw& draw, bool& beyond) {
    const Sample& sample = *sides.sample;
    Inputs exact = draw_inputs(sample, Values::Whole, draw);
    std::vector<FieldTensor> inputs;
    for (const auto& v : sample.graph->inputs()) {
        const Tensor& t = exact.at(v->name()).tensor();
        auto known = FieldTensor::from(t);
        if (!known) return {};
        if (is_float(t.dtype()) && !sample.fixed.contains(v->name())) {
            known->tensor.reset();
            for (uint64_t& e : known->elements) e = draw.bits() % kFieldPrime;
        }
        inputs.push_back(std::move(*known));
    }
    const uint64_t key = draw.bits();
    FieldRun left = evaluate_in_field(*sides.left, inputs, key);
    if (left.outcome != FieldRun::Outcome::Values) return {};
    FieldRun right = evaluate_in_field(*sides.right, inputs, key);
    if (right.outcome != FieldRun::Outcome::Values) return {};
    for (size_t k = 0; k < left.outputs.size(); ++k) {
        const FieldTensor &a = left.outputs[k], &b = right.outputs[k];
        if (a == b) continue;
        if (!left.rational || !right.rational) {
            beyond = true;
            return {};
        }
        if (a.dtype != b.dtype || a.sizes != b.sizes) return differ(fmt::format("output {} has another type", k));
        int64_t i = 0;
        while (a.elements[i] == b.elements[i]) ++i;
        return differ(fmt::format("output {}{} is {} on the left and {} on the right, modulo 2^61 - 1", k,
                                  index_text(i, a.sizes), a.elements[i], b.elements[i]));
    }
    return {Comparison::Outcome::Agree};
}

}  // namespace tessera
