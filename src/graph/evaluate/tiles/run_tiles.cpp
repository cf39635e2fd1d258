#include "graph/evaluate/tiles/run_tiles.h"

#include <cstring>

#include "expr/simplify.h"
#include "graph/evaluate/strip/stages.h"
#include "graph/evaluate/tiles/tile_bodies.h"
#include "tile/verify.h"

namespace tessera {
namespace {

using tile::Instruction;
using tile::Kind;
using tile::Region;

class TileRunner {
  public:
    TileRunner(const tile::ProgramData& program, std::vector<int> arrays, std::vector<Tensor> arguments,
               const std::array<int64_t, 3>& grid, EvalContext& context)
        : program_(program),
          array_of_(std::move(arrays)),
          arguments_(std::move(arguments)),
          grid_(grid),
          context_(context),
          values_(program.types.size()) {}

    Status run() {
        for (size_t p = 0; p < arguments_.size(); ++p) {
            const int value = program_.parameters[p].value;
            Tensor& given = arguments_[p];
            set(value, type(value).pointer ? Tensor::scalar(int64_t{0}) : given.reshaped({}));
            given = given.reshaped({given.elements()});
        }
        for (id_[2] = 0; id_[2] < grid_[2]; ++id_[2])
            for (id_[1] = 0; id_[1] < grid_[1]; ++id_[1])
                for (id_[0] = 0; id_[0] < grid_[0]; ++id_[0]) {
                    TRY(context_.spend(1));
                    TRY(region(program_.body));
                }
        return {};
    }

  private:
    const tile::Type& type(int value) const { return program_.types[static_cast<size_t>(value)]; }
    const Tensor& at(int value) const { return values_[static_cast<size_t>(value)]; }
    void set(int value, Tensor made) { values_[static_cast<size_t>(value)] = std::move(made); }
    Tensor& array(int pointer) { return arguments_[static_cast<size_t>(array_of_[static_cast<size_t>(pointer)])]; }

    Status region(const Region& r) {
        for (const Instruction& i : r.instructions) TRY(instruction(i));
        return {};
    }

    // A tensor of what a body gives at each of its places.
    Result<Tensor> filled(DType dtype, const Sizes& sizes, const Expr& body, const std::vector<const Tensor*>& inputs) {
        Tensor out = TRY(Tensor::zeros(dtype, sizes));
        if (out.elements() == 0) return out;
        strip::Plan plan = TRY(strip::lower(body, tile_index_names(sizes.size()), sizes, inputs));
        TRY(context_.spend(strip::work_of(plan)));
        strip::fuse_loops(plan);
        strip::Fault fault;
        if (TRY(strip::run_in_stages(plan, {dtype, out.mutable_data()}, fault))) return out;
        return Error(Code::E0406, "tile program {}: index {} is outside [0, {})", program_.name, fault.index,
                     fault.extent);
    }

    std::vector<const Tensor*> inputs_of(const Instruction& i) const {
        std::vector<const Tensor*> all;
        for (int v : i.inputs) all.push_back(&at(v));
        return all;
    }

