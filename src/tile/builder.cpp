// Values, control flow and what holds a program together. Arithmetic is in builder_math.cpp, tiles in
// builder_tiles.cpp.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/numeric.h"
#include "tile/builder_state.h"
#include "tile/verify.h"

namespace tessera::tile {
namespace {

bool is_power_of_two(int64_t n) { return n > 0 && (n & (n - 1)) == 0; }

std::vector<int> numbers_of(const std::vector<Value>& values) {
    std::vector<int> numbers;
    for (const Value& v : values) numbers.push_back(v.number);
    return numbers;
}

Error other_type(std::string_view what, size_t index, const Type& is, const Type& was) {
    return Error(Code::E0208, "{} {} is {} here and {} there", what, index, is.to_string(), was.to_string());
}

}  // namespace

Builder::Builder(std::string name) : state_(std::make_unique<State>()) { state_->program.name = std::move(name); }
Builder::~Builder() = default;
Builder::Builder(Builder&&) noexcept = default;

void Builder::place(int line, int column, int file) { state_->place = {line, column, file}; }

Value Builder::parameter(std::string name, Type type) {
    Value value = state_->fresh(std::move(type));
    state_->program.parameters.push_back({std::move(name), value.number});
    return value;
}

Result<Value> Builder::constant(const Operand& literal, std::optional<DType> dtype) {
    if (const auto* value = std::get_if<Value>(&literal)) return dtype ? cast(*value, *dtype) : *value;
    const DType type = dtype.value_or(literal_type(literal));
    Expr body = 0;
    // A literal is a number of its type: rounded before anything is computed with it.
    const auto real = [&](double x) { return tessera::constant(float_from_bits(type, float_to_bits(type, x)), type); };
    if (const auto* flag = std::get_if<bool>(&literal)) {
        body = is_float(type) ? tessera::constant(*flag, type) : int_const(*flag, type);
    } else if (const auto* number = std::get_if<int64_t>(&literal)) {
        body = is_float(type) ? real(static_cast<double>(*number)) : int_const(*number, type);
        if (type == DType::boolean) body = int_const(*number != 0, type);
    } else {
        body = is_float(type) ? real(std::get<double>(literal)) : tessera::constant(std::get<double>(literal), type);
    }
    return state_->add({.kind = Kind::Constant, .body = body}, {.dtype = type});
}

Result<Value> Builder::full(std::vector<int64_t> shape, const Operand& value, DType dtype) {
    Value filled = TRY(constant(value, dtype));
    return shape.empty() ? filled : TRY(broadcast(filled, std::move(shape)));
}

Result<Value> Builder::arange(int64_t begin, int64_t end) {
    if (end <= begin)
        return Error(Code::E0212, "arange's end argument must be greater than the start argument: {} and {}", begin,
                     end);
    if (!is_power_of_two(end - begin))
        return Error(Code::E0212,
                     "arange's range must be a power of 2: arange({}, {}) has {} elements, not a power of two", begin,
                     end, end - begin)
            .hint("use the next power of two, and mask the elements beyond the end");
    if (end - begin > kMostElements)
        return Error(Code::E0212, "a tile of {} elements is too large", end - begin)
            .hint("the maximum is {}", kMostElements);
    return state_->add({.kind = Kind::Arange, .numbers = {begin, end}}, {.dtype = DType::i32, .shape = {end - begin}});
}

Result<Value> Builder::program_id(int axis) {
    if (axis < 0 || axis > 2) return Error(Code::E0212, "a grid has axes 0, 1 and 2, not {}", axis);
    return state_->add({.kind = Kind::ProgramId, .numbers = {axis}}, {.dtype = DType::i32});
}

Result<Value> Builder::program_count(int axis) {
    if (axis < 0 || axis > 2) return Error(Code::E0212, "a grid has axes 0, 1 and 2, not {}", axis);
    return state_->add({.kind = Kind::ProgramCount, .numbers = {axis}}, {.dtype = DType::i32});
}

Result<Value> Builder::condition_of(const Operand& condition, std::string_view what) {
    Value chosen = TRY(constant(condition));
    if (chosen.type.pointer) chosen = TRY(address(chosen));
    if (element_count(chosen.type) != 1)
        return Error(Code::E0210, "{} by one element, not by {}", what, chosen.type.to_string())
            .hint("use where() to select element by element");
    if (chosen.type.dtype != DType::boolean) chosen = TRY(binary("!=", chosen, int64_t{0}));
    return reshape(chosen, {});
}

Status Builder::begin_if(const Operand& condition) {
    const Value chosen = TRY(condition_of(condition, "a branch is taken"));
    State::Open open{.instruction = {.kind = Kind::If, .inputs = {chosen.number}, .place = state_->place}};
    open.instruction.regions.resize(2);
    state_->open.push_back(std::move(open));
    return {};
}

Status Builder::begin_else() {
    if (state_->open.empty() || state_->open.back().instruction.kind != Kind::If || state_->open.back().region != 0)
        return Error(Code::E0501, "begin_else without a matching begin_if");
    state_->open.back().region = 1;
    return {};
}

Result<std::vector<Value>> Builder::end_if(const std::vector<Value>& then, const std::vector<Value>& otherwise) {
    if (state_->open.empty() || state_->open.back().instruction.kind != Kind::If || then.size() != otherwise.size())
        return Error(Code::E0501, "end_if does not match begin_if");
    for (size_t i = 0; i < then.size(); ++i)
        if (then[i].type != otherwise[i].type) return other_type("result", i, then[i].type, otherwise[i].type);
    Instruction done = std::move(state_->open.back().instruction);
    state_->open.pop_back();
    done.regions[0].results = numbers_of(then);
    done.regions[1].results = numbers_of(otherwise);
    std::vector<Value> results;
    for (const Value& v : then) results.push_back(state_->fresh(v.type));
    done.outputs = numbers_of(results);
    state_->region().instructions.push_back(std::move(done));
    return results;
}

Result<std::vector<Value>> Builder::begin_for(const Operand& begin, const Operand& end, const Operand& step,
                                              const std::vector<Value>& carried) {
    std::vector<Value> bounds;
    DType type = DType::i32;
    for (const Operand* bound : {&begin, &end, &step}) {
        Value value = TRY(constant(*bound));
        if (!value.type.shape.empty() || value.type.pointer || !is_int(value.type.dtype))
            return Error(Code::E0208, "a loop runs over integers, not over {}", value.type.to_string());
        type = TRY(common_type(type, false, value.type.dtype, false));
        bounds.push_back(value);
    }
    for (Value& bound : bounds) bound = TRY(cast(bound, type));
    State::Open open{.instruction = {.kind = Kind::For, .inputs = numbers_of(bounds), .place = state_->place}};
    for (const Value& v : carried) open.instruction.inputs.push_back(v.number);
    open.instruction.regions.resize(1);
    std::vector<Value> arguments{state_->fresh({.dtype = type})};
    for (const Value& v : carried) arguments.push_back(state_->fresh(v.type));
    open.instruction.regions[0].arguments = numbers_of(arguments);
    state_->open.push_back(std::move(open));
    return arguments;
}

Result<std::vector<Value>> Builder::end_for(const std::vector<Value>& carried) {
    if (state_->open.empty() || state_->open.back().instruction.kind != Kind::For)
        return Error(Code::E0501, "the end of a loop does not match its beginning");
    return end_loop(carried, 1);
}

// `before`: how many arguments of the region come before what is carried.
Result<std::vector<Value>> Builder::end_loop(const std::vector<Value>& carried, size_t before) {
    const std::vector<int>& arguments = state_->open.back().instruction.regions[0].arguments;
    if (arguments.size() != carried.size() + before)
        return Error(Code::E0501, "a loop must carry as many values as it began with");
    for (size_t i = 0; i < carried.size(); ++i) {
        const Type& began = state_->program.types[static_cast<size_t>(arguments[i + before])];
        if (began != carried[i].type) return other_type("carried value", i, carried[i].type, began);
    }
    Instruction done = std::move(state_->open.back().instruction);
    state_->open.pop_back();
    done.regions.back().results = numbers_of(carried);
    std::vector<Value> results;
    for (const Value& v : carried) results.push_back(state_->fresh(v.type));
    done.outputs = numbers_of(results);
    state_->region().instructions.push_back(std::move(done));
    return results;
}

Result<std::vector<Value>> Builder::begin_while(const std::vector<Value>& carried) {
    State::Open open{.instruction = {.kind = Kind::While, .inputs = numbers_of(carried), .place = state_->place}};
    open.instruction.regions.resize(2);
    std::vector<Value> arguments;
    for (const Value& v : carried) arguments.push_back(state_->fresh(v.type));
    open.instruction.regions[0].arguments = numbers_of(arguments);
    state_->open.push_back(std::move(open));
    return arguments;
}

Status Builder::begin_do(const Operand& condition) {
    if (state_->open.empty() || state_->open.back().instruction.kind != Kind::While || state_->open.back().region != 0)
        return Error(Code::E0501, "begin_do without a matching begin_while");
    Value holds = TRY(condition_of(condition, "a loop goes on"));
    state_->open.back().instruction.regions[0].results = {holds.number};
    state_->open.back().region = 1;
    return {};
}

Result<std::vector<Value>> Builder::end_while(const std::vector<Value>& carried) {
    if (state_->open.empty() || state_->open.back().instruction.kind != Kind::While || state_->open.back().region != 1)
        return Error(Code::E0501, "the end of a loop does not match its beginning");
    return end_loop(carried, 0);
}

Status Builder::print(std::string text, const std::vector<Value>& values, bool hex) {
    std::vector<int64_t> shape;
    for (const Value& v : values) shape = TRY(common_shape(shape, v.type.shape));
    Instruction instruction{.kind = Kind::Print, .numbers = {hex}, .word = std::move(text)};
    for (const Value& v : values) {
        const Value number = v.type.pointer ? TRY(address(v)) : v;
        instruction.inputs.push_back(TRY(broadcast(number, shape)).number);
    }
    state_->append(std::move(instruction));
    return {};
}

Status Builder::check(const Operand& condition, std::string text, const std::optional<Operand>& mask) {
    Value holds = TRY(constant(condition));
    if (holds.type.dtype != DType::boolean) holds = TRY(binary("!=", holds, int64_t{0}));
    if (mask) {
        Value masked = TRY(constant(*mask));
        if (masked.type.dtype != DType::boolean) masked = TRY(binary("!=", masked, int64_t{0}));
        holds = TRY(binary("|", holds, TRY(unary("not", masked))));
    }
    state_->append({.kind = Kind::Assert, .inputs = {holds.number}, .word = std::move(text)});
    return {};
}

Result<Program> Builder::finish() {
    if (!state_->open.empty()) return Error(Code::E0501, "a branch or loop is not closed");
    return Program(std::make_shared<const ProgramData>(std::move(state_->program)));
}

}  // namespace tessera::tile
