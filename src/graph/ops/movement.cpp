// Ops that place elements elsewhere without computing: transpose, concat, split, expand, tile, depth_to_space,
// space_to_depth, reverse_sequence, reverse.
#include <algorithm>
#include <numeric>

#include "graph/ops/common.h"
#include "graph/ops/families.h"
#include "graph/ops/parameter.h"

namespace tessera {
namespace {

Result<std::vector<int64_t>> given_permutation(const OpView& op) {
    int64_t rank = op.rank(0);
    std::vector<int64_t> reversed(rank);
    std::iota(reversed.rbegin(), reversed.rend(), 0);
    auto perm = op.ints_or("perm", reversed);
    if (int64_t(perm.size()) != rank)
        return op.shape_error("perm has {} entries, but {} has {} dimensions", perm.size(), op.shape(0), rank);
    return op.axes(perm, rank);
}

std::vector<int64_t> permutation(const OpView& op) {
    auto perm = given_permutation(op);
    CHECK(perm.ok(), "a transpose that inference refused");
    return std::move(*perm);
}

const OpDef kTranspose{
    .name = "transpose",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {ints_attr("perm")},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement},
    .onnx = "Transpose",
    .infer = [](const OpView& op) -> Result<Types> {
        Shape y;
        for (int64_t p : TRY(given_permutation(op))) y.push_back(op.shape(0)[p]);
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            std::vector<int64_t> perm = permutation(op);
            std::vector<Expr> at(perm.size());
            for (size_t d = 0; d < perm.size(); ++d) at[perm[d]] = o[d];
            return op.in(0).at(at);
        },
    .canonical =
        [](const OpView& op, AttrMap& attrs) {
            if (op.shape(0).ranked() && !attrs.contains("perm")) attrs["perm"] = permutation(op);
        },
    .permutation = permutation,
    .gradient = [](const Backward& r) -> Gradients {
        std::vector<int64_t> perm = permutation(r.node.view()), inverse(perm.size());
        for (size_t i = 0; i < perm.size(); ++i) inverse[size_t(perm[i])] = int64_t(i);
        return {r.b.transpose(r.g, inverse)};
    },
};

// One of the parts [first, last) at position `at` of the joined axis; ends[i] is where part i stops.
Expr concat_part(const OpView& op, const Indices& o, int64_t axis, const std::vector<Expr>& ends, size_t first,
                 size_t last) {
    if (last - first == 1) return op.in(first).at(o.with(axis, first == 0 ? o[axis] : o[axis] - ends[first - 1]));
    size_t middle = first + (last - first) / 2;
    return select(lt(o[axis], ends[middle - 1]), concat_part(op, o, axis, ends, first, middle),
                  concat_part(op, o, axis, ends, middle, last));
}

const OpDef kConcat{
    .name = "concat",
    .inputs = {"inputs...: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis").required()},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement},
    .onnx = {"Concat",
             {{4,
               [](OnnxCall& call) -> Status {
                   call.attrs.emplace("axis", int64_t{1});
                   return {};
               },
               [](OnnxCall&) -> Status { return {}; }}}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.input_count() == 0) return op.error(Code::E0207, "has no inputs");
        Shape y = op.shape(0);
        int64_t axis = TRY(op.axis(op.integer("axis"), y.rank()));
        for (size_t i = 1; i < op.input_count(); ++i) {
            const Shape& x = op.shape(i);
            if (x.rank() != y.rank()) return op.shape_error("inputs 0 and {} have ranks {} and {}", i, op.shape(0), x);
            for (int64_t d = 0; d < y.rank(); ++d) {
                if (d == axis) {
                    y[d] = y[d] + x[d];
                } else if (x[d].as_int()) {
                    if (y[d].as_int() && y[d] != x[d])
                        return op.shape_error("inputs 0 and {} differ in a dimension other than axis {}: {} and {}", i,
                                              axis, op.shape(0), x);
                    y[d] = x[d];
                }
            }
        }
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t axis = op.integer("axis") < 0 ? op.integer("axis") + o.rank() : op.integer("axis");
            std::vector<Expr> ends;
            Expr end = 0;
            for (size_t i = 0; i < op.input_count(); ++i) ends.push_back(end = end + op.in(i).dim(axis));
            return concat_part(op, o, axis, ends, 0, op.input_count());
        },
    .canonical = axis_from_front,
    .joined_axis =
        [](const OpView& op) {
            int64_t axis = op.integer("axis");
            return axis < 0 && op.shape(0).ranked() ? axis + op.rank(0) : axis;
        },
    .layout = Layout::AsInputs,
};

