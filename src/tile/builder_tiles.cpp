// Tiles as wholes: their shapes, memory, products, reductions and scans.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "tile/builder_state.h"

namespace tessera::tile {

Result<size_t> checked_axis(int64_t axis, size_t rank) {
    const auto dimensions = static_cast<int64_t>(rank);
    if (axis < -dimensions || axis >= dimensions)
        return Error(Code::E0212, "axis {} is out of range for a tile of {} dimensions", axis, rank);
    return static_cast<size_t>(axis < 0 ? axis + dimensions : axis);
}

Result<Value> Builder::broadcast(const Value& x, std::vector<int64_t> shape) {
    if (x.type.shape == shape) return x;
    const std::vector<int64_t> common = TRY(common_shape(x.type.shape, shape));
    if (common != shape)
        return Error(Code::E0210, "[{}] does not broadcast to [{}]", fmt::join(x.type.shape, ", "),
                     fmt::join(shape, ", "));
    Value from = x;
    if (!x.type.shape.empty() && x.type.shape.size() < shape.size()) {
        std::vector<int64_t> longer = x.type.shape;
        longer.insert(longer.begin(), shape.size() - longer.size(), 1);
        from = TRY(reshape(x, longer));
        if (longer == shape) return from;
    }
    Type type = x.type;
    type.shape = std::move(shape);
    return state_->add({.kind = Kind::Broadcast, .inputs = {from.number}}, std::move(type));
}

Result<Value> Builder::reshape(const Value& x, std::vector<int64_t> shape) {
    Type type = x.type;
    type.shape = std::move(shape);
    if (type == x.type) return x;
    if (element_count(type) != element_count(x.type))
        return Error(Code::E0210, "[{}] has {} elements, and [{}] has {}", fmt::join(x.type.shape, ", "),
                     element_count(x.type), fmt::join(type.shape, ", "), element_count(type));
    return state_->add({.kind = Kind::Reshape, .inputs = {x.number}}, std::move(type));
}

Result<Value> Builder::expand(const Value& x, int64_t axis) {
    const size_t at = TRY(checked_axis(axis, x.type.shape.size() + 1));
    std::vector<int64_t> shape = x.type.shape;
    shape.insert(shape.begin() + static_cast<std::ptrdiff_t>(at), 1);
    return reshape(x, std::move(shape));
}

Result<Value> Builder::permute(const Value& x, std::vector<int64_t> order) {
    const std::vector<int64_t>& shape = x.type.shape;
    Type type = x.type;
    type.shape.clear();
    std::vector<bool> seen(shape.size());
    for (int64_t& axis : order) {
        axis = static_cast<int64_t>(TRY(checked_axis(axis, shape.size())));
        seen[static_cast<size_t>(axis)] = true;
        type.shape.push_back(shape[static_cast<size_t>(axis)]);
    }
    if (order.size() != shape.size() || std::count(seen.begin(), seen.end(), false))
        return Error(Code::E0212, "({}) is not a permutation of {} dimensions", fmt::join(order, ", "), shape.size());
    return state_->add({.kind = Kind::Permute, .inputs = {x.number}, .numbers = std::move(order)}, std::move(type));
}

Result<Value> Builder::join(const Operand& a, const Operand& b) {
    const DType type = TRY(common_type(dtype_of(a), is_literal(a), dtype_of(b), is_literal(b)));
    Value left = TRY(constant(a, type)), right = TRY(constant(b, type));
    const std::vector<int64_t> shape = TRY(common_shape(left.type.shape, right.type.shape));
    left = TRY(broadcast(left, shape));
    right = TRY(broadcast(right, shape));
    Type joined = left.type;
    joined.shape.push_back(2);
    return state_->add({.kind = Kind::Join, .inputs = {left.number, right.number}}, std::move(joined));
}

Result<std::pair<Value, Value>> Builder::split(const Value& x) {
    if (x.type.shape.empty() || x.type.shape.back() != 2)
        return Error(Code::E0210, "split() needs a last dimension of 2, not {}", x.type.to_string());
    Type half = x.type;
    half.shape.pop_back();
    Instruction instruction{.kind = Kind::Split, .inputs = {x.number}};
    Value first = state_->fresh(half), second = state_->fresh(half);
    instruction.outputs = {first.number, second.number};
    state_->append(std::move(instruction));
    return std::pair{first, second};
}

Result<Value> Builder::concatenate(const Value& a, const Value& b) {
    Type type = a.type;
    if (type.shape.empty() || a.type.dtype != b.type.dtype || a.type.shape.size() != b.type.shape.size() ||
        !std::equal(a.type.shape.begin() + 1, a.type.shape.end(), b.type.shape.begin() + 1))
        return Error(Code::E0210, "{} and {} cannot be concatenated", a.type.to_string(), b.type.to_string());
    type.shape[0] += b.type.shape[0];
    return state_->add({.kind = Kind::Concatenate, .inputs = {a.number, b.number}}, std::move(type));
}

Result<Value> Builder::gather(const Value& x, const Value& indices, int64_t axis) {
    const size_t at = TRY(checked_axis(axis, x.type.shape.size()));
    if (!is_int(indices.type.dtype))
        return Error(Code::E0208, "indices are integers, not {}", indices.type.to_string());
    bool fits = indices.type.shape.size() == x.type.shape.size();
    for (size_t i = 0; fits && i < x.type.shape.size(); ++i) fits = i == at || x.type.shape[i] == indices.type.shape[i];
    if (!fits)
        return Error(Code::E0210, "indices {} do not fit {} along axis {}", indices.type.to_string(),
                     x.type.to_string(), at);
    Type type = x.type;
    type.shape = indices.type.shape;
    return state_->add(
        {.kind = Kind::Gather, .inputs = {x.number, indices.number}, .numbers = {static_cast<int64_t>(at)}},
        std::move(type));
}

Result<Value> Builder::flip(const Value& x, int64_t axis) {
    const auto at = static_cast<int64_t>(TRY(checked_axis(axis, x.type.shape.size())));
    return state_->add({.kind = Kind::Flip, .inputs = {x.number}, .numbers = {at}}, x.type);
}

Result<Value> Builder::load(const Value& pointer, const std::optional<Operand>& mask,
                            const std::optional<Operand>& other) {
    if (!pointer.type.pointer)
        return Error(Code::E0208, "load() takes pointers, not {}", pointer.type.to_string())
            .hint("array arguments are pointers; integers are not");
    if (other && !mask) return Error(Code::E0501, "load() with \"other\" needs a mask");
    Value from = pointer;
    Instruction instruction{.kind = Kind::Load};
    std::vector<Value> more;
    if (mask) {
        Value masked = TRY(constant(*mask));
        if (masked.type.dtype != DType::boolean) masked = TRY(binary("!=", masked, int64_t{0}));
        const std::vector<int64_t> shape = TRY(common_shape(from.type.shape, masked.type.shape));
        from = TRY(broadcast(from, shape));
        more.push_back(TRY(broadcast(masked, shape)));
    }
    if (other) more.push_back(TRY(broadcast(TRY(constant(*other, pointer.type.dtype)), from.type.shape)));
    instruction.inputs.push_back(from.number);
    for (const Value& v : more) instruction.inputs.push_back(v.number);
    const Value loaded =
        state_->add(std::move(instruction), {.dtype = from.type.dtype, .pointer = false, .shape = from.type.shape});
    return from.type.then ? pointer_at(loaded, *from.type.then) : loaded;
}

Status Builder::store(const Value& pointer, const Operand& value, const std::optional<Operand>& mask) {
    if (!pointer.type.pointer) return Error(Code::E0208, "store() takes pointers, not {}", pointer.type.to_string());
    if (pointer.type.then && !is_literal(value) && type_of(value).pointer)
        return store(pointer, TRY(address(std::get<Value>(value))), mask);
    Value stored = TRY(constant(value, pointer.type.dtype));
    std::vector<int64_t> shape = pointer.type.shape;
    Value masked;
    if (mask) {
        masked = TRY(constant(*mask));
        if (masked.type.dtype != DType::boolean) masked = TRY(binary("!=", masked, int64_t{0}));
    }
    const std::vector<int64_t> wanted = TRY(common_shape(shape, stored.type.shape));
    if (wanted != shape && !shape.empty())
        return Error(Code::E0210, "{} does not fit the pointers {} that it is stored at", stored.type.to_string(),
                     pointer.type.to_string());
    shape = wanted;
    Value to = TRY(broadcast(pointer, shape));
    Instruction instruction{.kind = Kind::Store, .inputs = {to.number, TRY(broadcast(stored, shape)).number}};
    if (mask) instruction.inputs.push_back(TRY(broadcast(masked, shape)).number);
    state_->append(std::move(instruction));
    return {};
}

Result<Value> Builder::atomic(std::string_view how, const Value& pointer, const Operand& value,
                              const std::optional<Operand>& mask, const std::optional<Operand>& expected) {
    if (!pointer.type.pointer) return Error(Code::E0208, "atomics take pointers, not {}", pointer.type.to_string());
    const DType dtype = pointer.type.dtype;
    if (dtype == DType::boolean || (is_float(dtype) && (how == "and" || how == "or" || how == "xor")))
        return Error(Code::E0208, "atomic {} is not for {}", how, dtype_name(dtype));
    std::vector<Value> rest;
    if (expected) rest.push_back(TRY(constant(*expected, dtype)));
    rest.push_back(TRY(constant(value, dtype)));
    if (mask) {
        Value masked = TRY(constant(*mask));
        if (masked.type.dtype != DType::boolean) masked = TRY(binary("!=", masked, int64_t{0}));
        rest.push_back(masked);
    }
    std::vector<int64_t> shape = pointer.type.shape;
    for (const Value& v : rest) shape = TRY(common_shape(shape, v.type.shape));
    Instruction instruction{
        .kind = Kind::Atomic, .inputs = {TRY(broadcast(pointer, shape)).number}, .word = std::string(how)};
    for (const Value& v : rest) instruction.inputs.push_back(TRY(broadcast(v, shape)).number);
    return state_->add(std::move(instruction), {.dtype = dtype, .pointer = false, .shape = std::move(shape)});
}

Result<Value> Builder::dot(const Value& a, const Value& b, const std::optional<Value>& add, DType out,
                           int64_t imprecise, std::string_view precision) {
    const std::vector<int64_t>&sa = a.type.shape, &sb = b.type.shape;
    const size_t rank = sa.size();
    if ((rank != 2 && rank != 3) || sb.size() != rank || sa[rank - 1] != sb[rank - 2] || (rank == 3 && sa[0] != sb[0]))
        return Error(Code::E0210, "{} and {} cannot be multiplied", a.type.to_string(), b.type.to_string())
            .hint("dot() takes [M, K] and [K, N], or a number of such pairs");
    if (a.type.dtype != b.type.dtype && !(dtype_bits(a.type.dtype) == 8 && dtype_bits(b.type.dtype) == 8))
        return Error(Code::E0208, "dot() of {} and {}: the element types must be equal", a.type.to_string(),
                     b.type.to_string())
            .hint("cast one of them");
    Type type{.dtype = is_int(a.type.dtype)         ? DType::i32
                       : a.type.dtype == DType::f64 ? DType::f64
                                                    : out,
              .pointer = false,
              .shape = sa};
    type.shape[rank - 1] = sb[rank - 1];
    Instruction instruction{.kind = Kind::Dot, .inputs = {a.number, b.number}};
    if (imprecise > 0) instruction.numbers = {imprecise};
    if (a.type.dtype == DType::f32 && precision.starts_with("tf32")) instruction.word = precision;
    if (add) {
        if (add->type.shape != type.shape)
            return Error(Code::E0210, "dot() returns {}, but the accumulator is {}", type.to_string(),
                         add->type.to_string());
        type.dtype = add->type.dtype;
        instruction.inputs.push_back(add->number);
    }
    return state_->add(std::move(instruction), std::move(type));
}

Result<Value> Builder::reduce(Reduction how, const Value& x, int64_t axis, bool keep) {
    const size_t at = TRY(checked_axis(axis, x.type.shape.size()));
    constexpr std::string_view kWords[] = {"sum", "min", "max", "xor"};
    Type type = x.type;
    type.shape.erase(type.shape.begin() + static_cast<std::ptrdiff_t>(at));
    Value reduced = state_->add({.kind = Kind::Reduce,
                                 .inputs = {x.number},
                                 .numbers = {static_cast<int64_t>(at)},
                                 .word = std::string(kWords[static_cast<size_t>(how)])},
                                std::move(type));
    return keep ? TRY(expand(reduced, static_cast<int64_t>(at))) : reduced;
}

Result<std::vector<Value>> Builder::begin_combine(const std::vector<Value>& xs) {
    State::Open open{.instruction = {.kind = Kind::Reduce, .place = state_->place}};
    open.instruction.regions.resize(1);
    std::vector<Value> arguments;
    for (int of = 0; of < 2; ++of)
        for (const Value& x : xs) {
            if (x.type.shape != xs[0].type.shape)
                return Error(Code::E0210, "{} and {} cannot be reduced together: their shapes differ",
                             xs[0].type.to_string(), x.type.to_string());
            arguments.push_back(state_->fresh({.dtype = x.type.dtype}));
            open.instruction.regions[0].arguments.push_back(arguments.back().number);
        }
    for (const Value& x : xs) open.instruction.inputs.push_back(x.number);
    state_->open.push_back(std::move(open));
    return arguments;
}

namespace {

Status check_combined(const std::vector<Value>& combined, const ProgramData& program, const Instruction& instruction) {
    if (combined.size() != instruction.inputs.size())
        return Error(Code::E0207, "the function combines {} values, but returns {}", instruction.inputs.size(),
                     combined.size());
    for (size_t i = 0; i < combined.size(); ++i) {
        const DType wanted = program.types[static_cast<size_t>(instruction.inputs[i])].dtype;
        if (combined[i].type != Type{.dtype = wanted})
            return Error(Code::E0208, "the function returns {}, expected one {}", combined[i].type.to_string(),
                         dtype_name(wanted));
    }
    return {};
}

}  // namespace

Result<std::vector<Value>> Builder::end_reduce(const std::vector<Value>& combined, int64_t axis, bool keep) {
    Instruction& open = state_->open.back().instruction;
    TRY(check_combined(combined, state_->program, open));
    const Type first = state_->program.types[static_cast<size_t>(open.inputs[0])];
    const size_t at = TRY(checked_axis(axis, first.shape.size()));
    for (const Value& v : combined) open.regions[0].results.push_back(v.number);
    open.numbers = {static_cast<int64_t>(at)};
    Instruction done = std::move(open);
    state_->open.pop_back();
    std::vector<Value> results;
    for (const Value& v : combined) {
        Type type{.dtype = v.type.dtype, .pointer = false, .shape = first.shape};
        type.shape.erase(type.shape.begin() + static_cast<std::ptrdiff_t>(at));
        results.push_back(state_->fresh(std::move(type)));
        done.outputs.push_back(results.back().number);
    }
    state_->region().instructions.push_back(std::move(done));
    if (keep)
        for (Value& r : results) r = TRY(expand(r, static_cast<int64_t>(at)));
    return results;
}

Result<std::vector<Value>> Builder::end_scan(const std::vector<Value>& combined, int64_t axis, bool reverse) {
    Instruction& open = state_->open.back().instruction;
    TRY(check_combined(combined, state_->program, open));
    const Type first = state_->program.types[static_cast<size_t>(open.inputs[0])];
    const size_t at = TRY(checked_axis(axis, first.shape.size()));
    for (const Value& v : combined) open.regions[0].results.push_back(v.number);
    open.kind = Kind::Scan;
    open.numbers = {static_cast<int64_t>(at), reverse};
    Instruction done = std::move(open);
    state_->open.pop_back();
    std::vector<Value> results;
    for (const Value& v : combined) {
        results.push_back(state_->fresh({.dtype = v.type.dtype, .pointer = false, .shape = first.shape}));
        done.outputs.push_back(results.back().number);
    }
    state_->region().instructions.push_back(std::move(done));
    return results;
}

}  // namespace tessera::tile
