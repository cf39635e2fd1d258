#include "discover/enumerate/field_program.h"

#include <cmath>
#include <map>
#include <unordered_map>

#include "base/hash.h"
#include "graph/builder.h"
#include "graph/evaluate/evaluate.h"
#include "graph/evaluate/strip/loops.h"
#include "rewrite/refute/field.h"

namespace tessera {
namespace {

constexpr int64_t kMaxWork = 4'000'000;  // steps of partial evaluation
constexpr int kMaxDepth = 20;            // of expansions in one another
constexpr uint64_t kPowerFunction = 0x20000;
constexpr int64_t kMaxExponent = 64;
constexpr int64_t kSmall = int64_t{1} << 52;  // integers below it are doubles

struct Unsupported {};

bool is_infinite(uint64_t a) { return a >= kFieldPrime; }

// A value during partial evaluation: an integer or truth value that is known, or the number of an element.
struct Known {
    int64_t value;
    bool element;
};

int64_t floor_div_int(int64_t a, int64_t b) {
    if (b == 0) return 0;
    int64_t q = a / b;
    return q - ((a % b != 0) && ((a < 0) != (b < 0)));
}

// A random function of its arguments, but for points that are known: floor(3), exp(0), sqrt(4).
uint64_t opaque(uint32_t function, uint64_t x, uint64_t y, uint64_t key) {
    const int64_t a = field_signed(x), b = field_signed(y);
    if (function < kPowerFunction && std::abs(a) < kSmall && std::abs(b) < kSmall) {
        double first = static_cast<double>(a), second = static_cast<double>(b), known = 0;
        strip::real_call(static_cast<Fn>(function), {&first, true}, {&second, true}, 1, &known);
        if (std::fabs(known) < static_cast<double>(kSmall) && known == std::trunc(known))
            return field_from_int(static_cast<int64_t>(known));
    }
    return mix(mix(mix(key, function), x), y) % kFieldPrime;
}

}  // namespace

// Elements are numbered; each distinct one is computed once.
class FieldCompiler {
  public:
    using Op = FieldProgram::Op;

    std::optional<FieldProgram> compile(const Graph& graph) {
        try {
            std::unordered_map<const Value*, std::vector<Known>> values;
            for (size_t i = 0; i < graph.inputs().size(); ++i) {
                const Value* v = graph.inputs()[i].get();
                if (!v->type().is_tensor() || !is_float(v->type().tensor().dtype)) throw Unsupported{};
                const int64_t count = count_of(*v);
                std::vector<Known>& elements = values[v];
                for (int64_t at = 0; at < count; ++at)
                    elements.push_back({add({Kind::Input, static_cast<uint32_t>(i), static_cast<uint32_t>(at)}), true});
            }
            if (graph.inputs().size() > FieldProgram::kTemporaries || graph.outputs().size() != 1) throw Unsupported{};
            walk(graph, values);
            emit(find(graph.outputs()[0], values));
        } catch (const Unsupported&) {
            return std::nullopt;
        }
        return std::move(program_);
    }

  private:
    enum class Kind : uint8_t { Input, Constant, Apply, Dot };
    struct Element {
        Kind kind;
        uint32_t a = 0, b = 0, c = 0;
        Op op{};
        uint64_t value = 0;  // of a constant; of an opaque function, which
        auto operator<=>(const Element&) const = default;
    };
    using Values = std::unordered_map<const Value*, std::vector<Known>>;

    std::vector<Element> elements_;
    std::map<Element, uint32_t> numbers_;
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> dots_;
    std::map<std::vector<std::pair<uint32_t, uint32_t>>, uint32_t> dot_numbers_;
    FieldProgram program_;
    int64_t work_ = 0;
    int depth_ = 0;

    static int64_t count_of(const Value& v) {
        auto sizes = v.type().is_tensor() ? v.type().tensor().shape.sizes() : std::nullopt;
        if (!sizes) throw Unsupported{};
        int64_t n = 1;
        for (int64_t s : *sizes) n *= s;
        return n;
    }

    int64_t add(const Element& e) {
        auto [it, fresh] = numbers_.emplace(e, static_cast<uint32_t>(elements_.size()));
        if (fresh) elements_.push_back(e);
        return it->second;
    }
    int64_t constant(uint64_t value) { return add({Kind::Constant, 0, 0, 0, {}, value}); }
    bool is_constant(int64_t e, uint64_t value) const {
        return elements_[e].kind == Kind::Constant && elements_[e].value == value;
    }
    void finite(int64_t e) const {
        if (elements_[e].kind == Kind::Constant && is_infinite(elements_[e].value)) throw Unsupported{};
    }

