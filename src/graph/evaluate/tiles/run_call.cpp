#include "graph/evaluate/tiles/run_call.h"

#include <cstring>

#include "graph/evaluate/tiles/run_tiles.h"
#include "graph/op_def.h"

namespace tessera {

using As = TileCall::Argument::As;

Result<std::vector<Datum>> run_call(const OpView& op, const TileCall& call, EvalContext& context) {
    const Types types = TRY(op.def().infer(op));
    std::vector<Tensor> outputs, arguments;
    for (size_t o = 0; o < call.initial.size(); ++o) {
        const TensorType& type = types[o].tensor();
        Sizes sizes;
        for (const Dim& d : type.shape) {
            if (!d.as_int()) return op.error(Code::E0108, "a size of output {} is too large", o);
            sizes.push_back(*d.as_int());
        }
        outputs.push_back(TRY(Tensor::zeros(type.dtype, sizes)));
        if (call.initial[o] < 0 || outputs.back().elements() == 0) continue;
        const Tensor& from = context.tensor(static_cast<size_t>(call.initial[o]));
        std::memcpy(outputs.back().mutable_data(), from.data(), static_cast<size_t>(from.bytes()));
    }
    for (size_t a = 0; a < call.arguments.size(); ++a) {
        const TileCall::Argument& argument = call.arguments[a];
        if (argument.as == As::Input) arguments.push_back(context.tensor(argument.index));
        if (argument.as == As::Output) arguments.push_back(outputs[argument.index]);
        if (argument.as != As::Size) continue;
        const auto value = argument.size.as_int();
        if (!value) return op.error(Code::E0108, "an argument is too large");
        const tile::ProgramData& program = call.program.data();
        const tile::Type& type = program.types[static_cast<size_t>(program.parameters[a].value)];
        Tensor number = TRY(Tensor::zeros(type.dtype, {}));
        number.set_int(0, int_const(*value, type.dtype).node().integer);
        arguments.push_back(std::move(number));
    }
    std::array<int64_t, 3> grid{};
    for (size_t axis = 0; axis < 3; ++axis) {
        const auto count = call.grid[axis].as_int();
        if (!count || *count > kMostInstances) return op.error(Code::E0108, "the grid is too large");
        grid[axis] = *count;
    }
    TRY(run_tiles(call.program.data(), std::move(arguments), grid, context));
    return std::vector<Datum>(outputs.begin(), outputs.end());
}

}  // namespace tessera