    Status instruction(const Instruction& i) {
        switch (i.kind) {
            case Kind::ProgramId:
            case Kind::ProgramCount: {
                const int64_t number = (i.kind == Kind::ProgramId ? id_ : grid_)[static_cast<size_t>(i.numbers[0])];
                set(i.outputs[0], Tensor::scalar(static_cast<int32_t>(number)));
                return {};
            }
            case Kind::Load: return load(i);
            case Kind::Store: return store(i);
            case Kind::Atomic: return update(i);
            case Kind::Reduce:
                if (!i.word.empty() && i.word != "xor") break;
                return reduce(i);
            case Kind::Scan: return scan(i);
            case Kind::If: return choose(i);
            case Kind::For: return count(i);
            case Kind::While: return repeat(i);
            case Kind::Print:
            case Kind::Assert: return {};
            case Kind::Bits: {
                const Tensor& x = at(i.inputs[0]);
                Tensor made = TRY(Tensor::zeros(type(i.outputs[0]).dtype, x.sizes()));
                std::memcpy(made.mutable_data(), x.data(), static_cast<size_t>(x.bytes()));
                set(i.outputs[0], std::move(made));
                return {};
            }
            case Kind::Reshape: {
                const Tensor& x = at(i.inputs[0]);
                set(i.outputs[0], x.reshaped(type(i.outputs[0]).shape));
                return {};
            }
            default: break;
        }
        const std::vector<const Tensor*> inputs = inputs_of(i);
        for (size_t o = 0; o < i.outputs.size(); ++o) {
            const tile::Type& of = type(i.outputs[o]);
            const Sizes sizes = tile_sizes(i, of, inputs);
            const DType dtype = of.pointer ? DType::i64 : of.dtype;
            set(i.outputs[o], TRY(filled(dtype, sizes, tile_body(i, o, dtype, sizes, inputs), inputs)));
        }
        return {};
    }

    Status load(const Instruction& i) {
        std::vector<const Tensor*> inputs = inputs_of(i);
        const Tensor& from = array(i.inputs[0]);
        inputs.push_back(&from);
        const Sizes& sizes = inputs[0]->sizes();
        set(i.outputs[0],
            TRY(filled(from.dtype(), sizes, load_body(from.dtype(), from.elements(), sizes, inputs), inputs)));
        return {};
    }

    // Calls `f` with the place in the array and that in the tile of each element that is asked for and is inside.
    template <typename F>
    Status each_place(const Instruction& i, size_t values, F f) {
        const Tensor& pointer = at(i.inputs[0]);
        const Tensor* mask = i.inputs.size() > values + 1 ? &at(i.inputs[values + 1]) : nullptr;
        const int64_t extent = array(i.inputs[0]).elements();
        TRY(context_.spend(pointer.elements()));
        for (int64_t e = 0; e < pointer.elements(); ++e) {
            const int64_t place = pointer.as<int64_t>()[static_cast<size_t>(e)];
            if ((!mask || mask->int_at(e)) && place >= 0 && place < extent) TRY(f(place, e));
        }
        return {};
    }

    Status store(const Instruction& i) {
        Tensor& to = array(i.inputs[0]);
        const Tensor& value = at(i.inputs[1]);
        return each_place(i, 1, [&](int64_t place, int64_t e) -> Status {
            copy_element(to, place, value, e);
            return {};
        });
    }
    static void copy_element(Tensor& to, int64_t place, const Tensor& from, int64_t e) {
        const auto bytes = static_cast<int64_t>(dtype_bytes(to.dtype()));
        std::memcpy(static_cast<char*>(to.mutable_data()) + place * bytes,
                    static_cast<const char*>(from.data()) + e * bytes, static_cast<size_t>(bytes));
    }

    Status update(const Instruction& i) {
        Tensor& to = array(i.inputs[0]);
        const bool compares = i.word == "compare";
        const Tensor &first = at(i.inputs[1]), &last = at(i.inputs[compares ? 2 : 1]);
        Tensor before = TRY(Tensor::zeros(to.dtype(), at(i.inputs[0]).sizes()));
        TRY(each_place(i, compares ? 2 : 1, [&](int64_t place, int64_t e) -> Status {
            copy_element(before, e, to, place);
            Tensor three[3];
            std::vector<const Tensor*> inputs;
            const Tensor* from[3] = {&before, &first, &last};
            for (size_t n = 0; n < 3; ++n) {
                three[n] = TRY(Tensor::zeros(to.dtype(), {}));
                copy_element(three[n], 0, *from[n], e);
                inputs.push_back(&three[n]);
            }
            copy_element(to, place, TRY(filled(to.dtype(), {}, update_body(i.word, to.dtype()), inputs)), 0);
            return {};
        }));
        set(i.outputs[0], std::move(before));
        return {};
    }