    int64_t apply(Op op, int64_t a, int64_t b = 0, int64_t c = 0, uint64_t function = 0) {
        if (op == Op::Max || op == Op::Min) {
            const uint64_t least = op == Op::Max ? kFieldMinusInfinity : kFieldInfinity;
            if (is_constant(a, least)) return b;
            if (is_constant(b, least)) return a;
        } else {
            finite(a);
            finite(b);
        }
        if (op == Op::Add && is_constant(a, 0)) return b;
        if ((op == Op::Add || op == Op::Sub) && is_constant(b, 0)) return a;
        if (op == Op::Mul && is_constant(a, 1)) return b;
        if (op == Op::Mul && is_constant(b, 1)) return a;
        if (op == Op::Mul && (is_constant(a, 0) || is_constant(b, 0))) return constant(0);
        if (op == Op::Div && elements_[b].kind == Kind::Constant && elements_[b].value != 0)
            return apply(Op::Mul, a, constant(field_inverse(elements_[b].value)));
        if ((op == Op::Add || op == Op::Mul || op == Op::Max || op == Op::Min) && a > b) std::swap(a, b);
        if ((op == Op::Max || op == Op::Min) && a == b) return a;
        return add(
            {Kind::Apply, static_cast<uint32_t>(a), static_cast<uint32_t>(b), static_cast<uint32_t>(c), op, function});
    }

    // The sum of elements, products among them taken apart.
    int64_t sum(const std::vector<int64_t>& terms) {
        std::vector<std::pair<uint32_t, uint32_t>> pairs;
        for (int64_t t : terms) {
            finite(t);
            if (is_constant(t, 0)) continue;
            const Element& e = elements_[t];
            if (e.kind == Kind::Apply && e.op == Op::Mul)
                pairs.emplace_back(e.a, e.b);
            else
                pairs.emplace_back(static_cast<uint32_t>(t), static_cast<uint32_t>(constant(1)));
        }
        if (pairs.empty()) return constant(0);
        std::sort(pairs.begin(), pairs.end());
        auto [it, fresh] = dot_numbers_.emplace(pairs, static_cast<uint32_t>(dots_.size()));
        if (fresh) dots_.push_back(std::move(pairs));
        return add({Kind::Dot, it->second});
    }

    // ---- graphs

    std::vector<Known>& find(const Value* v, Values& values) {
        if (auto it = values.find(v); it != values.end()) return it->second;
        if (!v->tensor()) throw Unsupported{};
        std::vector<Known> known;
        const Tensor& t = *v->tensor();
        for (int64_t i = 0; i < t.elements(); ++i) {
            if (!is_float(t.dtype())) {
                known.push_back({t.int_at(i), false});
            } else if (auto number = field_from_real(t.real_at(i))) {
                known.push_back({constant(*number), true});
            } else {
                throw Unsupported{};
            }
        }
        return values[v] = std::move(known);
    }

    void walk(const Graph& graph, Values& values) {
        if (++depth_ > kMaxDepth) throw Unsupported{};
        for (const auto& node : graph.nodes()) {
            OpView view = node->view();
            view.made_concrete();
            const OpDef& op = node->op();
            if (op.has(Trait::Random)) throw Unsupported{};
            auto missing = view.asks_unknown([&] {
                if (op.body && (!op.body_applies || op.body_applies(view))) {
                    for (size_t i = 0; i < node->output_count(); ++i)
                        if (!node->output(i)->uses().empty()) by_body(*node, view, i, values);
                } else if (op.expand) {
                    by_expansion(*node, view, values);
                } else {
                    throw Unsupported{};
                }
            });
            if (missing) throw Unsupported{};
        }
        --depth_;
    }

