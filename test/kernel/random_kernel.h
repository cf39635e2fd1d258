// Random kernels from a seed: nests of every loop kind over buffers of every dtype, guarded tails, reductions into
// elements, registers and local memory, padded and indirect loads. Every access is in bounds, and no result depends on
// the order in which iterations of Parallel and Vector loops run. With blocks, threads and barriers: random_threads.h.
#pragma once

#include <cmath>
#include <random>

#include "base/numeric.h"
#include "kernel/ir/compute.h"

namespace tessera {

struct RandomKernelOptions {
    DTypes dtypes{DType::f32, DType::f64, DType::f16, DType::bf16, DType::i64, DType::i32,
                  DType::i16, DType::i8,  DType::u64, DType::u32,  DType::u8,  DType::boolean};
    // Floats are small whole numbers and stay exact whatever is fused, reordered or widened, so that results can be
    // compared bit by bit. Otherwise they are any numbers, through all operations.
    bool exact = true;
    bool functions = true;  // exp, tanh, ...: only where not exact
    int nests = 3;          // at most
    int depth = 3;          // of expressions
};

struct RandomKernel {
    Kernel kernel;
    SymbolValues symbols;
    std::vector<Tensor> buffers;  // for the parameters: inputs filled, the others zero
};

class RandomKernelMaker {
  public:
    explicit RandomKernelMaker(uint64_t seed, RandomKernelOptions options = {}) : random_(seed), options_(options) {
        for (int t = 0; t < kDTypeCount; ++t)
            if (options.dtypes.has(static_cast<DType>(t))) dtypes_.push_back(static_cast<DType>(t));
        made_.kernel.name = "random" + std::to_string(seed);
        for (const char* name : {"N", "M"}) made_.symbols[name] = 1 + static_cast<int64_t>(pick(20));
        made_.kernel.symbols = {"N", "M"};
    }

    RandomKernel make() {
        size_t inputs = 1 + pick(3), outputs = 1 + pick(static_cast<uint64_t>(options_.nests));
        for (size_t i = 0; i < inputs; ++i) add_buffer("x" + std::to_string(i), any_dtype(), any_shape());
        for (size_t i = 0; i < outputs; ++i) add_buffer("y" + std::to_string(i), any_dtype(), any_shape());
        made_.kernel.params = inputs + outputs;
        for (size_t i = 0; i < inputs + outputs; ++i) made_.buffers.push_back(memory(i, i < inputs));
        for (size_t i = 0; i < inputs; ++i) complete_.push_back(static_cast<int>(i));
        std::vector<Stmt> nests;
        for (size_t i = 0; i < outputs; ++i) {
            nests.push_back(nest(static_cast<int>(inputs + i)));
            complete_.push_back(static_cast<int>(inputs + i));
        }
        made_.kernel.body = seq(std::move(nests));
        return std::move(made_);
    }

    virtual ~RandomKernelMaker() = default;

    uint64_t pick(uint64_t n) { return random_() % n; }

  protected:
    // With a bound of its magnitude, 2^bits, where floats must stay exact.
    struct Valued {
        Expr e;
        int bits;
    };
    struct Axis {
        Expr var, extent;
    };

    std::mt19937_64 random_;
    RandomKernelOptions options_;
    std::vector<DType> dtypes_;
    RandomKernel made_;
    std::vector<int> bits_;      // by buffer
    std::vector<int> complete_;  // buffers that can be read
    std::vector<Axis> scope_;
    int names_ = 0;

    static constexpr int kBits = 3, kMostBits = 22;

    DType any_dtype() { return dtypes_[pick(dtypes_.size())]; }

    // How large a whole number may be for the type to hold it and all below it.
    static int exact_bits(DType t) {
        if (!is_float(t)) return 64;
        switch (t) {
            case DType::f64:
            case DType::f32: return kMostBits;
            case DType::f16: return 11;
            case DType::bf16: return 8;
            default: return 2;
        }
    }

    Expr any_dim() {
        constexpr int64_t kSizes[] = {1, 2, 3, 4, 5, 7, 8, 16, 33};
        uint64_t choice = pick(13);
        if (choice >= 9) return symbol(choice < 11 ? "N" : "M");
        return kSizes[choice];
    }
    std::vector<Expr> any_shape() {
        std::vector<Expr> shape(pick(10) == 0 ? 0 : 1 + pick(3));
        for (Expr& e : shape) e = any_dim();
        return shape;
    }