    Status choose(const Instruction& i) {
        const Tensor& condition = at(i.inputs[0]);
        if (condition.elements() != 1) return choose_each(i, condition);
        const Region& taken = i.regions[condition.int_at(0) ? 0 : 1];
        TRY(region(taken));
        carry(taken.results, i.outputs);
        return {};
    }
    // In a function that combines many elements at once: both branches.
    Status choose_each(const Instruction& i, const Tensor& condition) {
        for (const Region& r : i.regions) TRY(region(r));
        for (size_t o = 0; o < i.outputs.size(); ++o) {
            const Tensor &a = at(i.regions[0].results[o]), &b = at(i.regions[1].results[o]);
            const std::vector<const Tensor*> inputs{&condition, &a, &b};
            const Sizes sizes = condition.sizes();
            set(i.outputs[o], TRY(filled(a.dtype(), sizes, choice_body(a.dtype(), sizes, inputs), inputs)));
        }
        return {};
    }
    void carry(const std::vector<int>& from, const std::vector<int>& to) {
        std::vector<Tensor> all;
        for (int v : from) all.push_back(at(v));
        for (size_t v = 0; v < to.size(); ++v) set(to[v], std::move(all[v]));
    }

    Result<int64_t> one(int value) const {
        if (at(value).elements() == 1) return at(value).int_at(0);
        return Error(Code::E0409, "tile program {}: a loop inside of a function that combines elements", program_.name);
    }

    Status count(const Instruction& i) {
        const Region& body = i.regions[0];
        const int64_t begin = TRY(one(i.inputs[0])), end = TRY(one(i.inputs[1])), step = TRY(one(i.inputs[2]));
        const std::vector<int> carried(body.arguments.begin() + 1, body.arguments.end());
        carry({i.inputs.begin() + 3, i.inputs.end()}, carried);
        const DType dtype = type(body.arguments[0]).dtype;
        for (int64_t n = 0, trips = tile_trips(begin, end, step); n < trips; ++n) {
            TRY(context_.spend(1));
            Tensor variable = TRY(Tensor::zeros(dtype, {}));
            // As unsigned numbers, which may wrap.
            variable.set_int(
                0, wrap_to(dtype, static_cast<int64_t>(static_cast<uint64_t>(begin) +
                                                       static_cast<uint64_t>(n) * static_cast<uint64_t>(step))));
            set(body.arguments[0], std::move(variable));
            TRY(region(body));
            carry(body.results, carried);
        }
        carry(carried, i.outputs);
        return {};
    }

    Status repeat(const Instruction& i) {
        const Region &head = i.regions[0], &body = i.regions[1];
        carry(i.inputs, head.arguments);
        for (int64_t n = 0; n < tile::kMostTrips; ++n) {
            TRY(context_.spend(1));
            TRY(region(head));
            if (!TRY(one(head.results[0]))) break;
            TRY(region(body));
            carry(body.results, head.arguments);
        }
        carry(head.arguments, i.outputs);
        return {};
    }

    // The tiles of `xs` combined with those of `ys`, element by element.
    Result<std::vector<Tensor>> combined(const Instruction& i, const std::vector<Tensor>& xs,
                                         const std::vector<Tensor>& ys) {
        std::vector<Tensor> made;
        if (!i.word.empty()) {
            const std::vector<const Tensor*> inputs{&xs[0], &ys[0]};
            const DType dtype = xs[0].dtype();
            made.push_back(TRY(filled(dtype, xs[0].sizes(), xor_body(dtype, xs[0].sizes(), inputs), inputs)));
            return made;
        }
        const Region& r = i.regions[0];
        for (size_t n = 0; n < xs.size(); ++n) {
            set(r.arguments[n], xs[n]);
            set(r.arguments[n + xs.size()], ys[n]);
        }
        TRY(region(r));
        for (int v : r.results) {
            Tensor result = at(v);
            if (result.rank() == 0 && xs[0].rank() > 0)  // a constant
                result = TRY(filled(result.dtype(), xs[0].sizes(), tessera::load(0, result.dtype(), {}), {&result}));
            made.push_back(std::move(result));
        }
        return made;
    }

