// Recurrent layers. Each stands for a scan over the sequence: the input's part of the gates is one product outside of
// it, the state's part is computed step by step.
#include <algorithm>

#include "graph/ops/common.h"
#include "graph/ops/families.h"

namespace tessera {
namespace {

enum Input : size_t {
    kX,
    kW,
    kR,
    kB,
    kLengths,
    kInitialH,
    kInitialC,
    kPeepholes,
    kScaleW,
    kZeroW,
    kScaleR,
    kZeroR,  // of weights in bytes
};

struct Activation {
    std::string name;  // lower case
    float alpha, beta;
};

struct ActivationDefault {
    const char* name;
    std::optional<float> alpha, beta;  // those that it takes
};
constexpr ActivationDefault kActivations[] = {
    {"relu", {}, {}},         {"tanh", {}, {}},          {"sigmoid", {}, {}},
    {"affine", 1.f, 0.f},     {"leakyrelu", .01f, {}},   {"thresholdedrelu", 1.f, {}},
    {"scaledtanh", 1.f, 1.f}, {"hardsigmoid", .2f, .5f}, {"elu", 1.f, {}},
    {"softsign", {}, {}},     {"softplus", {}, {}},
};

int64_t direction_count(const OpView& op) { return op.string("direction") == "bidirectional" ? 2 : 1; }

// The activations of all directions, with the parameters that are theirs in order.
Result<std::vector<Activation>> activations_of(const OpView& op, const std::vector<std::string>& fallback) {
    size_t needed = fallback.size() * size_t(direction_count(op));
    std::vector<std::string> names;
    if (op.has_attr("activations"))
        names = op.strings("activations");
    else
        for (size_t i = 0; i < needed; ++i) names.push_back(fallback[i % fallback.size()]);
    if (names.size() < needed) return op.error(Code::E0212, "has {} activations, but needs {}", names.size(), needed);
    names.resize(needed);
    std::vector<float> alphas, betas;
    if (op.has_attr("activation_alpha")) alphas = op.floats("activation_alpha");
    if (op.has_attr("activation_beta")) betas = op.floats("activation_beta");
    size_t alpha = 0, beta = 0;
    std::vector<Activation> list;
    for (std::string name : names) {
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return char(std::tolower(c)); });
        auto it =
            std::find_if(std::begin(kActivations), std::end(kActivations), [&](auto& a) { return a.name == name; });
        if (it == std::end(kActivations)) return op.error(Code::E0212, "unknown activation \"{}\"", name);
        Activation a{name, it->alpha.value_or(0), it->beta.value_or(0)};
        if (it->alpha && alpha < alphas.size()) a.alpha = alphas[alpha++];
        if (it->beta && beta < betas.size()) a.beta = betas[beta++];
        list.push_back(a);
    }
    return list;
}

Value* activate(Builder& b, const Activation& a, Value* x) {
    auto scaled = [&](Value* v, float by) { return b.mul(v, b.scalar_like(by, v)); };
    if (a.name == "affine") return b.add(scaled(x, a.alpha), b.scalar_like(a.beta, x));
    if (a.name == "scaledtanh") return scaled(b.op("tanh", {scaled(x, a.beta)}), a.alpha);
    if (a.name == "leakyrelu") return b.op("leaky_relu", {x}, {{"alpha", Attr(a.alpha)}});
    if (a.name == "thresholdedrelu") return b.op("thresholded_relu", {x}, {{"alpha", Attr(a.alpha)}});
    if (a.name == "hardsigmoid") return b.op("hard_sigmoid", {x}, {{"alpha", Attr(a.alpha)}, {"beta", Attr(a.beta)}});
    if (a.name == "elu") return b.op("elu", {x}, {{"alpha", Attr(a.alpha)}});
    return b.op(a.name, {x});
}

// One direction's weights, as the steps of the scan use them.
struct Direction {
    Value *r, *r_bias;                        // [H, gates * H] and [gates * H] or null
    Value *scale = nullptr, *zero = nullptr;  // of an r in bytes: one for all, or [gates * H]
    std::vector<Value*> peepholes;            // [H] each, or none
    std::vector<Activation> activations;
};