    int add_buffer(std::string name, DType dtype, std::vector<Expr> shape, Scope scope = Scope::Global) {
        made_.kernel.buffers.push_back({std::move(name), dtype, std::move(shape), scope});
        bits_.push_back(std::min(kBits, exact_bits(dtype)));
        return static_cast<int>(made_.kernel.buffers.size()) - 1;
    }
    const Buffer& buffer(int slot) const { return made_.kernel.buffers[static_cast<size_t>(slot)]; }
    int& bits(int slot) { return bits_[static_cast<size_t>(slot)]; }

    Tensor memory(size_t slot, bool filled) {
        const Buffer& b = made_.kernel.buffers[slot];
        Sizes sizes;
        for (const Expr& e : b.shape) sizes.push_back(*evaluate_int(e, made_.symbols));
        Tensor t = std::move(Tensor::zeros(b.dtype, sizes).value());
        for (int64_t i = 0; filled && i < t.elements(); ++i) {
            int64_t whole = static_cast<int64_t>(pick(15)) - 7;
            if (!is_float(b.dtype))
                t.set_int(i, pick(8) ? whole : static_cast<int64_t>(random_()));
            else if (options_.exact)
                t.set_real(i, static_cast<double>(exact_bits(b.dtype) > 2 ? whole : whole / 2));
            else
                t.set_real(i, (static_cast<double>(pick(1 << 20)) / (1 << 19) - 1) * 4);
        }
        return t;
    }

    // Loops.

    Axis new_axis(const Expr& extent) {
        std::string name = std::string(1, "ijkpqr"[pick(6)]) + std::to_string(names_++);
        return {index_var(name, extent.as_int()), extent};
    }

    static Stmt loop(const Axis& a, LoopKind kind, Stmt body) {
        return for_loop({.var = a.var, .extent = a.extent, .kind = kind, .body = std::move(body)});
    }

    LoopKind inner_kind(const Axis& a) {
        bool small = a.extent.as_int() && *a.extent.as_int() <= 16;
        if (!small) return LoopKind::Serial;
        constexpr LoopKind kKinds[] = {LoopKind::Serial, LoopKind::Vector, LoopKind::Vector, LoopKind::Unrolled};
        return kKinds[pick(4)];
    }

    // One dimension of the output: a loop, or two with a guard where they overshoot.
    struct Dimension {
        std::vector<Axis> axes;
        Expr index;
        std::optional<Expr> guard;
    };
    Dimension dimension(const Expr& size) {
        if (pick(2)) {
            Axis a = new_axis(size);
            return {{a}, a.var, {}};
        }
        constexpr int64_t kFactors[] = {2, 3, 4, 8};
        int64_t factor = kFactors[pick(4)];
        Axis outer = new_axis(ceil_div(size, factor)), inner = new_axis(factor);
        Expr index = outer.var * factor + inner.var;
        bool divides = size.as_int() && *size.as_int() % factor == 0;
        return {{outer, inner}, index, divides ? std::optional<Expr>() : lt(index, size)};
    }

    Stmt guarded(const std::optional<Expr>& guard, Stmt body) { return guard ? if_then(*guard, body) : body; }

    virtual Stmt nest(int out) {
        const Buffer b = buffer(out);
        std::vector<Axis> outer, inner;
        std::vector<Expr> indices;
        std::optional<Expr> guard;
        for (const Expr& size : b.shape) {
            Dimension d = dimension(size);
            indices.push_back(d.index);
            if (d.guard) guard = guard ? logical_and(*guard, *d.guard) : *d.guard;
            outer.push_back(d.axes[0]);
            if (d.axes.size() > 1) inner.push_back(d.axes[1]);
        }
        bool reorder = pick(2) == 0;
        std::vector<Axis> axes = outer;
        if (reorder) std::shuffle(axes.begin(), axes.end(), random_);
        axes.insert(axes.end(), inner.begin(), inner.end());
        scope_ = axes;
        Stmt body;
        LoopKind last = LoopKind::Serial;
        switch (pick(4)) {
            case 0:
            case 1: {
                if (!axes.empty()) last = inner_kind(axes.back());
                Valued v = fitting(b.dtype, out);
                body = guarded(guard, store(out, indices, v.e));
                break;
            }
            case 2: body = guarded(guard, reduce_directly(out, indices)); break;
            default: body = guarded(guard, reduce_aside(out, indices)); break;
        }
        for (size_t i = axes.size(); i-- > 0;) {
            LoopKind kind = i + 1 == axes.size() ? last : LoopKind::Serial;
            if (kind == LoopKind::Serial && pick(4) == 0 && axes[i].extent.as_int().value_or(99) <= 4)
                kind = LoopKind::Unrolled;
            if (i == 0 && pick(2) == 0) kind = LoopKind::Parallel;
            body = loop(axes[i], kind, body);
        }
        scope_.clear();
        return body;
    }

