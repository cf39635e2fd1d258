#include "kernel/from_tile/from_tile.h"
#include "kernel/from_tile/bound_exps.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "kernel/from_tile/fetch_ahead.h"
#include "kernel/from_tile/hoist.h"
#include "kernel/from_tile/hoist_divisions.h"
#include "kernel/from_tile/lowering.h"
#include "kernel/from_tile/unwrap_lanes.h"
#include "kernel/ir/narrow_floats.h"
#include "kernel/ir/tile_calls.h"
#include "kernel/passes/clean_up.h"

namespace tessera {
namespace from_tile_detail {

using tile::Instruction;
using tile::Kind;

namespace {

// Whether a variable of a kernel, or a symbol that it has beside those of numbers that it is given, may be called so.
bool is_kernels_own(const std::string& name) {
    constexpr std::string_view kBegins[] = {"grid_", "block_", "elements_", "address_", "offset_"};
    if (name.empty() || name == "instance" || name == kAnywhere ||
        std::isdigit(static_cast<unsigned char>(name.back())))
        return true;
    return std::any_of(std::begin(kBegins), std::end(kBegins), [&](auto begin) { return name.starts_with(begin); });
}

// Each parameter gets a name that nothing else has.
void name_apart(tile::ProgramData& program) {
    for (tile::Parameter& p : program.parameters) {
        const auto taken = [&](const std::string& name) {
            return std::any_of(program.parameters.begin(), program.parameters.end(),
                               [&](const tile::Parameter& other) { return &other != &p && other.name == name; });
        };
        const bool number = !program.types[static_cast<size_t>(p.value)].pointer;
        while ((number && is_kernels_own(p.name)) || taken(p.name)) p.name = "given_" + p.name + "_";
    }
}

}  // namespace

TileLowering::TileLowering(const tile::ProgramData& program, const std::vector<tile::Argument>& arguments,
                           int grid_rank, const Machine& machine, const TileOptions& options, Matrices matrices,
                           bool bytes)
    : program_(program),
      arguments_(arguments),
      grid_rank_(grid_rank),
      machine_(machine),
      apart_(options.apart),
      by_address_(options.by_address),
      bounded_(options.bounded),
      matrices_(matrices),
      warps_(machine.blocks ? options.warps : 0),
      stages_(options.stages) {
    name_apart(program_);
    add_in_dots(program_);
    divide_once(program_);
    if (warps_ && matrices == Matrices::OfFour && bytes) find_products_of_bytes();
    if (warps_ && matrices != Matrices::None) multiply_bytes_as_halves(program_, of_bytes_);
    if (warps_)
        by_powers_of_two(program_);
    else
        bound_exps(program_);
    hoist_invariants(program_);
    uses_ = count_uses(program_);
    remaining_ = uses_.count;
    const size_t values = program_.types.size();
    tiles_.resize(values);
    sources_.resize(values);
    region_of_.assign(values, -1);
    memo_.resize(values);
}

Error TileLowering::cannot(const Instruction& i, std::string_view why) const {
    return Error(Code::E0604, "{}: {}", tile::kind_name(i.kind), why).at(i.place.line ? i.place.to_string() : "");
}

Error TileLowering::need_addresses(const Instruction& i) {
    needs_addresses_ = true;
    return cannot(i, "it is not known into which array the pointer points");
}

int TileLowering::all_memory(DType dtype) {
    const std::string name = fmt::format("memory_{}", dtype_name(stored_as(dtype)));
    for (size_t slot = 0; slot < kernel_.buffers.size(); ++slot)
        if (is_anywhere(kernel_.buffers[slot]) && kernel_.buffers[slot].name == name) return static_cast<int>(slot);
    const std::string size(kAnywhere);
    if (kernel_.symbols.back() != size) kernel_.symbols.push_back(size);
    kernel_.buffers.push_back({.name = name, .dtype = stored_as(dtype), .shape = {symbol(size)}});
    return static_cast<int>(kernel_.buffers.size()) - 1;
}

Result<Kernel> TileLowering::run() {
    kernel_.name = program_.name;
    const char* axes[] = {"grid_x", "grid_y", "grid_z"};
    for (int axis = 0; axis < 3; ++axis) {
        kernel_.symbols.push_back(axes[axis]);
        if (axis < grid_rank_) grid_[static_cast<size_t>(axis)] = symbol(axes[axis]);
    }
    // Buffers first: pointers into another's need that one's number.
    std::vector<int> slots(arguments_.size(), -1);
    for (size_t p = 0; p < arguments_.size(); ++p) {
        const tile::Parameter& parameter = program_.parameters[p];
        const DType dtype = type(parameter.value).dtype;
        using As = tile::Argument::As;
        if (arguments_[p].as == As::Array && by_address_) {
            kernel_.symbols.push_back("address_" + parameter.name);
        } else if (arguments_[p].as == As::Array || arguments_[p].as == As::Element) {
            slots[p] = static_cast<int>(kernel_.buffers.size());
            std::vector<Expr> shape{1};
            if (arguments_[p].as == As::Array) {
                kernel_.symbols.push_back("elements_" + parameter.name);
                shape = {symbol(kernel_.symbols.back())};
            }
            kernel_.buffers.push_back({.name = parameter.name, .dtype = stored_as(dtype), .shape = std::move(shape)});
        } else {
            kernel_.symbols.push_back((arguments_[p].as == As::Shared ? "offset_" : "") + parameter.name);
        }
    }
    if (by_address_)
        for (const tile::Type& each : program_.types)
            if (each.pointer) all_memory(each.dtype);
    kernel_.params = kernel_.buffers.size();
    for (size_t p = 0; p < arguments_.size(); ++p) {
        using As = tile::Argument::As;
        const tile::Argument& argument = arguments_[p];
        const tile::Parameter& parameter = program_.parameters[p];
        const tile::Type& of = type(parameter.value);
        LoweredTile made{.type = of, .at = {}};
        if (of.pointer) {
            const size_t array = argument.as == As::Shared ? static_cast<size_t>(argument.of) : p;
            Expr offset = argument.as == As::Shared ? symbol("offset_" + parameter.name) : Expr(0);
            made.base = slots[array];
            if (by_address_) {
                made.base = all_memory(of.dtype);
                const auto bytes = static_cast<int64_t>(dtype_bytes(of.dtype));
                offset = floor_div(symbol("address_" + program_.parameters[array].name), bytes) + offset;
            }
            made.at = [offset](const TileIndices&) { return offset; };
        } else if (argument.as == As::Size) {
            const Expr count = warps_ ? argument.multiple : 1;
            const Expr value = tessera::cast(symbol(parameter.name) * count, of.dtype);
            made.at = [value](const TileIndices&) { return value; };
        } else {
            const Expr value = load(slots[p], stored_as(of.dtype), {Expr(0)});
            made.at = [value](const TileIndices&) { return value; };
        }
        tile(parameter.value) = std::move(made);
        region_of_[static_cast<size_t>(parameter.value)] = 0;
    }
    const Expr count = grid_[0] * grid_[1] * grid_[2];
    const Expr instance = index_var("instance", std::nullopt);
    ids_ = {instance, 0, 0};
    if (grid_rank_ > 1) ids_ = {mod(instance, grid_[0]), floor_div(instance, grid_[0]), 0};
    if (grid_rank_ > 2) {
        ids_[1] = mod(floor_div(instance, grid_[0]), grid_[1]);
        ids_[2] = floor_div(instance, grid_[0] * grid_[1]);
    }
    if (warps_) {
        for (size_t axis = 0; axis < 3; ++axis)
            ids_[axis] =
                static_cast<int>(axis) < grid_rank_ ? index_var(fmt::format("block_{}", axes[axis] + 5), {}) : Expr(0);
        TRY(choose_layouts());
    }
    const std::array<Expr, 3> blocks = ids_, extents = grid_;
    Stmt body = TRY(lower_region(
        program_.body, [] { return Status(); }, [&] { hide_numbers(); }));
    if (warps_) return finish_blocks(std::move(body), blocks, extents);
    kernel_.body = for_loop({.var = instance, .extent = count, .kind = LoopKind::Parallel, .body = std::move(body)});
    if (apart_) return std::move(kernel_);
    drop_unit_loops(kernel_);
    unwrap_lanes(kernel_, bounded_);
    hoist_divisions_of_loops(kernel_);
    simplify_kernel(kernel_);
    prefetch_rows(kernel_);
    prefetch_steps(kernel_);
    return std::move(kernel_);
}

Result<Kernel> TileLowering::finish_blocks(Stmt body, const std::array<Expr, 3>& blocks,
                                           const std::array<Expr, 3>& extents) {
    for (size_t axis = 0; axis < static_cast<size_t>(grid_rank_); ++axis)
        body = for_loop({.var = blocks[axis],
                         .extent = extents[axis],
                         .kind = LoopKind::Bound,
                         .axis = fmt::format("block.{}", static_cast<char>('x' + axis)),
                         .body = std::move(body)});
    kernel_.body = std::move(body);
    if (!keep_with_threads(kernel_, places_, layouts_, sums_)) {
        needs_other_products_ = true;
        return Error(Code::E0604, "{}: the sums of a product are needed by more than one thread", kernel_.name);
    }
    compute_everywhere(kernel_, warps_, names_);
    drop_unit_loops(kernel_);
    unwrap_lanes(kernel_, bounded_);
    hoist_divisions(kernel_);
    fetch_ahead(kernel_, stages_ - 1);
    simplify_kernel(kernel_);
    drop_unused_buffers(kernel_);  // of loops without iterations
    return std::move(kernel_);
}

Expr TileLowering::unknown(const Expr& number) {
    if (!bounded_) return number;
    const int slot = local(DType::i64, {});
    statements_.push_back(store(slot, {}, number));
    return at_buffer(slot, {});
}

void TileLowering::hide_numbers() {
    if (!bounded_) return;
    constexpr int64_t kAligned = 16;  // elements: whatever the number is, vectors begin where they did
    nothing_ = unknown(0) * Expr(kAligned);
    for (size_t axis = 0; axis < 3; ++axis) {
        ids_[axis] = unknown(ids_[axis]);
        grid_[axis] = unknown(grid_[axis]);
    }
    for (size_t p = 0; p < arguments_.size(); ++p) {
        if (arguments_[p].as != tile::Argument::As::Size) continue;
        const int value = program_.parameters[p].value;
        const Expr count = warps_ ? arguments_[p].multiple : 1;
        const Expr hidden = cast(unknown(symbol(program_.parameters[p].name)) * count, type(value).dtype);
        tile(value).at = [hidden](const TileIndices&) { return hidden; };
    }
}

Result<Stmt> TileLowering::lower_region(const tile::Region& region, const std::function<Status()>& end,
                                        const std::function<void()>& begin) {
    std::vector<Stmt> outer_statements;
    std::vector<int> outer_allocated;
    statements_.swap(outer_statements);
    allocated_.swap(outer_allocated);
    const int outer = region_;
    region_ = ++regions_;
    for (int argument : region.arguments) region_of_[static_cast<size_t>(argument)] = region_;
    if (begin) begin();
    for (const Instruction& i : region.instructions) {
        TRY(lower(i));
        for (int o : i.outputs) put_in_row_panels(o);
    }
    TRY(end());
    Stmt body = seq(std::move(statements_));
    for (size_t a = allocated_.size(); a-- > 0;) body = body ? alloc(allocated_[a], body) : body;
    statements_ = std::move(outer_statements);
    allocated_ = std::move(outer_allocated);
    // What was given inside is no longer there.
    const auto is_gone = [&](int v) { return region_of_[static_cast<size_t>(v)] == region_; };
    std::erase_if(waiting_, is_gone);
    std::erase_if(pointers_, is_gone);
    region_ = outer;
    return body;
}

Status TileLowering::lower(const Instruction& i) {
    // What nobody asks for is not computed.
    bool wanted = i.outputs.empty() || i.kind == Kind::Atomic;
    for (int o : i.outputs) wanted |= uses_.count[static_cast<size_t>(o)] > 0;
    for (int o : i.outputs) region_of_[static_cast<size_t>(o)] = region_;
    for (int input : i.inputs) --remaining_[static_cast<size_t>(input)];
    place_ = i.place;
    if (!wanted && i.kind != Kind::If && i.kind != Kind::For && i.kind != Kind::While) return {};
    switch (i.kind) {
        case Kind::Load: return lower_load(i);
        case Kind::Store: return lower_store(i);
        case Kind::Atomic: return lower_atomic(i);
        case Kind::Dot: return lower_dot(i);
        case Kind::Reduce: return i.regions.empty() ? lower_reduce(i) : lower_combine(i);
        case Kind::Scan: return lower_combine(i);
        case Kind::If: return lower_if(i);
        case Kind::For: return lower_for(i);
        case Kind::While: return lower_while(i);
        case Kind::Print:
        case Kind::Assert: return lower_report(i);
        case Kind::Map: return lower_map(i);
        case Kind::Bits: return lower_bits(i);
        default: return lower_view(i);
    }
}

}  // namespace from_tile_detail

Result<TileKernel> from_tile(const tile::Program& program, const std::vector<tile::Argument>& arguments, int grid_rank,
                             const Machine& machine, const TileOptions& options) {
    using from_tile_detail::Matrices;
    using from_tile_detail::TileLowering;
    TileOptions tried = options;
    bool bytes = true;
    for (Matrices matrices = machine.has("wgmma") ? Matrices::OfFour : Matrices::OfWarp;;) {
        TileLowering lowering(program.data(), arguments, grid_rank, machine, tried, matrices, bytes);
        Result<Kernel> made = lowering.run();
        if (made.ok()) return TileKernel{std::move(*made), tried.by_address};
        if (lowering.needs_addresses() && !tried.by_address && !tried.bounded)
            tried.by_address = true;
        else if (lowering.needs_other_products() && lowering.multiplies_bytes())
            bytes = false;
        else if (lowering.needs_other_products() && matrices != Matrices::None)
            matrices = matrices == Matrices::OfFour ? Matrices::OfWarp : Matrices::None;
        else
            return std::move(made).error();
    }
}

}  // namespace tessera
