// What one instance of a program does, by the places of the source.
#include <map>

#include "tile/program.h"

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
};

}  // namespace

std::vector<LineWork> Program::work(const std::vector<std::optional<int64_t>>& numbers,
                                    const std::array<int64_t, 3>& grid) const {
    return Counting(*data_, numbers, grid).run();
}

}  // namespace tessera::tile
