#include "tile/absorb.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>

#include "base/check.h"
#include "tile/verify.h"

namespace tessera::tile {
namespace {

using At = MapOperand::At;

bool is_narrow_float(DType t) { return is_float(t) && dtype_bits(t) < 32; }

// The same without arithmetic on floats narrower than f32: what is loaded is widened, and what a node gives is rounded.
class Widening {
  public:
    Expr rounded(const Expr& e) { return is_narrow_float(e.dtype()) ? cast(wide(e), e.dtype()) : wide(e); }

  private:
    Expr wide(const Expr& e) {
        if (auto found = done_.find(e.get()); found != done_.end()) return found->second;
        const Expr made = make(e);
        done_.emplace(e.get(), made);
        return made;
    }
    Expr make(const Expr& e) {
        const bool narrow = is_narrow_float(e.dtype());
        if (e.is(ExprKind::Const)) return narrow ? real_const(e.node().real, DType::f32) : e;
        if (e.is(ExprKind::Load)) return narrow ? cast(e, DType::f32) : e;
        std::vector<Expr> args;
        for (const Expr& a : e.args()) args.push_back(wide(a));
        if (e.is(ExprKind::Cast) || e.is(ExprKind::CastSaturate)) {
            const Expr x = e.is(ExprKind::Cast) ? cast(args[0], e.dtype()) : cast_saturate(args[0], e.dtype());
            return narrow ? cast(x, DType::f32) : x;
        }
        return with_args(e, std::move(args));
    }
    std::map<const ExprNode*, Expr> done_;
};

class Absorbing {
  public:
    Absorbing(const ProgramData& program, size_t parameter, const ElementMap& map)
        : map_(map), parameter_(static_cast<int>(parameter)), body_(Widening().rounded(map.body)) {
        made_.program = program;
        auto arrays = arrays_of_pointers(program);
        CHECK(arrays.ok(), "a program whose arrays are not known");
        arrays_ = std::move(*arrays);
    }

    Absorbed into_loads(const Expr& elements) {
        const auto first = std::find_if(map_.operands.begin(), map_.operands.end(),
                                        [](const MapOperand& o) { return o.at == At::Same; });
        CHECK(first != map_.operands.end(), "no operand comes in the place of the array");
        first_ = static_cast<size_t>(first - map_.operands.begin());
        add_parameters();
        if (!keeps_zero()) size_ = number(elements);
        retype(first->dtype);
        region(made_.program.body, [&](Instruction& i) { return i.kind == Kind::Load ? load(i) : std::nullopt; });
        return std::move(made_);
    }

    Absorbed into_stores() {
        add_parameters();
        retype(map_.body.dtype());
        region(made_.program.body, [&](Instruction& i) { return i.kind == Kind::Store ? store(i) : std::nullopt; });
        return std::move(made_);
    }

  private:
    using Instructions = std::vector<Instruction>;
    // A number: a constant of the program, or a parameter.
    struct Number {
        std::optional<int64_t> known;
        int value = -1;
    };

    Type& type(int value) { return made_.program.types[static_cast<size_t>(value)]; }
    int fresh(Type t) {
        made_.program.types.push_back(std::move(t));
        return static_cast<int>(made_.program.types.size()) - 1;
    }
    int parameter(Type t, Absorbed::Parameter is) {
        const int value = fresh(std::move(t));
        const auto taken = [&](const std::string& name) {
            return std::any_of(made_.program.parameters.begin(), made_.program.parameters.end(),
                               [&](const Parameter& p) { return p.name == name; });
        };
        std::string name;
        do {
            name = fmt::format("with{}", names_++);
        } while (taken(name));
        made_.program.parameters.push_back({name, value});
        made_.added.push_back(std::move(is));
        return value;
    }
    Number number(const Expr& e) {
        if (const auto known = e.as_int()) return {known};
        for (size_t a = 0; a < made_.added.size(); ++a)
            if (!made_.added[a].operand && made_.added[a].number == e)
                return {{}, made_.program.parameters[made_.program.parameters.size() - made_.added.size() + a].value};
        return {{}, parameter({.dtype = DType::i64}, {{}, e})};
    }