// The extent of part `i` where `size` is cut into `count` parts as even as possible, the last ones smaller.
Dim even_part(const Dim& size, int64_t count, int64_t i) {
    Dim chunk = ceil_div(size, count);
    if (i == 0 || (size.as_int() && *size.as_int() % count == 0)) return chunk;
    return clamp(size - chunk * i, 0, chunk);
}

// Before opset 18, parts that were not given were equal.
Status even_before_18(OnnxCall& call) {
    call.attrs.erase("num_outputs");
    if (call.has(1) || !call.has(0)) return {};
    const Type& x = call.inputs[0]->type();
    auto it = call.attrs.find("axis");
    int64_t axis = it != call.attrs.end() ? std::get<int64_t>(it->second) : 0;
    if (!x.is_tensor() || !x.tensor().shape.ranked()) return {};
    if (axis < 0) axis += x.tensor().rank();
    auto extent = x.tensor().shape[axis].as_int();
    if (extent && call.outputs > 0 && *extent % int64_t(call.outputs) != 0)
        return Error(Code::E0214, "{}: {} do not split into {} equal parts, as before opset 18", call.op_type, *extent,
                     call.outputs);
    return {};
}

const OpDef kSplit{
    .name = "split",
    .inputs = {"x: T", "split?: i64"},
    .outputs = {"outputs...: T"},
    .attrs = {int_attr("axis", 0), int_attr("num_outputs")},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement},
    .onnx = {"Split",
             {attr_to_input(13, "split", 1),
              {18,
               [](OnnxCall& call) -> Status {
                   if (!call.has(1)) call.attrs["num_outputs"] = int64_t(call.outputs);
                   return {};
               },
               even_before_18}}},
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        int64_t axis = TRY(op.axis(op.integer("axis"), x.rank())), count = op.output_count();
        if (count == 0) return op.error(Code::E0207, "has no outputs");
        if (op.has_attr("num_outputs") && op.integer("num_outputs") != count)
            return op.error(Code::E0207, "num_outputs is {}, but the node has {} outputs", op.integer("num_outputs"),
                            count);
        Types types;
        auto add = [&](const Dim& extent) {
            Shape y = x;
            y[axis] = extent;
            types.push_back(Type(op.dtype(0), y));
        };
        if (!op.has(1)) {
            for (int64_t i = 0; i < count; ++i) add(even_part(x[axis], count, i));
            return types;
        }
        if (op.rank(1) != 1) return op.shape_error("split must be a vector, is {}", op.shape(1));
        if (auto n = op.shape(1)[0].as_int(); n && *n != count)
            return op.error(Code::E0207, "split has {} sizes for {} outputs", *n, count);
        auto sizes = op.contents(1);
        if (sizes && int64_t(sizes->size()) != count)
            return op.error(Code::E0207, "split has {} sizes for {} outputs", sizes->size(), count);
        Dim total = 0;
        for (int64_t i = 0; i < count; ++i) {
            Dim size = sizes ? (*sizes)[i] : op.fresh(i, axis);
            if (auto n = size.as_int(); n && *n < 0) return op.error(Code::E0212, "split has a size of {}", *n);
            total = total + size;
            add(size);
        }
        if (total.as_int() && x[axis].as_int() && total != x[axis])
            return op.shape_error("the sizes sum to {}, but dimension {} of {} is {}", *total.as_int(), axis, x,
                                  *x[axis].as_int());
        return types;
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t axis = op.integer("axis") < 0 ? op.integer("axis") + o.rank() : op.integer("axis");
            Expr start = 0;
            int64_t fixed = 0;  // apart, since there may be many
            for (size_t i = 0; i < op.output(); ++i) {
                const Dim& size = op.out(i).shape[axis];
                if (auto n = size.as_int())
                    fixed += *n;
                else
                    start = start + size;
            }
            return op.in(0).at(o.with(axis, start + fixed + o[axis]));
        },
    .canonical = axis_from_front,
    .count_outputs = [](const OpView& op) -> std::optional<size_t> {
        int64_t most = op.has_attr("num_outputs") ? op.integer("num_outputs") : 0;
        if (op.has(1)) most = std::max(most, op.shape(1)[0].as_int().value_or(0));
        return most > 0 ? std::optional(size_t(most)) : std::nullopt;
    },
    .layout = Layout::AsInputs,
};

// 1 where the size is the input's own, which no broadcasting changes.
std::optional<std::vector<int64_t>> expand_constants(const OpView& op, size_t input, AttrMap&) {
    const Shape& x = op.shape(0);
    if (input != 1 || !x.ranked()) return std::nullopt;
    const std::vector<Expr> wanted = *op.contents(1);
    std::vector<int64_t> constants;
    int64_t rank = int64_t(wanted.size());
    for (int64_t d = 0; d < rank; ++d) {
        const Expr& size = wanted[size_t(d)];
        int64_t place = d - rank + x.rank();
        if (auto n = size.as_int())
            constants.push_back(*n);
        else if (place >= 0 && x[place] == size)
            constants.push_back(1);
        else
            return std::nullopt;
    }
    return constants;
}