    void by_expansion(const Node& node, const OpView& view, Values& values) {
        Graph graph(node.op().name);
        Values inside;
        std::vector<Value*> given;
        for (Value* v : node.inputs()) {
            if (!v) {
                given.push_back(nullptr);
            } else if (v->tensor()) {
                given.push_back(graph.constant(*v->tensor()));
            } else {
                given.push_back(graph.add_input(fmt::format("x{}", given.size()), v->type()));
                inside[given.back()] = find(v, values);
            }
        }
        Builder build(graph);
        auto expanded = node.op().expand(view, given, build);
        if (!expanded.ok()) throw Unsupported{};
        auto finished = build.finish(*expanded);
        if (!finished.ok()) throw Unsupported{};
        for (Value* v : *finished)
            if (v) graph.add_output(v);
        walk(graph, inside);
        for (size_t i = 0; i < finished->size() && i < node.output_count(); ++i)
            if ((*finished)[i] && !node.output(i)->uses().empty())
                values[node.output(i)] = find((*finished)[i], inside);
    }

    // ---- bodies

    struct Axis {
        int var, extent;
    };
    struct Step {
        const ExprNode* node;
        DType from;
        int slot;
        std::vector<int> args;
        std::vector<Axis> axes;
    };
    struct Body {
        std::vector<Step> steps;
        std::unordered_map<std::string, int> variable_numbers;
        std::unordered_map<const ExprNode*, int> step_numbers;
        std::vector<int64_t> variables;
        std::vector<const std::vector<Known>*> inputs;
        std::vector<Sizes> sizes;

        int variable(const std::string& name) {
            auto [it, fresh] = variable_numbers.emplace(name, static_cast<int>(variables.size()));
            if (fresh) variables.push_back(0);
            return it->second;
        }
        int compile(const Expr& e) {
            if (auto it = step_numbers.find(e.get()); it != step_numbers.end()) return it->second;
            const ExprNode& n = e.node();
            Step s{&n, n.args.empty() ? n.dtype : n.args[0].dtype(), n.slot, {}, {}};
            if (n.dtype == DType::string || is_complex(n.dtype)) throw Unsupported{};
            if (n.kind == ExprKind::Var) s.slot = variable(n.name);
            for (const ReduceAxis& axis : n.axes) {
                int var = variable(axis.var.node().name);
                s.axes.push_back({var, compile(axis.extent)});
            }
            for (const Expr& a : n.args) s.args.push_back(compile(a));
            steps.push_back(std::move(s));
            return step_numbers[e.get()] = static_cast<int>(steps.size()) - 1;
        }
    };

    void by_body(const Node& node, OpView& view, size_t output, Values& values) {
        const Value* v = node.output(output);
        view.for_output(output);
        if (!v->type().is_tensor()) throw Unsupported{};
        const Shape& shape = v->type().tensor().shape;
        auto sizes = shape.sizes();
        if (!sizes) throw Unsupported{};
        const Expr expr = node.op().body(view, output_indices(shape));
        Body body;
        for (const Value* in : node.inputs()) {
            body.inputs.push_back(in ? &find(in, values) : nullptr);
            body.sizes.push_back(in && in->type().is_tensor() ? in->type().tensor().shape.sizes().value_or(Sizes{})
                                                              : Sizes{});
        }
        // find() may have moved what it returned before.
        for (size_t i = 0; i < node.inputs().size(); ++i)
            if (node.input(i)) body.inputs[i] = &find(node.input(i), values);
        const int root = body.compile(expr);
        std::vector<int> vars;
        for (size_t d = 0; d < sizes->size(); ++d) vars.push_back(body.variable(fmt::format("i{}", d)));
        std::vector<Known> out;
        const int64_t count = count_of(*v);
        for (int64_t i = 0; i < count; ++i) {
            int64_t rest = i;
            for (size_t d = sizes->size(); d-- > 0;) {
                body.variables[vars[d]] = rest % (*sizes)[d];
                rest /= (*sizes)[d];
            }
            out.push_back(value(body, root));
        }
        values[v] = std::move(out);
    }

