#include "kernel/from_tile/write_tile.h"

#include <fmt/format.h>

#include "kernel/from_tile/from_tile.h"
#include "kernel/ir/multiples.h"
#include "kernel/ir/tile_calls.h"
#include "kernel/ir/verified.h"
#include "tile/cover.h"

namespace tessera {
namespace {

using As = TileCall::Argument::As;

constexpr int64_t kFilled = 4096;  // elements at a time, on a processor

class TileWriter {
  public:
    TileWriter(const Node& node, TileCall call, const Machine& machine)
        : node_(node), call_(std::move(call)), machine_(machine), program_(call_.program.data()) {}

    Result<WrittenKernel> write() {
        for (size_t o = 0; o < call_.initial.size(); ++o)
            if (call_.initial[o] >= 0) begin_as(static_cast<size_t>(call_.initial[o]));
        std::vector<tile::Argument> arguments;
        for (size_t a = 0; a < call_.arguments.size(); ++a) {
            using Given = tile::Argument::As;
            const bool points = program_.types[static_cast<size_t>(program_.parameters[a].value)].pointer;
            if (call_.arguments[a].as == As::Input && !points && !elements_of(call_.arguments[a]).is_int(1))
                return Error(Code::E0604, "{} must have exactly one element, which is not certain",
                             node_.input(call_.arguments[a].index)->name());
            arguments.push_back({call_.arguments[a].as == As::Size ? Given::Size
                                 : points                          ? Given::Array
                                                                   : Given::Element});
            if (call_.arguments[a].as == As::Size) arguments.back().multiple = multiple_of(call_.arguments[a].size);
        }
        const int rank = !call_.grid[2].is_int(1) ? 3 : !call_.grid[1].is_int(1) ? 2 : 1;
        const tile::Program program(std::make_shared<const tile::ProgramData>(program_));
        TileKernel lowered = TRY(from_tile(program, arguments, rank, machine_,
                                             {.warps = call_.warps, .bounded = !call_.trusted}));
        made_.kernel = std::move(lowered.kernel);
        bind();
        fill();
        check_verified(made_.kernel, "write_tile_kernel");
        return std::move(made_);
    }

  private:
    // A parameter for an input that an output begins as.
    void begin_as(size_t input) {
        for (size_t a = 0; a < call_.arguments.size(); ++a)
            if (is_array_of(a, As::Input, input)) return;
        program_.types.push_back({.dtype = node_.input(input)->type().tensor().dtype, .pointer = true});
        program_.parameters.push_back({fmt::format("initial{}", input), static_cast<int>(program_.types.size()) - 1});
        call_.arguments.push_back({As::Input, input});
    }
    bool is_array_of(size_t a, As as, size_t index) const {
        const bool points = program_.types[static_cast<size_t>(program_.parameters[a].value)].pointer;
        return points && call_.arguments[a].as == as && call_.arguments[a].index == index;
    }

    // Whether somebody asks for it, or not: then it is scratch.
    Expr elements_of(const TileCall::Argument& argument) const {
        const Value* v = argument.as == As::Input ? node_.input(argument.index) : node_.output(argument.index);
        return v->type().tensor().shape.elements();
    }
    // A number that divides the size, for vectors of a GPU.
    int64_t multiple_of(const Expr& size) const {
        constexpr int64_t kMost = 16;
        return machine_.blocks ? std::max<int64_t>(1, std::gcd(kMost, divisor_of(size))) : 1;
    }
    void bind() {
        for (const Expr& axis : call_.grid) made_.symbols.push_back(axis);
        for (size_t a = 0; a < call_.arguments.size(); ++a) {
            const TileCall::Argument& argument = call_.arguments[a];
            const bool points = program_.types[static_cast<size_t>(program_.parameters[a].value)].pointer;
            if (argument.as == As::Size) {
                made_.symbols.push_back(floor_div(argument.size, multiple_of(argument.size)));
                continue;
            }
            if (points) made_.symbols.push_back(elements_of(argument));
            using Role = WrittenKernel::Role;
            const bool asked = argument.as == As::Input || !node_.output(argument.index)->uses().empty();
            const Role role = !asked ? Role::Scratch : argument.as == As::Input ? Role::Input : Role::Output;
            slots_.emplace_back(a, static_cast<int>(made_.params.size()));
            made_.params.push_back({role, argument.index});
        }
    }

    int slot_of(As as, size_t index) const {
        for (const auto& [a, slot] : slots_)
            if (is_array_of(a, as, index)) return slot;
        return -1;
    }
    // A condition under which the program stores each element of an output.
    std::optional<Expr> stores_all(size_t o) const {
        if (call_.trusted) return int_const(1, DType::boolean);
        size_t parameter = 0;
        while (!is_array_of(parameter, As::Output, o)) ++parameter;
        return tile::covers(program_, parameter, call_.given(), node_.output(o)->type().tensor().shape.elements());
    }
    void fill() {
        Kernel& kernel = made_.kernel;
        std::vector<Stmt> all;
        for (size_t o = 0; o < call_.initial.size(); ++o) {
            const int to = slot_of(As::Output, o);
            const int from = call_.initial[o] < 0 ? -1 : slot_of(As::Input, static_cast<size_t>(call_.initial[o]));
            const Buffer& buffer = kernel.buffers[static_cast<size_t>(to)];
            const auto stored = stores_all(o);
            if (stored && stored->is(ExprKind::Const) && stored->node().integer) continue;
            Expr extent = buffer.shape[0];
            if (stored) {
                kernel.symbols.push_back(fmt::format("filled{}", o));
                const Expr elements = node_.output(o)->type().tensor().shape.elements();
                made_.symbols.push_back(select(*stored, 0, elements));
                extent = min(extent, symbol(kernel.symbols.back()));
            }
            const int64_t filled = machine_.blocks ? 1 : kFilled;
            const Expr part = index_var(fmt::format("part{}", o), {}), each = index_var(fmt::format("each{}", o), {});
            const Expr at = part * Expr(filled) + each;
            const Expr value = from < 0 ? constant(0, buffer.dtype) : load(from, buffer.dtype, {at});
            const Stmt inner = for_loop({.var = each,
                                         .extent = min(Expr(filled), extent - part * Expr(filled)),
                                         .body = store(to, {at}, value)});
            all.push_back(
                for_loop({.var = part, .extent = ceil_div(extent, filled), .kind = LoopKind::Parallel, .body = inner}));
        }
        if (kernel.body) all.push_back(instances(kernel.body));
        kernel.body = seq(std::move(all));
    }

    // The loop over instances, or blocks, marked as such; a loop that ran once is made again.
    static Stmt instances(const Stmt& body) {
        const For* loop = body->as<For>();
        For made{.var = index_var("instance", 1), .extent = 1, .kind = LoopKind::Parallel, .body = body};
        if (loop && (loop->kind == LoopKind::Parallel || loop->kind == LoopKind::Bound)) made = *loop;
        made.notes.emplace(kInstances, 1);
        return make_stmt(std::move(made));
    }

    const Node& node_;
    TileCall call_;
    const Machine& machine_;
    tile::ProgramData program_;
    WrittenKernel made_;
    std::vector<std::pair<size_t, int>> slots_;  // arguments, and the kernel's parameters that they are
};

}  // namespace

Result<WrittenKernel> write_tile_kernel(const Node& node, const Machine& machine) {
    return TileWriter(node, TRY(node.op().tile(node.view())), machine).write();
}

}  // namespace tessera