    void add_parameters() {
        values_.resize(map_.operands.size(), -1);
        inner_.resize(map_.operands.size());
        count_.resize(map_.operands.size());
        for (size_t o = 0; o < map_.operands.size(); ++o) {
            const MapOperand& operand = map_.operands[o];
            if (operand.at == At::Own || first_ == o) continue;
            values_[o] = parameter({.dtype = operand.dtype, .pointer = operand.at != At::One}, {o});
            if (operand.at != At::Part) continue;
            inner_[o] = number(operand.inner);
            count_[o] = number(operand.count);
        }
    }
    void retype(DType dtype) {
        for (size_t v = 0; v < arrays_.size(); ++v)
            if (arrays_[v] == parameter_) made_.program.types[v].dtype = dtype;
    }
    bool is_own(int pointer) const { return arrays_[static_cast<size_t>(pointer)] == parameter_; }

    // What stands for each instruction that `f` makes something of.
    void region(Region& r, const std::function<std::optional<Instructions>(Instruction&)>& f) {
        Instructions all;
        for (Instruction& i : r.instructions) {
            for (Region& inner : i.regions) region(inner, f);
            auto instead = f(i);
            if (!instead) {
                all.push_back(std::move(i));
                continue;
            }
            for (Instruction& made : *instead) {
                made.place = i.place;
                all.push_back(std::move(made));
            }
        }
        r.instructions = std::move(all);
    }

    int add(Kind kind, std::vector<int> inputs, Type t, Expr body = 0) {
        const int out = fresh(std::move(t));
        made_now_.push_back({.kind = kind, .inputs = std::move(inputs), .outputs = {out}, .body = std::move(body)});
        return out;
    }
    int filled(int value, const std::vector<int64_t>& shape) {
        if (shape.empty()) return value;
        Type t = type(value);
        t.shape = shape;
        return add(Kind::Broadcast, {value}, t);
    }
    int map(const Expr& body, std::vector<int> inputs) {
        const std::vector<int64_t> shape = type(inputs[0]).shape;
        return add(Kind::Map, std::move(inputs), {.dtype = body.dtype(), .shape = shape}, body);
    }
    // An expression over i64 tiles and numbers.
    Expr operand_of(const Number& n, std::vector<int>& inputs, const std::vector<int64_t>& shape) {
        if (n.known) return *n.known;
        inputs.push_back(filled(n.value, shape));
        return tessera::load(static_cast<int>(inputs.size()) - 1, DType::i64, {});
    }
    int place_of(int pointer) {
        if (place_ < 0) place_ = add(Kind::PlaceOf, {pointer}, {.dtype = DType::i64, .shape = type(pointer).shape});
        return place_;
    }

    // The operand's elements that belong to those at a pointer.
    int loaded(size_t o, int pointer, std::optional<int> mask) {
        const std::vector<int64_t> shape = type(pointer).shape;
        const MapOperand& operand = map_.operands[o];
        if (operand.at == At::One) return filled(values_[o], shape);
        std::vector<int> inputs;
        int from = pointer;
        if (first_ != o) {
            int at = place_of(pointer);
            if (operand.at == At::Part) {
                std::vector<int> from_place = {at};
                const Expr place = tessera::load(0, DType::i64, {});
                // At least 1: what is empty is not read.
                const Expr inner = max(operand_of(inner_[o], from_place, shape), 1);
                const Expr count = max(operand_of(count_[o], from_place, shape), 1);
                at = map(rem(place / inner, count), from_place);
            }
            const int base = filled(values_[o], shape);
            from = add(Kind::Offset, {base, at}, type(base));
        }
        inputs.push_back(from);
        if (mask) inputs.push_back(*mask);
        return add(Kind::Load, inputs, {.dtype = operand.dtype, .shape = shape});
    }