    Known value(Body& body, int number) {
        const Step& s = body.steps[number];
        const ExprNode& n = *s.node;
        if (++work_ > kMaxWork) throw Unsupported{};
        switch (n.kind) {
            case ExprKind::Const:
                if (!is_float(n.dtype)) return {n.integer, false};
                if (auto number_of = field_from_real(n.real)) return {constant(*number_of), true};
                throw Unsupported{};
            case ExprKind::Var: return {body.variables[s.slot], false};
            case ExprKind::Load: return load(body, s);
            case ExprKind::Select: {
                Known condition = value(body, s.args[0]);
                if (!condition.element) return value(body, s.args[condition.value ? 1 : 2]);
                Known a = value(body, s.args[1]), b = value(body, s.args[2]);
                if (!a.element || !b.element) throw Unsupported{};
                return {apply(Op::Choose, condition.value, a.value, b.value), true};
            }
            case ExprKind::And:
            case ExprKind::Or: {
                Known a = value(body, s.args[0]);
                const bool both = n.kind == ExprKind::And;
                if (!a.element && (a.value != 0) != both) return a;
                Known b = value(body, s.args[1]);
                if (!a.element) return b;
                if (!b.element) return (b.value != 0) == both ? a : b;
                return {apply(both ? Op::Min : Op::Max, a.value, b.value), true};
            }
            case ExprKind::Reduce: return reduce(body, s);
            case ExprKind::Cast: {
                Known x = value(body, s.args[0]);
                if (is_float(n.dtype)) return x.element ? x : Known{constant(field_from_int(x.value)), true};
                if (is_float(s.from)) {
                    if (n.dtype != DType::boolean) throw Unsupported{};
                    return negated({apply(Op::Equal, x.value, constant(0)), true});
                }
                if (n.dtype == DType::boolean) return x.element ? x : Known{x.value != 0, false};
                if (x.element) throw Unsupported{};
                return x;
            }
            case ExprKind::Call: return call(body, s);
            case ExprKind::Not: return negated(value(body, s.args[0]));
            case ExprKind::Neg: {
                Known x = value(body, s.args[0]);
                if (!x.element) return {-x.value, false};
                if (is_constant(x.value, kFieldInfinity)) return {constant(kFieldMinusInfinity), true};
                if (is_constant(x.value, kFieldMinusInfinity)) return {constant(kFieldInfinity), true};
                return {apply(Op::Neg, x.value), true};
            }
            case ExprKind::CastSaturate:
            case ExprKind::BitNot: throw Unsupported{};
            default: break;
        }
        Known x = value(body, s.args[0]);
        for (size_t i = 1; i < s.args.size(); ++i) x = binary(n.kind, x, value(body, s.args[i]));
        return x;
    }

    Known negated(Known x) {
        if (!x.element) return {!x.value, false};
        return {apply(Op::Sub, constant(1), x.value), true};
    }

    Known load(Body& body, const Step& s) {
        const std::vector<Known>& elements = *body.inputs[s.slot];
        const Sizes& sizes = body.sizes[s.slot];
        int64_t offset = 0;
        for (size_t d = 0; d < s.args.size(); ++d) {
            Known at = value(body, s.args[d]);
            if (at.element || at.value < 0 || at.value >= sizes[d]) throw Unsupported{};
            offset = offset * sizes[d] + at.value;
        }
        return elements[offset];
    }

    Known reduce(Body& body, const Step& s) {
        const ReduceOp op = s.node->reduce_op;
        std::vector<int64_t> extents, at(s.axes.size(), 0);
        bool empty = false;
        for (const Axis& a : s.axes) {
            Known extent = value(body, a.extent);
            if (extent.element) throw Unsupported{};
            extents.push_back(extent.value);
            empty |= extent.value <= 0;
        }
        if (!is_float(s.node->dtype)) throw Unsupported{};
        std::vector<int64_t> terms;
        while (!empty) {
            for (size_t i = 0; i < at.size(); ++i) body.variables[s.axes[i].var] = at[i];
            terms.push_back(value(body, s.args[0]).value);
            bool more = false;
            for (size_t d = at.size(); d-- > 0 && !more;) {
                at[d] = at[d] + 1 == extents[d] ? 0 : at[d] + 1;
                more = at[d] != 0;
            }
            if (!more) break;
        }
        if (op == ReduceOp::Sum) return {sum(terms), true};
        int64_t acc = constant(op == ReduceOp::Prod ? 1 : op == ReduceOp::Min ? kFieldInfinity : kFieldMinusInfinity);
        const Op combine = op == ReduceOp::Prod ? Op::Mul : op == ReduceOp::Min ? Op::Min : Op::Max;
        for (int64_t t : terms) acc = apply(combine, acc, t);
        return {acc, true};
    }