// What makes the kinds differ.
struct Cell {
    const char* onnx;
    int64_t gates, states;
    std::vector<std::string> activations;
    // The states after one step, from the input's part of the gates [B, gates * H] and the states [B, H] before.
    std::function<std::vector<Value*>(const OpView&, Builder&, const Direction&, Value*, const std::vector<Value*>&)>
        step;
    bool in_bytes = false;  // its weights, which lie as [directions, I or H, gates * H]
};

Value* clipped(const OpView& op, Builder& b, Value* x) {
    if (!op.has_attr("clip")) return x;
    return b.op("clip", {x, b.scalar_like(-op.real("clip"), x), b.scalar_like(op.real("clip"), x)});
}

Value* gate(const OpView& op, Builder& b, const Activation& f, Value* x) { return activate(b, f, clipped(op, b, x)); }

std::vector<Value*> split(Builder& b, Value* x, int64_t parts, int64_t axis = -1) {
    if (parts == 1) return {x};
    return b.ops("split", {x}, {{"axis", Attr(axis)}, {"num_outputs", Attr(parts)}}, size_t(parts));
}

// x times weights in bytes, for which x is quantized by its own range.
Value* times_bytes(Builder& b, Value* x, Value* weights, Value* scale, Value* zero) {
    auto q = b.ops("dynamic_quantize_linear", {x}, {}, 3);
    Value* sum = b.op("matmul_integer", {q[0], weights, q[2], zero});
    return b.mul(b.cast(sum, DType::f32), b.mul(q[1], scale));
}

Value* times_r(Builder& b, const Direction& d, Value* h) {
    return d.scale ? times_bytes(b, h, d.r, d.scale, d.zero) : b.matmul(h, d.r);
}

Value* plus(Builder& b, Value* x, Value* y) { return y ? b.add(x, y) : x; }

std::vector<Value*> rnn_step(const OpView& op, Builder& b, const Direction& d, Value* x,
                             const std::vector<Value*>& state) {
    return {gate(op, b, d.activations[0], b.add(x, plus(b, b.matmul(state[0], d.r), d.r_bias)))};
}

std::vector<Value*> gru_step(const OpView& op, Builder& b, const Direction& d, Value* x,
                             const std::vector<Value*>& state) {
    Value* h = state[0];
    std::vector<Value*> from_x = split(b, x, 3), from_h = split(b, plus(b, b.matmul(h, d.r), d.r_bias), 3);
    Value* update = gate(op, b, d.activations[0], b.add(from_x[0], from_h[0]));
    Value* reset = gate(op, b, d.activations[0], b.add(from_x[1], from_h[1]));
    Value* hidden;
    if (op.integer("linear_before_reset")) {
        hidden = b.mul(reset, from_h[2]);
    } else {
        Value* bias = d.r_bias ? split(b, d.r_bias, 3)[2] : nullptr;
        hidden = plus(b, b.matmul(b.mul(reset, h), split(b, d.r, 3)[2]), bias);
    }
    hidden = gate(op, b, d.activations[1], b.add(from_x[2], hidden));
    return {b.add(b.mul(b.sub(b.scalar_like(1, update), update), hidden), b.mul(update, h))};
}

std::vector<Value*> lstm_step(const OpView& op, Builder& b, const Direction& d, Value* x,
                              const std::vector<Value*>& state) {
    Value *h = state[0], *c = state[1];
    std::vector<Value*> g = split(b, b.add(x, plus(b, times_r(b, d, h), d.r_bias)), 4);  // i, o, f, c
    auto peep = [&](size_t i, Value* cell) { return d.peepholes.empty() ? nullptr : b.mul(d.peepholes[i], cell); };
    Value* in = gate(op, b, d.activations[0], plus(b, g[0], peep(0, c)));
    Value* forget = op.integer("input_forget") ? b.sub(b.scalar_like(1, in), in)
                                               : gate(op, b, d.activations[0], plus(b, g[2], peep(2, c)));
    Value* fresh = gate(op, b, d.activations[1], g[3]);
    Value* cell = b.add(b.mul(forget, c), b.mul(in, fresh));
    Value* out = gate(op, b, d.activations[0], plus(b, g[1], peep(1, cell)));
    return {b.mul(out, activate(b, d.activations[2], clipped(op, b, cell))), cell};
}