    std::optional<Instructions> load(const Instruction& i) {
        if (!is_own(i.inputs[0])) return {};
        begin();
        const int pointer = i.inputs[0];
        const std::optional<int> mask = i.inputs.size() > 1 ? std::optional(i.inputs[1]) : std::nullopt;
        std::vector<int> inputs;
        for (size_t o = 0; o < map_.operands.size(); ++o) inputs.push_back(loaded(o, pointer, mask));
        const DType dtype = map_.body.dtype();
        const Expr zero = constant(0, dtype);
        Expr body = body_;
        const auto input = [&](int value) {
            inputs.push_back(value);
            return tessera::load(static_cast<int>(inputs.size()) - 1, type(value).dtype, {});
        };
        if (!keeps_zero()) {
            const Expr place = input(place_of(pointer));
            const Expr size = operand_of(size_, inputs, type(pointer).shape);
            body = select(logical_and(le(Expr(0), place), lt(place, size)), body, zero);
        }
        if (mask && i.inputs.size() > 2)
            body = select(input(*mask), body, input(i.inputs[2]));
        else if (mask && !keeps_zero())
            body = select(input(*mask), body, zero);
        made_now_.push_back({.kind = Kind::Map, .inputs = inputs, .outputs = i.outputs, .body = body});
        return std::move(made_now_);
    }

    std::optional<Instructions> store(const Instruction& i) {
        if (!is_own(i.inputs[0])) return {};
        begin();
        const std::optional<int> mask = i.inputs.size() > 2 ? std::optional(i.inputs[2]) : std::nullopt;
        std::vector<int> inputs;
        for (size_t o = 0; o < map_.operands.size(); ++o)
            inputs.push_back(map_.operands[o].at == At::Own ? i.inputs[1] : loaded(o, i.inputs[0], mask));
        Instruction stored = i;
        stored.inputs[1] = map(body_, inputs);
        made_now_.push_back(std::move(stored));
        return std::move(made_now_);
    }
    void begin() {
        made_now_.clear();
        place_ = -1;
    }

    // Whether nothing need be said of what lies outside, which is zeros.
    bool keeps_zero() const {
        return gives_zero(map_.body, [&](size_t o) { return map_.operands[o].at == At::Same; });
    }

    const ElementMap& map_;
    const int parameter_;
    const Expr body_;
    std::vector<int> arrays_;  // of values that were there before
    std::optional<size_t> first_;
    std::vector<int> values_;  // of operands, their parameters
    std::vector<Number> inner_, count_;
    Number size_;
    Absorbed made_;
    Instructions made_now_;
    int place_ = -1, names_ = 0;
};

}  // namespace

bool gives_zero(const Expr& body, const std::function<bool(size_t operand)>& zero) {
    const auto each = [&](const Expr& e) { return gives_zero(e, zero); };
    const auto factor = [](const Expr& e) {  // leaves 0 what it is
        if (!e.is(ExprKind::Const)) return false;
        return is_float(e.dtype()) ? e.node().real > 0 && std::isfinite(e.node().real) : true;
    };
    switch (body.kind()) {
        case ExprKind::Const:
            return is_float(body.dtype()) ? body.node().real == 0 && !std::signbit(body.node().real)
                                          : body.node().integer == 0;
        case ExprKind::Load: return zero(static_cast<size_t>(body.node().slot));
        case ExprKind::Cast: return each(body.arg(0));
        case ExprKind::Mul:
            return std::any_of(body.args().begin(), body.args().end(), each) &&
                   std::all_of(body.args().begin(), body.args().end(),
                               [&](const Expr& e) { return each(e) || factor(e); });
        case ExprKind::Add:
        case ExprKind::Min:
        case ExprKind::Max: return std::all_of(body.args().begin(), body.args().end(), each);
        case ExprKind::Select: return each(body.arg(1)) && each(body.arg(2));
        case ExprKind::Call: {
            const Fn fn = body.node().fn;
            return (fn == Fn::Tanh || fn == Fn::Erf || fn == Fn::Abs || fn == Fn::Sqrt) && each(body.arg(0));
        }
        default: return false;
    }
}

Absorbed absorb_into_loads(const ProgramData& program, size_t parameter, const Expr& elements, const ElementMap& map) {
    return Absorbing(program, parameter, map).into_loads(elements);
}
Absorbed absorb_into_stores(const ProgramData& program, size_t parameter, const ElementMap& map) {
    return Absorbing(program, parameter, map).into_stores();
}

}  // namespace tessera::tile
