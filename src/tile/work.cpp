// What one instance of a program does, by the places of the source.
#include <algorithm>
#include <map>

#include "tile/places.h"
#include "tile/verify.h"

namespace tessera::tile {
namespace {

bool is_arithmetic(const Expr& e) {
    switch (e.kind()) {
        case ExprKind::Add:
        case ExprKind::Sub:
        case ExprKind::Mul:
        case ExprKind::Div:
        case ExprKind::Min:
        case ExprKind::Max:
        case ExprKind::Neg:
        case ExprKind::Pow:
        case ExprKind::Rem:
        case ExprKind::Call: return is_float(e.dtype());
        default: return false;
    }
}

class Counting {
  public:
    Counting(const ProgramData& program, const std::vector<std::optional<int64_t>>& numbers,
             const std::array<int64_t, 3>& grid)
        : program_(program), grid_(grid) {
        for (size_t p = 0; p < program.parameters.size() && p < numbers.size(); ++p)
            if (numbers[p]) known_[program.parameters[p].value] = *numbers[p];
    }

    // By arrays, where it is known into which one each pointer points.
    std::vector<ArrayWork> by_arrays(const Given& given) {
        by_array_.resize(program_.parameters.size());
        auto arrays = arrays_of_pointers(program_);
        if (!arrays.ok()) return by_array_;
        array_of_ = std::move(*arrays);
        Places places(program_, given);
        places_ = &places;
        region(program_.body, 1);
        return by_array_;
    }

    std::vector<LineWork> run() {
        region(program_.body, 1);
        std::vector<LineWork> all;
        for (auto& [_, work] : lines_) all.push_back(work);
        return all;
    }

  private:
    const Type& type(int value) const { return program_.types[static_cast<size_t>(value)]; }

    void region(const Region& r, double times) {
        for (const Instruction& i : r.instructions) instruction(i, times);
    }

    void instruction(const Instruction& i, double times) {
        LineWork& line = lines_[{i.place.file, i.place.line}];
        line.file = i.place.file;
        line.line = i.place.line;
        const auto elements = [&](int value) { return times * static_cast<double>(element_count(type(value))); };
        const auto bytes = [&](int pointer) { return static_cast<double>(dtype_bytes(type(pointer).dtype)); };
        if (places_) places_->learn(i);
        if (places_ && (i.kind == Kind::Load || i.kind == Kind::Store || i.kind == Kind::Atomic)) {
            ArrayWork& array = by_array_[static_cast<size_t>(array_of_[static_cast<size_t>(i.inputs[0])])];
            (i.kind == Kind::Load ? array.loads : array.stores) += elements(i.inputs[0]) * asked_for(i);
        }
        switch (i.kind) {
            case Kind::Load:
                line.loads += elements(i.inputs[0]);
                line.loaded_bytes += elements(i.inputs[0]) * bytes(i.inputs[0]);
                break;
            case Kind::Store:
                line.stores += elements(i.inputs[0]);
                line.stored_bytes += elements(i.inputs[0]) * bytes(i.inputs[0]);
                break;
            case Kind::Atomic:
                line.loads += elements(i.inputs[0]);
                line.stores += elements(i.inputs[0]);
                line.loaded_bytes += elements(i.inputs[0]) * bytes(i.inputs[0]);
                line.stored_bytes += elements(i.inputs[0]) * bytes(i.inputs[0]);
                break;
            case Kind::Map: {
                double each = 0;
                visit(i.body, [&](const Expr& e) { each += is_arithmetic(e); });
                line.flops += each * elements(i.outputs[0]);
                break;
            }
            case Kind::Dot: {
                const bool floats = is_float(type(i.outputs[0]).dtype);
                line.flops +=
                    floats * 2.0 * static_cast<double>(type(i.inputs[0]).shape.back()) * elements(i.outputs[0]);
                break;
            }
            case Kind::Reduce:
                if (!i.word.empty() && is_float(type(i.inputs[0]).dtype)) line.flops += elements(i.inputs[0]);
                break;
            default: break;
        }
        learn(i);
        if (i.regions.empty()) return;
        double inside = times;
        if (i.kind == Kind::Reduce || i.kind == Kind::Scan) inside = elements(i.inputs[0]);
        if (i.kind == Kind::For) {
            const auto trips = trips_of(i);
            line.unknown_trips |= !trips;
            inside *= static_cast<double>(trips.value_or(1));
        }
        line.unknown_trips |= i.kind == Kind::While;
        for (const Region& r : i.regions) region(r, inside);
    }