    ReduceOp any_combine(DType t) {
        bool sums = t != DType::boolean && (!options_.exact || exact_bits(t) >= kMostBits);
        return sums && pick(2) ? ReduceOp::Sum : pick(2) ? ReduceOp::Min : ReduceOp::Max;
    }

    Valued reduced(DType t, ReduceOp op, int out) {
        Valued v = fitting(t, out);
        if (op == ReduceOp::Sum && is_float(t) && options_.exact) {
            v.e = clamp(v.e, constant(-16, t), constant(16, t));
            bits(out) = 13;  // at most 33 * 8 of them
        }
        return v;
    }

    // Into the element itself, over one or two axes.
    Stmt reduce_directly(int out, const std::vector<Expr>& indices) {
        DType t = buffer(out).dtype;
        ReduceOp op = any_combine(t);
        std::vector<Axis> axes{new_axis(any_dim())};
        if (pick(3) == 0) axes.push_back(new_axis(2 + static_cast<int64_t>(pick(3))));
        scope_.insert(scope_.end(), axes.begin(), axes.end());
        Stmt body = store(out, indices, reduced(t, op, out).e, op);
        bool conditional = pick(3) == 0;
        if (conditional) body = if_then(condition(1), body);
        for (size_t i = axes.size(); i-- > 0;)
            body = loop(axes[i], i + 1 == axes.size() ? inner_kind(axes[i]) : LoopKind::Serial, body);
        Stmt start = store(out, indices, conditional || pick(3) == 0 ? constant(1, t) : identity(op, t));
        return seq({start, body});
    }

    // In a tile of partial results, which are combined at the end.
    Stmt reduce_aside(int out, const std::vector<Expr>& indices) {
        DType t = buffer(out).dtype;
        ReduceOp op = any_combine(t);
        int64_t lanes = int64_t{1} << pick(4);
        bool in_registers = pick(2);
        int acc = add_buffer("t" + std::to_string(names_++), t, {lanes}, in_registers ? Scope::Register : Scope::Local);
        auto over_lanes = [&](auto&& body) {
            Axis lane = new_axis(lanes);
            LoopKind kind = pick(2) ? LoopKind::Vector : LoopKind::Unrolled;
            scope_.push_back(lane);
            Stmt s = loop(lane, kind, body(lane.var));
            scope_.pop_back();
            return s;
        };
        Stmt start = over_lanes([&](const Expr& lane) { return store(acc, {lane}, identity(op, t)); });
        Axis k = new_axis(any_dim());
        scope_.push_back(k);
        Stmt update = over_lanes([&](const Expr& lane) { return store(acc, {lane}, reduced(t, op, out).e, op); });
        update = loop(k, LoopKind::Serial, update);
        scope_.pop_back();
        Stmt end = over_lanes([&](const Expr& lane) { return store(out, indices, load(acc, t, {lane}), op); });
        return alloc(acc, seq({start, update, store(out, indices, identity(op, t)), end}));
    }

    // Expressions.

    Valued fitting(DType t, int out) {
        Valued v = value(t, options_.depth);
        if (!is_float(t) || !options_.exact) return v;
        int limit = std::min(exact_bits(t), 6);
        if (v.bits > limit) {
            double most = std::ldexp(1.0, limit) - (limit > 2 ? 1 : 0);
            v = {clamp(v.e, constant(-most, t), constant(most, t)), limit};
        }
        bits(out) = std::max(bits(out), v.bits);
        return v;
    }