Result<Types> infer_recurrent(const OpView& op, const Cell& cell) {
    TRY(activations_of(op, cell.activations));
    const int64_t layout = cell.in_bytes ? 0 : op.integer("layout");
    if (layout != 0 && layout != 1) return op.error(Code::E0212, "layout is {}, not 0 or 1", layout);
    const Shape &x = op.shape(kX), &r = op.shape(kR);
    if (x.rank() != 3 || r.rank() != 3) return op.shape_error("x and r must have 3 dimensions, have {} and {}", x, r);
    Dim directions = direction_count(op), steps = x[layout], batch = x[1 - layout], hidden = r[cell.in_bytes ? 1 : 2];
    Shape state = layout ? Shape{batch, directions, hidden} : Shape{directions, batch, hidden};
    auto fits = [&](size_t input, const Shape& needed) -> Status {
        if (!op.has(input)) return {};
        const Shape& have = op.shape(input);
        bool bad = have.rank() != needed.rank();
        for (int64_t i = 0; !bad && i < have.rank(); ++i)
            bad = have[i].as_int() && needed[i].as_int() && have[i] != needed[i];
        if (bad)
            return op.shape_error("{} must have another shape: has {}, needs {}", op.def().inputs[input].name, have,
                                  needed);
        return {};
    };
    const Dim all = hidden * cell.gates;
    TRY(fits(kW, cell.in_bytes ? Shape{directions, x[2], all} : Shape{directions, all, x[2]}));
    TRY(fits(kR, cell.in_bytes ? Shape{directions, hidden, all} : Shape{directions, all, hidden}));
    for (size_t i : {kScaleW, kZeroW, kScaleR, kZeroR})
        if (cell.in_bytes) TRY(fits(i, op.has(i) && op.rank(i) == 1 ? Shape{directions} : Shape{directions, all}));
    TRY(fits(kB, {directions, hidden * (2 * cell.gates)}));
    TRY(fits(kLengths, {batch}));
    TRY(fits(kInitialH, state));
    if (cell.states == 2) {
        TRY(fits(kInitialC, state));
        TRY(fits(kPeepholes, {directions, hidden * 3}));
    }
    if (op.has_attr("hidden_size") && hidden.as_int() && *hidden.as_int() != op.integer("hidden_size"))
        return op.shape_error("hidden_size is {}, r is {}", op.integer("hidden_size"), r);
    Shape y = layout ? Shape{batch, steps, directions, hidden} : Shape{steps, directions, batch, hidden};
    Types types{Type(op.dtype(0), y)};
    for (int64_t i = 0; i < cell.states; ++i) types.emplace_back(op.dtype(0), state);
    return types;
}

struct ScannedDirection {
    Value* y;                    // [S, B, H]
    std::vector<Value*> states;  // [B, H]
};

// One direction of the layer: x [S, B, I] times w, then the scan. `valid` [S, B, 1] says which steps count.
ScannedDirection scan_direction(const OpView& op, Builder& b, const Cell& cell, const Direction& d, Value* gates,
                                std::vector<Value*> states, Value* valid, bool reverse) {
    if (b.failed()) return {nullptr, std::vector<Value*>(size_t(cell.states))};
    GraphPtr nested = b.graph().nested("step");
    Builder inner(*nested);
    std::vector<Value*> before, slices, inputs = states;
    for (Value* s : states) before.push_back(nested->add_input("state", s->type()));
    for (Value* s : {gates, valid}) {
        if (!s) continue;
        const TensorType& t = s->type().tensor();
        slices.push_back(nested->add_input("slice", Type(t.dtype, t.shape.slice(1, 3))));
        inputs.push_back(s);
    }
    std::vector<Value*> after = cell.step(op, inner, d, slices[0], before);
    Value* y = after[0];
    if (valid) {
        y = inner.op("where", {slices[1], y, inner.scalar_like(0, y)});
        for (size_t i = 0; i < after.size(); ++i) after[i] = inner.op("where", {slices[1], after[i], before[i]});
    }
    if (auto ok = inner.finish({}); !ok.ok()) {
        b.fail(ok.error());
        return {nullptr, std::vector<Value*>(size_t(cell.states))};
    }
    for (Value* v : after) nested->add_output(v);
    nested->add_output(y);
    std::vector<int64_t> directions(slices.size(), reverse);
    auto out = b.ops("scan", inputs,
                     {{"body", Attr(nested)},
                      {"num_scan_inputs", Attr(int64_t(slices.size()))},
                      {"scan_input_directions", Attr(directions)},
                      {"scan_output_directions", Attr(std::vector<int64_t>{reverse})}},
                     states.size() + 1);
    return {out.back(), {out.begin(), out.end() - 1}};
}