const OpDef kExpand{
    .name = "expand",
    .inputs = {"x: T", "shape: i64"},
    .outputs = {"y: T"},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear, Trait::Movement},
    .onnx = "Expand",
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(1) != 1) return op.shape_error("shape must be a vector, is {}", op.shape(1));
        const Shape& x = op.shape(0);
        auto wanted = op.contents(1);
        if (!wanted) {
            auto length = op.shape(1)[0].as_int();
            if (!length) return op.like(0, Shape::unknown());
            Shape y = fresh_shape(op, 0, std::max(*length, x.rank()));
            for (int64_t d = 1; d <= x.rank(); ++d)
                if (x[-d].as_int().value_or(1) != 1 || d > *length) y[-d] = x[-d];
            return op.like(0, y);
        }
        for (const Expr& d : *wanted)
            if (auto n = d.as_int(); n && *n < 0) return op.error(Code::E0212, "shape has {}", *n);
        auto y = broadcast(x, Shape(*wanted));
        if (!y) return op.shape_error("{} does not expand to {}", x, Shape(*wanted));
        return op.like(0, *y);
    },
    .body = [](const OpView& op, const Indices& o) { return op.broadcast_in(0, o); },
    .constant_operand = expand_constants,
};

// Before opset 6, Tile repeated one axis, both given as scalar inputs.
Status tile_one_axis(OnnxCall& call) {
    if (!call.has(0) || !call.has(1) || !call.has(2) || !call.inputs[1]->is_constant() ||
        !call.inputs[2]->is_constant())
        return Error(Code::E0202, "{}: tiles and axis must be constants before opset 6", call.op_type);
    const Type& x = call.inputs[0]->type();
    const Tensor &tiles = *call.inputs[1]->tensor(), &axis = *call.inputs[2]->tensor();
    if (!x.is_tensor() || !x.tensor().shape.ranked() || tiles.elements() != 1 || axis.elements() != 1)
        return Error(Code::E0210, "{}: needs an input of known rank, one number of tiles and one axis", call.op_type);
    int64_t at = axis.int_at(0), rank = x.tensor().rank();
    if (at < 0 || at >= rank) return Error(Code::E0212, "{}: axis {} is outside [0, {})", call.op_type, at, rank);
    std::vector<int64_t> repeats(rank, 1);
    repeats[at] = tiles.int_at(0);
    call.inputs = {call.inputs[0], call.build.ints(repeats)};
    return call.build.status();
}

const OpDef kTile{
    .name = "tile",
    .inputs = {"x: T", "repeats: i64"},
    .outputs = {"y: T"},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = {"Tile",
             {{6, tile_one_axis,
               [](OnnxCall& call) -> Status {
                   return Error(Code::E0214, "{}: repeats one axis only before opset 6", call.op_type);
               }}}},
    .infer = [](const OpView& op) -> Result<Types> {
        if (op.rank(1) != 1) return op.shape_error("repeats must be a vector, is {}", op.shape(1));
        Shape y = op.shape(0);
        auto repeats = op.contents(1);
        auto length = repeats ? int64_t(repeats->size()) : op.shape(1)[0].as_int();
        if (length && *length != y.rank()) return op.shape_error("{} repeats for {}", *length, y);
        if (!repeats) return op.like(0, fresh_shape(op, 0, y.rank()));
        for (int64_t d = 0; d < y.rank(); ++d) {
            if (auto n = (*repeats)[d].as_int(); n && *n < 0) return op.error(Code::E0212, "repeats has {}", *n);
            y[d] = y[d] * (*repeats)[d];
        }
        return op.like(0, y);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            std::vector<Expr> at;
            for (int64_t d = 0; d < o.rank(); ++d) {
                const Dim& size = op.shape(0)[d];
                at.push_back(size == op.out().shape[d] ? o[d] : mod(o[d], size));
            }
            return op.in(0).at(at);
        },
};

// The shape of [N,C,H,W] and the attributes that depth_to_space and space_to_depth share.
Status check_blocks(const OpView& op) {
    int64_t block = op.integer("blocksize");
    if (op.rank(0) != 4) return op.shape_error("needs [N,C,H,W], has {}", op.shape(0));
    if (block < 1 || block > 65536) return op.error(Code::E0212, "blocksize is {}", block);
    return {};
}