    // The part of a load or store for which its mask holds.
    double asked_for(const Instruction& i) const {
        const size_t at = i.kind == Kind::Load ? 1 : 2;
        const auto mask = i.kind != Kind::Atomic && i.inputs.size() > at ? places_->known(i.inputs[at]) : std::nullopt;
        const auto masks = mask ? Places::comparisons(*mask) : std::nullopt;
        if (!masks) return 1;
        Bindings last;
        for (const Runner& r : places_->runners(type(i.inputs[0]).shape))
            last.emplace(r.var.node().name, max(r.extent - 1, 0));
        double part = 1;
        for (const Expr& m : *masks) {
            const auto most = substitute(m.arg(0), last).as_int(), end = m.arg(1).as_int();
            if (most && end) part *= std::clamp(static_cast<double>(*end) / static_cast<double>(*most + 1), 0.0, 1.0);
        }
        return part;
    }

    // Single whole numbers that are the same in all instances.
    void learn(const Instruction& i) {
        if (i.outputs.size() != 1 || !type(i.outputs[0]).shape.empty() || type(i.outputs[0]).pointer) return;
        if (i.kind == Kind::ProgramCount) known_[i.outputs[0]] = grid_[static_cast<size_t>(i.numbers[0])];
        if (i.kind != Kind::Constant && i.kind != Kind::Map) return;
        for (int input : i.inputs)
            if (!known_.contains(input)) return;
        const Expr value = map_loads(i.body, [&](const Expr& e) {
            const int64_t number = known_[i.inputs[static_cast<size_t>(e.node().slot)]];
            return is_float(e.dtype()) ? constant(static_cast<double>(number), e.dtype())
                                       : int_const(number, e.dtype());
        });
        if (value.is(ExprKind::Const) && !is_float(value.dtype())) known_[i.outputs[0]] = value.node().integer;
    }
    std::optional<int64_t> trips_of(const Instruction& i) const {
        for (size_t n = 0; n < 3; ++n)
            if (!known_.contains(i.inputs[n])) return {};
        const int64_t begin = known_.at(i.inputs[0]), end = known_.at(i.inputs[1]), step = known_.at(i.inputs[2]);
        if (step == 0 || (step > 0 ? end <= begin : end >= begin)) return 0;
        return (end - begin + step - (step > 0 ? 1 : -1)) / step;
    }

    const ProgramData& program_;
    const std::array<int64_t, 3> grid_;
    std::map<int, int64_t> known_;
    std::map<std::pair<int, int>, LineWork> lines_;
    Places* places_ = nullptr;  // where arrays are counted
    std::vector<int> array_of_;
    std::vector<ArrayWork> by_array_;
};

}  // namespace

std::vector<LineWork> Program::work(const std::vector<std::optional<int64_t>>& numbers,
                                    const std::array<int64_t, 3>& grid) const {
    return Counting(*data_, numbers, grid).run();
}

std::vector<ArrayWork> array_work(const ProgramData& program, const Given& given) {
    std::vector<std::optional<int64_t>> numbers;
    for (const auto& n : given.numbers) numbers.push_back(n ? n->as_int() : std::nullopt);
    std::array<int64_t, 3> grid{};
    for (size_t axis = 0; axis < 3; ++axis) grid[axis] = given.grid[axis].as_int().value_or(1);
    return Counting(program, numbers, grid).by_arrays(given);
}

}  // namespace tessera::tile
