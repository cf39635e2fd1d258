#include "train/optimizers.h"

#include <cmath>

namespace tessera {
namespace {

struct Rule {
    Builder& b;
    const Optimizer& o;
    Value *p, *g;
    const std::vector<Value*>& slots;
    const std::function<Value*(StepNumber)>& number;
    const std::function<Value*(Value*, Value*)>& kept;

    Value* constant(double v) const { return b.scalar_like(v, p); }
    Value* times(double v, Value* x) const { return v == 1 ? x : b.mul(constant(v), x); }
    Value* rate() const { return number(StepNumber::LearningRate); }
    // The gradient with the decay of the parameter in it.
    Value* decayed() const { return o.weight_decay == 0 ? g : b.add(g, times(o.weight_decay, p)); }
    // The parameter, decayed apart from its gradient.
    Value* shrunk() const {
        return o.weight_decay == 0 ? p : b.sub(p, b.mul(b.mul(rate(), constant(o.weight_decay)), p));
    }
    Value* average(double beta, Value* old, Value* now) const { return b.add(times(beta, old), times(1 - beta, now)); }
};

Update sgd(const Rule& r) {
    Value* g = r.decayed();
    if (r.o.momentum == 0) return {r.b.sub(r.p, r.b.mul(r.rate(), g)), {}};
    Value* v = r.kept(r.b.add(r.times(r.o.momentum, r.slots[0]), g), r.slots[0]);
    Value* step = r.o.nesterov ? r.b.add(g, r.times(r.o.momentum, v)) : v;
    return {r.b.sub(r.p, r.b.mul(r.rate(), step)), {v}};
}

Update by_moments(const Rule& r, Value* parameter, Value* g) {
    Value* m = r.kept(r.average(r.o.beta1, r.slots[0], g), r.slots[0]);
    Value* v = r.kept(r.average(r.o.beta2, r.slots[1], r.b.mul(g, g)), r.slots[1]);
    Value* deviation =
        r.b.add(r.b.mul(r.b.op("sqrt", {v}), r.number(StepNumber::SecondCorrection)), r.constant(r.o.epsilon));
    Value* rate = r.b.mul(r.rate(), r.number(StepNumber::FirstCorrection));
    return {r.b.sub(parameter, r.b.div(r.b.mul(rate, m), deviation)), {m, v}};
}

Update adam(const Rule& r) { return by_moments(r, r.p, r.decayed()); }
Update adamw(const Rule& r) { return by_moments(r, r.shrunk(), r.g); }

Update adagrad(const Rule& r) {
    Value* g = r.decayed();
    Value* h = r.kept(r.b.add(r.slots[0], r.b.mul(g, g)), r.slots[0]);
    Value* deviation = r.b.add(r.b.op("sqrt", {h}), r.constant(r.o.epsilon));
    return {r.b.sub(r.p, r.b.div(r.b.mul(r.rate(), g), deviation)), {h}};
}

Update lion(const Rule& r) {
    Value* direction = r.b.op("sign", {r.average(r.o.beta1, r.slots[0], r.g)});
    return {r.b.sub(r.shrunk(), r.b.mul(r.rate(), direction)),
            {r.kept(r.average(r.o.beta2, r.slots[0], r.g), r.slots[0])}};
}

struct OptimizerDef {
    const char* kind;
    std::vector<std::string> slots;
    bool corrected;  // averages, for their beginning at zero
    Update (*update)(const Rule&);
};

const std::vector<OptimizerDef>& optimizers() {
    static const std::vector<OptimizerDef> all = {{"sgd", {"momentum"}, false, sgd},
                                                  {"adam", {"exp_avg", "exp_avg_sq"}, true, adam},
                                                  {"adamw", {"exp_avg", "exp_avg_sq"}, true, adamw},
                                                  {"adagrad", {"sum"}, false, adagrad},
                                                  {"lion", {"exp_avg"}, false, lion}};
    return all;
}

const OptimizerDef* find_optimizer(const std::string& kind) {
    for (const OptimizerDef& d : optimizers())
        if (kind == d.kind) return &d;
    return nullptr;
}

}  // namespace

std::string_view name_of(StepNumber number) {
    switch (number) {
        case StepNumber::LearningRate: return "learning_rate";
        case StepNumber::FirstCorrection: return "first_correction";
        case StepNumber::SecondCorrection: return "second_correction";
    }
    return "";
}

double value_of(StepNumber number, const Optimizer& o, double learning_rate, int64_t update) {
    switch (number) {
        case StepNumber::LearningRate: return learning_rate;
        case StepNumber::FirstCorrection: return 1 / (1 - std::pow(o.beta1, double(update)));
        case StepNumber::SecondCorrection: return 1 / std::sqrt(1 - std::pow(o.beta2, double(update)));
    }
    return 0;
}

Status check_optimizer(const Optimizer& o) {
    if (!find_optimizer(o.kind))
        return Error(Code::E0501, "there is no optimizer \"{}\"", o.kind)
            .hint("there are: sgd, adam, adamw, adagrad, lion");
    struct Number {
        const char* name;
        double value, most;
    };
    for (const Number& n : {Number{"learning_rate", o.learning_rate, HUGE_VAL},
                            {"momentum", o.momentum, HUGE_VAL},
                            {"beta1", o.beta1, 1},
                            {"beta2", o.beta2, 1},
                            {"epsilon", o.epsilon, HUGE_VAL},
                            {"weight_decay", o.weight_decay, HUGE_VAL}})
        if (!(n.value >= 0 && n.value < n.most))
            return Error(Code::E0501, "{}: {}: expected a finite number of at least 0{}, got {}", o.kind, n.name,
                         n.most == 1 ? " and below 1" : "", n.value);
    if (o.nesterov && o.momentum == 0) return Error(Code::E0501, "sgd: nesterov needs a momentum above 0");
    return {};
}

std::vector<StepNumber> numbers_of(const Optimizer& o) {
    if (!find_optimizer(o.kind)->corrected) return {StepNumber::LearningRate};
    return {StepNumber::LearningRate, StepNumber::FirstCorrection, StepNumber::SecondCorrection};
}

std::vector<std::string> slots_of(const Optimizer& o) {
    if (o.kind == "sgd" && o.momentum == 0) return {};
    return find_optimizer(o.kind)->slots;
}

Update build_update(Builder& build, const Optimizer& optimizer, Value* parameter, Value* gradient,
                    const std::vector<Value*>& slots, const std::function<Value*(StepNumber)>& number,
                    const std::function<Value*(Value*, Value*)>& kept) {
    return find_optimizer(optimizer.kind)->update({build, optimizer, parameter, gradient, slots, number, kept});
}

}  // namespace tessera