    Expr condition(int depth) {
        if (depth > 0 && pick(3) == 0) {
            Expr a = condition(depth - 1), b = condition(depth - 1);
            switch (pick(3)) {
                case 0: return logical_and(a, b);
                case 1: return logical_or(a, b);
                default: return logical_not(a);
            }
        }
        DType t = any_dtype();
        if (t == DType::boolean) t = DType::i64;
        Expr a = pick(2) ? index_value() : value(t, depth - 1).e;
        Expr b = a.dtype() == DType::i64 ? (pick(2) ? Expr(static_cast<int64_t>(pick(9))) : index_value())
                                         : value(a.dtype(), 0).e;
        switch (pick(4)) {
            case 0: return lt(a, b);
            case 1: return le(a, b);
            case 2: return eq(a, b);
            default: return ne(a, b);
        }
    }

    // An i64 of loop variables and sizes.
    Expr index_value() {
        if (scope_.empty()) return symbol("N");
        Expr e = scope_[pick(scope_.size())].var;
        switch (pick(5)) {
            case 0: return e;
            case 1: return e * (1 + static_cast<int64_t>(pick(3))) + scope_[pick(scope_.size())].var;
            case 2: return e + (static_cast<int64_t>(pick(7)) - 3);
            case 3: return floor_div(e, 1 + static_cast<int64_t>(pick(4)));
            default: return symbol("M") - e;
        }
    }

    // An index into a dimension that has at least one element.
    Expr index_into(const Expr& size) {
        for (const Axis& a : scope_)
            if (pick(2) &&
                (a.extent.same(size) || (a.extent.as_int() && size.as_int() && *a.extent.as_int() <= *size.as_int())))
                return pick(4) ? a.var : size - 1 - a.var;
        switch (pick(5)) {
            case 0: return size - 1;
            case 1: return mod(index_value(), size);
            case 2: return clamp(index_value(), 0, size - 1);
            case 3:
                for (int slot : complete_)
                    if (is_int(buffer(slot).dtype)) {
                        std::vector<Expr> at;
                        for (const Expr& s : buffer(slot).shape) at.push_back(mod(index_value(), s));
                        Expr read = cast(load(slot, buffer(slot).dtype, at), DType::i64);
                        return min(max(read, 0), size - 1);
                    }
                return 0;
            default: return size.as_int() ? Expr(static_cast<int64_t>(pick(static_cast<uint64_t>(*size.as_int())))) : 0;
        }
    }

    Valued read() {
        int slot = complete_[pick(complete_.size())];
        const Buffer& b = buffer(slot);
        std::vector<Expr> at;
        for (const Expr& size : b.shape) at.push_back(index_into(size));
        Expr e = load(slot, b.dtype, at);
        if (!at.empty() && pick(4) == 0) {  // padded: out of bounds in the branch not taken
            Expr moved = at[0] + (static_cast<int64_t>(pick(5)) - 2);
            at[0] = moved;
            Expr inside = logical_and(le(0, moved), lt(moved, b.shape[0]));
            e = select(inside, load(slot, b.dtype, at), constant(0, b.dtype));
        }
        return {e, is_float(b.dtype) && options_.exact ? bits(slot) : 64};
    }

    Valued leaf(DType t) {
        uint64_t choice = pick(8);
        if (choice == 0) {
            int64_t c = static_cast<int64_t>(pick(9)) - 4;
            if (is_float(t) && !options_.exact) return {real_const(static_cast<double>(c) * 0.375, t), 3};
            if (exact_bits(t) <= 2) c /= 2;
            return {constant(static_cast<double>(c), t), 3};
        }
        if (choice == 1) return converted({mod(index_value(), 7), 3}, t);
        return converted(read(), t);
    }

    // A value of another type. Numbers that may be large are made small first where floats must stay exact.
    Valued converted(Valued v, DType t) {
        DType from = v.e.dtype();
        if (from == t) return v;
        if (from == DType::boolean) return {cast(v.e, t), 1};
        if (!options_.exact || !is_float(t)) {
            if (t != DType::boolean && pick(4) == 0) return {cast_saturate(v.e, t), v.bits};
            return {cast(v.e, t), v.bits};
        }
        int limit = std::min(exact_bits(t), kBits);
        if (v.bits <= limit) return {cast(v.e, t), v.bits};
        double most = std::ldexp(1.0, limit) - 1;
        double least = is_unsigned_int(from) ? 0 : -most;
        return {cast(clamp(v.e, constant(least, from), constant(most, from)), t), limit};
    }