Result<std::vector<Value*>> expand_recurrent(const OpView& op, const std::vector<Value*>& in, Builder& b,
                                             const Cell& cell) {
    DType given = op.dtype(kX), inside = given == DType::f64 ? DType::f64 : DType::f32;
    const bool batch_first = !cell.in_bytes && op.integer("layout") == 1;
    auto at = [&](size_t i) { return i < in.size() && in[i] ? b.cast(in[i], inside) : nullptr; };
    auto of_direction = [&](size_t i, int64_t d) { return b.squeeze(b.slice(at(i), {d}, {d + 1}, {0}), {0}); };
    auto bytes_of = [&](size_t i, int64_t d) {
        return op.has(i) ? b.squeeze(b.slice(in[i], {d}, {d + 1}, {0}), {0}) : nullptr;
    };
    Value* x = at(kX);
    if (batch_first) x = b.transpose(x, {1, 0, 2});
    auto sizes = [&](Value* v, int64_t from, int64_t to) {
        return b.op("shape", {v}, {{"start", Attr(from)}, {"end", Attr(to)}});
    };
    Value* valid = nullptr;
    if (op.has(kLengths)) {
        Value* count = b.squeeze(sizes(x, 0, 1), {0});
        Value* steps = b.op("range", {b.scalar(0, DType::i64), count, b.scalar(1, DType::i64)});
        valid = b.op("less", {b.unsqueeze(steps, {1, 2}), b.unsqueeze(b.cast(in[kLengths], DType::i64), {0, 2})});
    }
    std::vector<Activation> activations = TRY(activations_of(op, cell.activations));
    std::vector<Value*> ys;
    std::vector<std::vector<Value*>> finals(size_t(cell.states));
    for (int64_t d = 0; d < direction_count(op); ++d) {
        Value* gates;
        Direction weights{};
        if (cell.in_bytes) {
            gates = times_bytes(b, x, bytes_of(kW, d), bytes_of(kScaleW, d), bytes_of(kZeroW, d));
            weights = {bytes_of(kR, d), nullptr, bytes_of(kScaleR, d), bytes_of(kZeroR, d), {}, {}};
        } else {
            gates = b.matmul(x, b.transpose(of_direction(kW, d), {1, 0}));
            weights.r = b.transpose(of_direction(kR, d), {1, 0});
        }
        if (op.has(kB)) {
            auto bias = split(b, of_direction(kB, d), 2);
            gates = b.add(gates, bias[0]);
            weights.r_bias = bias[1];
        }
        if (cell.states == 2 && op.has(kPeepholes)) weights.peepholes = split(b, of_direction(kPeepholes, d), 3);
        size_t each = cell.activations.size();
        weights.activations.assign(activations.begin() + size_t(d) * each, activations.begin() + size_t(d + 1) * each);
        std::vector<Value*> states;
        for (int64_t i = 0; i < cell.states; ++i) {
            size_t input = kInitialH + size_t(i);
            if (op.has(input)) {
                Value* all = batch_first ? b.transpose(at(input), {1, 0, 2}) : at(input);
                states.push_back(b.squeeze(b.slice(all, {d}, {d + 1}, {0}), {0}));
            } else {
                Value* shape =
                    b.concat({sizes(x, 1, 2), sizes(in[kR], cell.in_bytes ? 1 : 2, cell.in_bytes ? 2 : 3)}, 0);
                states.push_back(b.op("expand", {b.scalar(0, inside), shape}));
            }
        }
        bool reverse = d == 1 || op.string("direction") == "reverse";
        ScannedDirection done = scan_direction(op, b, cell, weights, gates, states, valid, reverse);
        ys.push_back(b.unsqueeze(done.y, {1}));
        for (size_t i = 0; i < finals.size(); ++i) finals[i].push_back(b.unsqueeze(done.states[i], {0}));
    }
    auto finish = [&](const std::vector<Value*>& parts, int64_t axis, std::vector<int64_t> perm) {
        Value* v = parts.size() == 1 ? parts[0] : b.concat(parts, axis);
        return b.cast(batch_first ? b.transpose(v, perm) : v, given);
    };
    std::vector<Value*> out{finish(ys, 1, {2, 0, 1, 3})};
    for (const auto& parts : finals) out.push_back(finish(parts, 0, {1, 0, 2}));
    out.resize(op.output_count());
    return b.finish(out);
}