    // Every second element along the axis from `first` on, `count` of them; or with step 1.
    Result<std::vector<Tensor>> taken(const std::vector<Tensor>& xs, size_t axis, int64_t first, int64_t step,
                                      int64_t count) {
        std::vector<Tensor> made;
        for (const Tensor& x : xs) {
            Sizes sizes = x.sizes();
            sizes[axis] = count;
            made.push_back(TRY(filled(x.dtype(), sizes, slice_body(x, axis, first, step, sizes), {&x})));
        }
        return made;
    }

    Status reduce(const Instruction& i) {
        const auto axis = static_cast<size_t>(i.numbers[0]);
        std::vector<Tensor> xs;
        for (int v : i.inputs) xs.push_back(at(v));
        // Neighbours in pairs, in their order, until one is left.
        for (int64_t extent = xs[0].sizes()[axis]; extent > 1;) {
            const int64_t pairs = extent / 2;
            const std::vector<Tensor> last = TRY(taken(xs, axis, extent - 1, 1, 1));
            const std::vector<Tensor> left = TRY(taken(xs, axis, 0, 2, pairs)),
                                      right = TRY(taken(xs, axis, 1, 2, pairs));
            xs = TRY(combined(i, left, right));
            if (extent % 2)
                for (size_t n = 0; n < xs.size(); ++n) {
                    Sizes sizes = xs[n].sizes();
                    sizes[axis] = pairs + 1;
                    const std::vector<const Tensor*> both{&xs[n], &last[n]};
                    xs[n] = TRY(filled(xs[n].dtype(), sizes, append_body(xs[n], axis, sizes), both));
                }
            extent = pairs + extent % 2;
        }
        for (size_t n = 0; n < xs.size(); ++n) set(i.outputs[n], xs[n].reshaped(type(i.outputs[n]).shape));
        return {};
    }

    Status scan(const Instruction& i) {
        const auto axis = static_cast<size_t>(i.numbers[0]);
        std::vector<Tensor> xs;
        for (int v : i.inputs) xs.push_back(at(v));
        const int64_t extent = xs[0].sizes()[axis];
        const auto turned = [&]() -> Status {
            if (i.numbers[1]) xs = TRY(taken(xs, axis, extent - 1, -1, extent));
            return {};
        };
        TRY(turned());
        for (int64_t distance = 1; distance < extent; distance *= 2) {
            const int64_t rest = extent - distance;
            const std::vector<Tensor> before = TRY(taken(xs, axis, 0, 1, rest)),
                                      here = TRY(taken(xs, axis, distance, 1, rest)),
                                      first = TRY(taken(xs, axis, 0, 1, distance));
            const std::vector<Tensor> made = TRY(combined(i, before, here));
            for (size_t n = 0; n < xs.size(); ++n) {
                const std::vector<const Tensor*> both{&first[n], &made[n]};
                xs[n] = TRY(filled(xs[n].dtype(), xs[n].sizes(), append_body(first[n], axis, xs[n].sizes()), both));
            }
        }
        TRY(turned());
        for (size_t n = 0; n < xs.size(); ++n) set(i.outputs[n], xs[n]);
        return {};
    }

    const tile::ProgramData& program_;
    const std::vector<int> array_of_;
    std::vector<Tensor> arguments_;
    const std::array<int64_t, 3> grid_;
    EvalContext& context_;
    std::vector<Tensor> values_;
    std::array<int64_t, 3> id_ = {0, 0, 0};
};

}  // namespace

Status run_tiles(const tile::ProgramData& program, std::vector<Tensor> arguments, const std::array<int64_t, 3>& grid,
                 EvalContext& context) {
    return TileRunner(program, TRY(tile::arrays_of_pointers(program)), std::move(arguments), grid, context).run();
}

}  // namespace tessera