    Valued value(DType t, int depth) {
        if (depth <= 0 || pick(6) == 0) return leaf(t);
        if (t == DType::boolean) return {condition(depth - 1), 1};
        if (pick(6) == 0) {
            Expr c = condition(depth - 1);
            Valued a = value(t, depth - 1), b = value(t, depth - 1);
            return {select(c, a.e, b.e), std::max(a.bits, b.bits)};
        }
        if (pick(6) == 0) return converted(value(any_dtype(), depth - 1), t);
        return is_float(t) ? real_value(t, depth - 1) : int_value(t, depth - 1);
    }

    Valued int_value(DType t, int depth) {
        Expr a = value(t, depth).e, b = value(t, depth).e;
        constexpr ExprKind kBitwise[] = {ExprKind::BitAnd, ExprKind::BitOr, ExprKind::BitXor, ExprKind::Shl,
                                         ExprKind::Shr};
        switch (pick(13)) {
            case 0: return {a + b, 64};
            case 1: return {a - b, 64};
            case 2: return {a * b, 64};
            case 3: return {a / b, 64};
            case 4: return {mod(a, b), 64};
            case 5: return {rem(a, b), 64};
            case 6: return {min(a, b), 64};
            case 7: return {max(a, b), 64};
            case 8: return {-a, 64};
            case 9: return {bit_not(a), 64};
            case 10: return {call(pick(2) ? Fn::Abs : Fn::Sign, {a}), 64};
            default: return {bit(kBitwise[pick(5)], a, b), 64};
        }
    }

    Valued real_value(DType t, int depth) {
        Valued a = value(t, depth), b = value(t, depth);
        int larger = std::max(a.bits, b.bits);
        int most = exact_bits(t);
        bool any = !options_.exact;
        switch (pick(any ? 18 : 10)) {
            case 0:
            case 1:
                if (larger < most || any) return {a.e + b.e, larger + 1};
                break;
            case 2:
                if (larger < most || any) return {a.e - b.e, larger + 1};
                break;
            case 3:
            case 4:
                if (a.bits + b.bits <= most || any) return {a.e * b.e, a.bits + b.bits};
                break;
            case 5: return {min(a.e, b.e), larger};
            case 6: return {max(a.e, b.e), larger};
            case 7: return {-a.e, a.bits};
            case 8: return {call(Fn::Abs, {a.e}), a.bits};
            case 9: return {call(pick(2) ? Fn::Floor : Fn::Round, {a.e}), a.bits};
            case 10: return {a.e / b.e, 64};
            case 11: return {call(Fn::Sqrt, {call(Fn::Abs, {a.e})}), 64};
            case 12: return {rem(a.e, b.e), 64};
            case 13: return {call(pick(2) ? Fn::Ceil : Fn::Trunc, {a.e}), 64};
            default: {
                constexpr Fn kFns[] = {Fn::Exp, Fn::Tanh, Fn::Erf, Fn::Sin, Fn::Log1p, Fn::Atan};
                Fn fn = kFns[pick(6)];
                if (!options_.functions) break;
                return {call(fn, {fn == Fn::Log1p ? call(Fn::Abs, {a.e}) : min(a.e, constant(4, t))}), 64};
            }
        }
        return a;
    }
};

inline RandomKernel random_kernel(uint64_t seed, RandomKernelOptions options = {}) {
    return RandomKernelMaker(seed, options).make();
}

// Tensors with memory of their own.
inline std::vector<Tensor> copies(const std::vector<Tensor>& tensors) {
    std::vector<Tensor> out;
    for (const Tensor& t : tensors) {
        out.push_back(std::move(Tensor::zeros(t.dtype(), t.sizes()).value()));
        std::memcpy(out.back().mutable_data(), t.data(), static_cast<size_t>(t.bytes()));
    }
    return out;
}

// Where two lists of tensors first differ by more than `tolerance` (of the larger, or of 1), in words; empty: nowhere.
inline std::string first_difference(const std::vector<Tensor>& a, const std::vector<Tensor>& b, double tolerance = 0) {
    for (size_t t = 0; t < a.size(); ++t)
        for (int64_t i = 0; i < a[t].elements(); ++i) {
            double x = a[t].real_at(i), y = b[t].real_at(i);
            bool same =
                is_float(a[t].dtype()) ? x == y || (std::isnan(x) && std::isnan(y)) : a[t].int_at(i) == b[t].int_at(i);
            if (same || std::abs(x - y) <= tolerance * std::max({1.0, std::abs(x), std::abs(y)})) continue;
            return fmt::format("parameter {}, element {}: {} and {}", t, i, x, y);
        }
    return "";
}

}  // namespace tessera