OpDef recurrent(std::string name, Cell cell, std::vector<AttrDef> more, std::vector<OnnxChange> changes) {
    std::vector<ParamDef> inputs{"x: T", "w: T", "r: T", "b?: T", "sequence_lens?: i32", "initial_h?: T"};
    std::vector<ParamDef> outputs{"y?: T", "y_h?: T"};
    if (cell.states == 2) {
        inputs.insert(inputs.end(), {"initial_c?: T", "p?: T"});
        outputs.push_back("y_c?: T");
    }
    std::vector<AttrDef> attrs{floats_attr("activation_alpha"),
                               floats_attr("activation_beta"),
                               strings_attr("activations"),
                               float_attr("clip"),
                               string_attr("direction", "forward").one_of({"forward", "reverse", "bidirectional"}),
                               int_attr("hidden_size"),
                               int_attr("layout", 0)};
    attrs.insert(attrs.end(), more.begin(), more.end());
    changes.push_back(attr_dropped(7, "output_sequence"));
    changes.push_back(attr_added(14, "layout", Attr(int64_t{0})));
    return {
        .name = std::move(name),
        .inputs = inputs,
        .outputs = outputs,
        .attrs = attrs,
        .types = {{"T", kWideFloats}},
        .onnx = {cell.onnx, changes},
        .infer = [cell](const OpView& op) { return infer_recurrent(op, cell); },
        .expand = [cell](const OpView& op, const std::vector<Value*>& in,
                         Builder& b) { return expand_recurrent(op, in, b, cell); },
    };
}

// What ONNX Runtime calls DynamicQuantizeLSTM: the input as a whole and the state, in every step, are quantized.
OpDef lstm_in_bytes() {
    const Cell cell{"", 4, 2, {"Sigmoid", "Tanh", "Tanh"}, lstm_step, true};
    OpDef def = recurrent("dynamic_quantize_lstm", cell, {int_attr("input_forget", 0)}, {});
    for (size_t i : {kW, kR}) def.inputs[i] = ParamDef(i == kW ? "w: Q" : "r: Q");
    def.inputs.insert(def.inputs.end(), {"w_scale: f32", "w_zero_point?: Q", "r_scale: f32", "r_zero_point?: Q"});
    def.types = {{"T", {DType::f32}}, {"Q", {DType::i8, DType::u8}}};
    def.onnx = {};
    std::erase_if(def.attrs, [](const AttrDef& a) { return a.name == "layout"; });
    return def;
}

}  // namespace

std::vector<OpDef> recurrent_ops() {
    return {
        recurrent("rnn", {"RNN", 1, 1, {"Tanh"}, rnn_step}, {}, {}),
        recurrent("gru", {"GRU", 3, 1, {"Sigmoid", "Tanh"}, gru_step}, {int_attr("linear_before_reset", 0)},
                  {attr_added(3, "linear_before_reset", Attr(int64_t{0}))}),
        recurrent("lstm", {"LSTM", 4, 2, {"Sigmoid", "Tanh", "Tanh"}, lstm_step}, {int_attr("input_forget", 0)}, {}),
        without_gradient(lstm_in_bytes(), "it rounds to bytes"),
    };
}

}  // namespace tessera
