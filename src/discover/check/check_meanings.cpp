#include "discover/check/check_meanings.h"

#include <algorithm>
#include <map>

namespace tessera::checker {
namespace {

using Form = Term::Form;

constexpr std::string_view kMeanings = R"(
relu [reassociates]: relu(x:float) => max(x, 0)
clip [reassociates]: clip(x:float, l, h) => min(max(x, l), h)
clip-below [reassociates]: clip(x:float, l) => max(x, l)
rsqrt [reassociates]: rsqrt(x:float) => reciprocal(sqrt(x))
gelu [reassociates]: gelu(x) => mul(mul(x, 0.5), add(erf(mul(x, 0.7071067811865476)), 1))
gelu-tanh [reassociates]: gelu(x, approximate="tanh") =>
    mul(mul(x, 0.5), add(tanh(mul(add(x, mul(mul(mul(x, x), x), 0.044715)), 0.7978845608028654)), 1))
swish [reassociates]: swish(x, alpha=a) => mul(x, sigmoid(mul(x, a)))
mish [reassociates]: mish(x) => mul(x, tanh(softplus(x)))
softplus [reassociates]: softplus(x) => log(add(exp(x), 1))
hard-sigmoid [reassociates]: hard_sigmoid(x, alpha=a, beta=b) => min(max(add(mul(x, a), b), 0), 1)
hard-swish [reassociates]: hard_swish(x) => mul(x, min(max(add(div(x, 6), 0.5), 0), 1))
softmax [reassociates]: softmax(x, axis=a) => div(exp(x), reduce_sum(exp(x), [a]))
log-softmax [reassociates]: log_softmax(x, axis=a) => sub(x, log(reduce_sum(exp(x), [a])))
layer-norm [reassociates]: layer_normalization(x, s, t, axis=a, epsilon=e) =>
    let axes = drop(up_to(rank(x)), axis_in(a, rank(x))), d = sub(x, reduce_mean(x, axes)) in
    add(mul(div(d, sqrt(add(reduce_mean(mul(d, d), axes), e))), s), t) if element_bits(x) <= 32
rms-norm [reassociates]: rms_normalization(x, s, axis=a, epsilon=e) =>
    mul(div(x, sqrt(add(reduce_mean(mul(x, x), drop(up_to(rank(x)), axis_in(a, rank(x)))), e))), s)
    if element_bits(x) <= 32
global-average-pool [reassociates]: global_average_pool(x) => reduce_mean(x, drop(up_to(rank(x)), 2))
)";

class Template {
  public:
    Template(const Rule& rule, const Term& op) : rule_(rule), found_(matches(rule.pattern[0], op)) {}
    bool found() const { return found_; }
    Term built() const { return built(rule_.replacement[0]); }

  private:
    const Rule& rule_;
    std::map<int, Term> bound_;
    bool found_;

    bool matches(const Term& pattern, const Term& op) {
        if (op.op != pattern.op || op.output || op.args.size() != pattern.args.size() || op.rest_slot >= 0)
            return false;
        for (size_t i = 0; i < op.args.size(); ++i) {
            if (op.args[i].list || op.args[i].optional) return false;
            bound_[pattern.args[i].slot] = op.args[i];
        }
        // What neither names has its default on both sides.
        for (const auto& [name, value] : op.attrs) {
            auto same = [&](const auto& a) { return a.first == name; };
            if (std::none_of(pattern.attrs.begin(), pattern.attrs.end(), same)) return false;
        }
        for (const auto& [name, wanted] : pattern.attrs) {
            auto same = [&](const auto& a) { return a.first == name; };
            auto given = std::find_if(op.attrs.begin(), op.attrs.end(), same);
            if (wanted.form == Form::Text) {
                if (given == op.attrs.end() || given->second.form != Form::Text || given->second.name != wanted.name)
                    return false;
                continue;
            }
            if (given != op.attrs.end())
                bound_[wanted.slot] = given->second;
            else if (std::optional<Term> usual = fallback(*op.op->attr(name)))
                bound_[wanted.slot] = *usual;
            else
                return false;
        }
        return true;
    }

    static std::optional<Term> fallback(const AttrDef& def) {
        if (!def.fallback) return {};
        Term t;
        t.form = Form::Number;
        if (auto* n = std::get_if<int64_t>(&*def.fallback)) {
            t.number = static_cast<double>(*n);
        } else if (auto* x = std::get_if<float>(&*def.fallback)) {
            t.number = static_cast<double>(*x);
            t.has_point = true;
        } else {
            return {};
        }
        return t;
    }

    Term built(const Term& t) const {
        if (t.form == Form::Variable) {
            if (auto it = bound_.find(t.slot); it != bound_.end()) return it->second;
            for (const auto& [slot, let] : rule_.lets)
                if (slot == t.slot) return built(let);
        }
        Term out = t;
        for (Term& a : out.args) a = built(a);
        for (auto& [name, a] : out.attrs) a = built(a);
        return out;
    }
};

}  // namespace

const Rules& meanings() {
    static const Rules all = [] {
        Result<Rules> rules = read_rules(kMeanings, "meanings");
        CHECK(rules.ok(), "a meaning cannot be read: {}", rules.error().to_string());
        return std::move(*rules);
    }();
    return all;
}

std::optional<Term> meaning_of(const Term& op) {
    for (const Rule& rule : meanings())
        if (Template with(rule, op); with.found()) return with.built();
    return {};
}

Term call_term(std::string name, std::vector<Term> args) {
    Term t;
    t.form = Form::Call;
    t.name = std::move(name);
    t.args = std::move(args);
    return t;
}

Term op_term(const char* name, std::vector<Term> args) {
    Term t;
    t.form = Form::Op;
    t.kind = TermKind::Tensor;
    t.name = name;
    t.op = find_op(name);
    t.args = std::move(args);
    return t;
}

}  // namespace tessera::checker