const OpDef kDepthToSpace{
    .name = "depth_to_space",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("blocksize").required(), string_attr("mode", "DCR").one_of({"DCR", "CRD"})},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = {"DepthToSpace", {attr_added(11, "mode", Attr(std::string("DCR")))}},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_blocks(op));
        const Shape& x = op.shape(0);
        int64_t block = op.integer("blocksize"), area = block * block;
        if (x[1].as_int() && *x[1].as_int() % area != 0)
            return op.shape_error("{} channels of {} do not divide into blocks of {}", *x[1].as_int(), x, area);
        return op.like(0, {x[0], floor_div(x[1], area), x[2] * block, x[3] * block});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t block = op.integer("blocksize");
            Expr cell = mod(o[2], block) * block + mod(o[3], block);
            Expr channel = op.string("mode") == "DCR" ? cell * op.out().dim(1) + o[1] : o[1] * (block * block) + cell;
            return op.in(0).at({o[0], channel, floor_div(o[2], block), floor_div(o[3], block)});
        },
    .layout = Layout::ChannelsLast,
};

const OpDef kSpaceToDepth{
    .name = "space_to_depth",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("blocksize").required(), string_attr("mode", "DCR").one_of({"DCR", "CRD"})},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = {"SpaceToDepth", {attr_added(28, "mode", Attr(std::string("DCR")))}},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(check_blocks(op));
        const Shape& x = op.shape(0);
        int64_t block = op.integer("blocksize");
        for (int64_t d : {2, 3})
            if (x[d].as_int() && *x[d].as_int() % block != 0)
                return op.shape_error("dimension {} of {} does not divide into blocks of {}", d, x, block);
        return op.like(0, {x[0], x[1] * (block * block), floor_div(x[2], block), floor_div(x[3], block)});
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t block = op.integer("blocksize"), area = block * block;
            const Dim& channels = op.shape(0)[1];
            bool dcr = op.string("mode") == "DCR";
            Expr cell = dcr ? floor_div(o[1], channels) : mod(o[1], area);
            Expr channel = dcr ? mod(o[1], channels) : floor_div(o[1], area);
            return op.in(0).at({o[0], channel, o[2] * block + floor_div(cell, block), o[3] * block + mod(cell, block)});
        },
    .layout = Layout::ChannelsLast,
};

const OpDef kReverseSequence{
    .name = "reverse_sequence",
    .inputs = {"x: T", "lengths: i64"},
    .outputs = {"y: T"},
    .attrs = {int_attr("batch_axis", 1), int_attr("time_axis", 0)},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
    .onnx = "ReverseSequence",
    .infer = [](const OpView& op) -> Result<Types> {
        const Shape& x = op.shape(0);
        int64_t batch = op.integer("batch_axis"), time = op.integer("time_axis");
        if (x.rank() < 2) return op.shape_error("needs at least two dimensions, has {}", x);
        if (batch + time != 1 || (batch != 0 && batch != 1))
            return op.error(Code::E0212, "batch_axis and time_axis are {} and {}, but must be 0 and 1 in either order",
                            batch, time);
        if (op.rank(1) != 1 || (op.shape(1)[0].as_int() && x[batch].as_int() && op.shape(1)[0] != x[batch]))
            return op.shape_error("needs one length for each of the batch of {}, has {}", x, op.shape(1));
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            int64_t batch = op.integer("batch_axis"), time = op.integer("time_axis");
            Expr length = op.in(1).at({o[batch]});
            return op.in(0).at(o.with(time, select(lt(o[time], length), length - 1 - o[time], o[time])));
        },
};

// The elements along one axis from the last to the first; ONNX has it only as a slice with a step of -1.
const OpDef kReverse{
    .name = "reverse",
    .inputs = {"x: T"},
    .outputs = {"y: T"},
    .attrs = {int_attr("axis").required()},
    .types = {{"T", kAllTypes}},
    .traits = {Trait::Pure, Trait::Linear},
    .infer = [](const OpView& op) -> Result<Types> {
        TRY(op.axis(op.integer("axis"), op.rank(0)));
        return op.same(0);
    },
    .body =
        [](const OpView& op, const Indices& o) {
            auto axis = op.axis(op.integer("axis"), op.rank(0));
            CHECK(axis.ok(), "a reverse that inference refused");
            return op.in(0).at(o.with(*axis, op.shape(0)[*axis] - 1 - o[*axis]));
        },
    .expand = [](const OpView& op, const std::vector<Value*>& in, Builder& b) -> Result<std::vector<Value*>> {
        Value* back = b.ints({-1});
        return b.finish({b.op("slice", {in[0], back, b.ints({INT64_MIN}), b.ints({op.integer("axis")}), back})});
    },
};

}  // namespace

std::vector<OpDef> movement_ops() {
    return {kTranspose, kConcat, kSplit, kExpand, kTile, kDepthToSpace, kSpaceToDepth, kReverseSequence, kReverse};
}

}  // namespace tessera