    Known call(Body& body, const Step& s) {
        Known x = value(body, s.args[0]);
        if (!x.element) {
            if (s.node->fn == Fn::Abs) return {std::abs(x.value), false};
            throw Unsupported{};
        }
        int64_t y = s.args.size() > 1 ? value(body, s.args[1]).value : constant(0);
        switch (s.node->fn) {
            case Fn::IsNan:
            case Fn::IsInf: return {0, false};
            case Fn::Abs: return {apply(Op::Abs, x.value), true};
            case Fn::Sign: return {apply(Op::Sign, x.value), true};
            default: break;
        }
        return {apply(Op::Opaque, x.value, y, 0, static_cast<uint64_t>(s.node->fn)), true};
    }

    Known binary(ExprKind kind, Known x, Known y) {
        if (x.element != y.element) throw Unsupported{};
        const int64_t a = x.value, b = y.value;
        if (!x.element) {
            switch (kind) {
                case ExprKind::Add: return {a + b, false};
                case ExprKind::Sub: return {a - b, false};
                case ExprKind::Mul: return {a * b, false};
                case ExprKind::Div: return {b ? a / b : 0, false};
                case ExprKind::FloorDiv: return {floor_div_int(a, b), false};
                case ExprKind::Mod: return {b ? a - floor_div_int(a, b) * b : 0, false};
                case ExprKind::Rem: return {b ? a % b : 0, false};
                case ExprKind::Min: return {std::min(a, b), false};
                case ExprKind::Max: return {std::max(a, b), false};
                case ExprKind::Lt: return {a < b, false};
                case ExprKind::Le: return {a <= b, false};
                case ExprKind::Eq: return {a == b, false};
                case ExprKind::Ne: return {a != b, false};
                default: throw Unsupported{};
            }
        }
        switch (kind) {
            case ExprKind::Add: return {apply(Op::Add, a, b), true};
            case ExprKind::Sub: return {apply(Op::Sub, a, b), true};
            case ExprKind::Mul: return {apply(Op::Mul, a, b), true};
            case ExprKind::Div: return {apply(Op::Div, a, b), true};
            case ExprKind::Min: return {apply(Op::Min, a, b), true};
            case ExprKind::Max: return {apply(Op::Max, a, b), true};
            case ExprKind::Lt: return {apply(Op::Less, a, b), true};
            case ExprKind::Le: return {apply(Op::LessEqual, a, b), true};
            case ExprKind::Eq: return {apply(Op::Equal, a, b), true};
            case ExprKind::Ne: return negated({apply(Op::Equal, a, b), true});
            case ExprKind::Pow: return {apply(Op::Power, a, b), true};
            default: return {apply(Op::Opaque, a, b, 0, 0x30000 + static_cast<uint64_t>(kind)), true};
        }
    }

    // ---- code

    std::vector<uint32_t> places_;

    void emit(const std::vector<Known>& outputs) {
        places_.assign(elements_.size(), UINT32_MAX);
        std::vector<int> uses(elements_.size(), 0);
        for (const Known& out : outputs) {
            if (!out.element) throw Unsupported{};
            finite(out.value);
        }
        program_.size_ = static_cast<int64_t>(outputs.size());
        for (size_t i = 0; i < outputs.size(); ++i) {
            const auto to = (FieldProgram::kOutput << FieldProgram::kBaseShift) | static_cast<uint32_t>(i);
            const auto e = static_cast<uint32_t>(outputs[i].value);
            const Element& element = elements_[e];
            if (places_[e] == UINT32_MAX && (element.kind == Kind::Apply || element.kind == Kind::Dot))
                compute(e, to);
            else
                program_.code_.push_back({Op::Copy, to, place(e), 0, 0});
        }
    }

    uint32_t place(uint32_t e) {
        if (places_[e] != UINT32_MAX) return places_[e];
        const Element& element = elements_[e];
        if (element.kind == Kind::Input) return places_[e] = (element.a << FieldProgram::kBaseShift) | element.b;
        if (element.kind == Kind::Constant) {
            program_.constants_.push_back(element.value);
            return places_[e] = (FieldProgram::kConstants << FieldProgram::kBaseShift) |
                                static_cast<uint32_t>(program_.constants_.size() - 1);
        }
        const auto to =
            (FieldProgram::kTemporaries << FieldProgram::kBaseShift) | static_cast<uint32_t>(program_.temporaries_++);
        compute(e, to);
        return to;
    }

    void compute(uint32_t e, uint32_t to) {
        const Element element = elements_[e];
        if (element.kind == Kind::Dot) {
            std::vector<std::pair<uint32_t, uint32_t>> pairs;
            for (auto [a, b] : dots_[element.a]) {
                const uint32_t first = place(a);
                pairs.emplace_back(first, place(b));
            }
            const auto begin = static_cast<uint32_t>(program_.pairs_.size());
            program_.pairs_.insert(program_.pairs_.end(), pairs.begin(), pairs.end());
            program_.code_.push_back({Op::Dot, to, begin, static_cast<uint32_t>(pairs.size()), 0});
        } else {
            const uint32_t a = place(element.a), b = place(element.b);
            const uint32_t c = element.op == Op::Choose ? place(element.c) : static_cast<uint32_t>(element.value);
            program_.code_.push_back({element.op, to, a, b, c});
        }
        places_[e] = to;
    }
};

std::optional<FieldProgram> FieldProgram::compile(const Graph& graph) { return FieldCompiler().compile(graph); }

bool FieldProgram::run(const uint64_t* const* inputs, uint64_t* out, uint64_t key,
                       std::vector<uint64_t>& scratch) const {
    if (scratch.size() < static_cast<size_t>(temporaries_)) scratch.resize(temporaries_);
    uint64_t* bases[16] = {};
    for (uint32_t i = 0; i < kTemporaries; ++i) bases[i] = const_cast<uint64_t*>(inputs[i]);
    bases[kTemporaries] = scratch.data();
    bases[kConstants] = const_cast<uint64_t*>(constants_.data());
    bases[kOutput] = out;
    auto at = [&](uint32_t place) -> uint64_t& { return bases[place >> kBaseShift][place & kIndexMask]; };
    for (const Instruction& i : code_) {
        uint64_t result = 0;
        switch (i.op) {
            case Op::Copy: result = at(i.a); break;
            case Op::Add: result = field_add(at(i.a), at(i.b)); break;
            case Op::Sub: result = field_sub(at(i.a), at(i.b)); break;
            case Op::Mul: result = field_mul(at(i.a), at(i.b)); break;
            case Op::Div:
                if (at(i.b) == 0) return false;
                result = field_mul(at(i.a), field_inverse(at(i.b)));
                break;
            case Op::Neg: result = field_sub(0, at(i.a)); break;
            case Op::Min: result = field_signed(at(i.b)) < field_signed(at(i.a)) ? at(i.b) : at(i.a); break;
            case Op::Max: result = field_signed(at(i.a)) < field_signed(at(i.b)) ? at(i.b) : at(i.a); break;
            case Op::Less: result = field_signed(at(i.a)) < field_signed(at(i.b)); break;
            case Op::LessEqual: result = field_signed(at(i.a)) <= field_signed(at(i.b)); break;
            case Op::Equal: result = at(i.a) == at(i.b); break;
            case Op::Choose: result = at(i.a) ? at(i.b) : at(i.c); break;
            case Op::Dot: {
                unsigned __int128 sum = 0;  // products are below 2^122: 32 of them cannot overflow
                const auto* pair = &pairs_[i.a];
                for (uint32_t k = 0; k < i.b; ++k) {
                    sum += static_cast<unsigned __int128>(at(pair[k].first)) * at(pair[k].second);
                    if ((k & 31) == 31) sum = (sum & kFieldPrime) + (sum >> 61);
                }
                sum = (sum & kFieldPrime) + (sum >> 61);
                sum = (sum & kFieldPrime) + (sum >> 61);
                result = static_cast<uint64_t>(sum);
                if (result >= kFieldPrime) result -= kFieldPrime;
                break;
            }
            case Op::Abs: result = field_signed(at(i.a)) < 0 ? field_sub(0, at(i.a)) : at(i.a); break;
            case Op::Sign: result = field_from_int((field_signed(at(i.a)) > 0) - (field_signed(at(i.a)) < 0)); break;
            case Op::Power: {
                const int64_t e = field_signed(at(i.b));
                if (e < -kMaxExponent || e > kMaxExponent) {
                    result = mix(mix(mix(key, kPowerFunction), at(i.a)), at(i.b)) % kFieldPrime;
                    break;
                }
                if (e < 0 && at(i.a) == 0) return false;
                result = field_power(at(i.a), static_cast<uint64_t>(std::abs(e)));
                if (e < 0) result = field_inverse(result);
                break;
            }
            case Op::Opaque: result = opaque(i.c, at(i.a), at(i.b), key); break;
        }
        at(i.to) = result;
    }
    return true;
}

}  // namespace tessera
