// Layers without weights, by the vector ALU: pools and additions of rows in acc.
#include <algorithm>
#include <bit>

#include "kernel/accelerator/compile/write_layers.h"

namespace tessera::accelerator {
namespace {

struct RowTile {
    int64_t image, block, blocks, y, x, height, width;
};

// Tiles of a value that is computed of rows in acc: so many blocks, lines and columns at a time.
struct RowPlan {
    int64_t blocks = 1, height = 1, width = 1;
};

// The largest tiles of which `contexts` fit, where one of `blocks` takes rows(height, width) for each block.
template <typename Rows>
Result<RowPlan> plan_rows(const Place& to, const Machine& machine, int contexts, const Rows& rows) {
    RowPlan best;
    int64_t most = 0;
    const int64_t planes = parts(to.is.channels, machine.outputs);
    for (int64_t parts_x = 1; parts_x <= to.is.width; parts_x *= 2)
        for (int64_t parts_y = 1; parts_y <= to.is.height; ++parts_y) {
            const int64_t height = parts(to.is.height, parts_y), width = parts(to.is.width, parts_x);
            const int64_t room = (machine.acc_rows - 1) / contexts / rows(height, width);
            const int64_t blocks = std::min(parts(planes, parts(planes, std::max<int64_t>(1, room))), planes);
            if (room < 1 || blocks > machine.uops / 4) continue;
            if (blocks * height * width > most) {
                best = {blocks, height, width};
                most = blocks * height * width;
            }
        }
    if (most == 0)
        return Error(Code::E0601, "no tile of a layer fits the {} accumulators of {}", machine.acc_rows, machine.name)
            .hint("larger scratchpads in the machine's description take it");
    return best;
}

std::vector<RowTile> tiles_of(const Place& to, const RowPlan& plan, const Machine& machine) {
    std::vector<RowTile> tiles;
    const int64_t planes = parts(to.is.channels, machine.outputs);
    for (int64_t image = 0; image < to.is.batch; ++image)
        for (int64_t b = 0; b < planes; b += plan.blocks)
            for (int64_t y = 0; y < to.is.height; y += plan.height)
                for (int64_t x = 0; x < to.is.width; x += plan.width)
                    tiles.push_back({image, b, std::min(plan.blocks, planes - b), y, x,
                                     std::min(plan.height, to.is.height - y), std::min(plan.width, to.is.width - x)});
    return tiles;
}

Box box_of(const RowTile& t, const RowPlan& plan) {
    return {.image = t.image,
            .plane = t.block,
            .planes = t.blocks,
            .y = t.y,
            .x = t.x,
            .height = t.height,
            .width = t.width,
            .pitch_y = plan.height,
            .pitch_x = plan.width};
}

// Loads, computes and stores each tile; `load` and `compute` take the tile and the first row of its context.
template <typename LoadTile, typename ComputeTile>
Status write_tiles(const LayerContext& context, const Place& to, const RowPlan& plan, int64_t rows_of_context,
                   const LoadTile& load, const ComputeTile& compute) {
    Writer& writer = context.writer;
    const std::vector<RowTile> tiles = tiles_of(to, plan, writer.machine());
    const auto count = int64_t(tiles.size());
    const int64_t ahead = context.contexts > 1 ? 1 : 0;
    const auto row_of = [&](int64_t t) { return t % context.contexts * rows_of_context; };
    for (int64_t t = 0; t < count + ahead; ++t) {
        if (t < count) {
            std::vector<Instruction> loads;
            if (t == 0 && context.first) load_dummy(context, loads);
            if (t == 0) TRY(writer.load_uops(loads));
            load(loads, tiles[size_t(t)], row_of(t));
            writer.add_loads(std::move(loads), t >= context.contexts || (t == 0 && !context.first));
        }
        const int64_t c = t - ahead;
        if (c < 0) continue;
        auto [instructions, result] = compute(tiles[size_t(c)], row_of(c));
        writer.add_compute(std::move(instructions), {.pop_previous = true,
                                                     .pop_next = c >= context.contexts,
                                                     .push_previous = c + context.contexts < count,
                                                     .push_next = true});
        std::vector<Instruction> stores;
        writer.store(stores, result, to, box_of(tiles[size_t(c)], plan));
        writer.add_stores(std::move(stores), c + 1 == count ? !context.last : c + context.contexts < count);
    }
    if (!context.last) writer.barrier(dummy_row(writer.machine()));
    return {};
}

std::string shown(const RowPlan& plan, int contexts) {
    return fmt::format("tile {}x{}, {} blocks, {} contexts", plan.height, plan.width, plan.blocks, contexts);
}

Instruction compute(Alu alu) { return {.tokens = {}, .op = alu}; }

}  // namespace

Loop loop_over(const AccTile& tile, uint16_t uop) {
    return {uop, uint16_t(tile.blocks), uint16_t(tile.height), uint16_t(tile.width)};
}
Operand operand(const AccTile& tile, int64_t row) { return {uint16_t(row), uint16_t(tile.pitch), 1}; }

std::vector<Instruction> sum_instructions(const Sum& sum, const AccTile& tile, int64_t a, int64_t b, uint16_t uop) {
    Alu alu{.loop = loop_over(tile, uop), .dst = operand(tile, tile.row)};
    std::vector<Instruction> all;
    alu.op = AluOp::Dequantize;
    alu.a = operand(tile, a);
    alu.immediate = std::bit_cast<uint32_t>(sum.a.scale);
    alu.addend = int16_t(-sum.a.zero);
    all.push_back(compute(alu));
    alu.op = AluOp::DequantizeAdd;
    alu.a = operand(tile, b);
    alu.immediate = std::bit_cast<uint32_t>(sum.b.scale);
    alu.addend = int16_t(-sum.b.zero);
    all.push_back(compute(alu));
    alu.op = AluOp::Quantize;
    alu.a = operand(tile, tile.row);
    alu.immediate = std::bit_cast<uint32_t>(sum.y.scale);
    alu.addend = int16_t(sum.y.zero);
    alu.clip = true;
    alu.low = int16_t(sum.low);
    alu.high = int16_t(sum.high);
    all.push_back(compute(alu));
    return all;
}

int64_t dummy_row(const Machine& machine) { return machine.acc_rows - 1; }

void load_dummy(const LayerContext& context, std::vector<Instruction>& loads) {
    loads.push_back(
        {.tokens = {},
         .op = Load{
             .to = Scratchpad::Acc, .row = uint16_t(dummy_row(context.writer.machine())), .x = 0, .y = 1, .left = 1}});
}

Result<WrittenLayer> write_pool(const LayerContext& context, const MaxPool& pool) {
    const Place &from = context.places[size_t(pool.input)], &to = context.places[size_t(pool.output)];
    const Window& w = pool.window;
    const auto input_y = [&](int64_t y) { return (y - 1) * w.stride_y + (w.kernel_y - 1) * w.dilation_y + 1; };
    const auto input_x = [&](int64_t x) { return (x - 1) * w.stride_x + (w.kernel_x - 1) * w.dilation_x + 1; };
    const RowPlan plan = TRY(plan_rows(to, context.writer.machine(), context.contexts,
                                       [&](int64_t y, int64_t x) { return y * x + input_y(y) * input_x(x); }));
    const int64_t pixels = plan.height * plan.width, in_x = input_x(plan.width), in_y = input_y(plan.height);
    std::vector<Uop> list;
    for (int64_t b = 0; b < plan.blocks; ++b) list.push_back({uint16_t(b * pixels), uint16_t(b * in_x * in_y), 0});
    const uint16_t uops = TRY(context.writer.uops(list));
    const bool is_signed = to.is.dtype == DType::i8;
    const auto load = [&](std::vector<Instruction>& loads, const RowTile& t, int64_t row) {
        const Box box{.image = t.image,
                      .plane = t.block,
                      .planes = t.blocks,
                      .y = t.y * w.stride_y - w.top,
                      .x = t.x * w.stride_x - w.left,
                      .height = in_y,
                      .width = in_x,
                      .pitch_y = in_y,
                      .pitch_x = in_x};
        context.writer.load(loads, Scratchpad::Acc, row + plan.blocks * pixels, from, box, is_signed ? 0x80 : 0);
    };
    const auto compute_tile = [&](const RowTile& t, int64_t row) {
        const AccTile tile{row, pixels, plan.width, t.blocks, t.height, t.width};
        std::vector<Instruction> all;
        for (int64_t y = 0; y < w.kernel_y; ++y)
            for (int64_t x = 0; x < w.kernel_x; ++x) {
                const int64_t first = row + plan.blocks * pixels + y * w.dilation_y * in_x + x * w.dilation_x;
                all.push_back(compute({.op = AluOp::Max,
                                       .loop = loop_over(tile, uops),
                                       .dst = operand(tile, row),
                                       .a = {uint16_t(first), uint16_t(w.stride_y * in_x), uint16_t(w.stride_x)},
                                       .b = all.empty() ? SecondOperand::Immediate : SecondOperand::Destination,
                                       .immediate = all.empty() ? uint32_t(INT32_MIN) : 0}));
            }
        return std::pair(std::move(all), row);
    };
    TRY(write_tiles(context, to, plan, plan.blocks * (pixels + in_x * in_y), load, compute_tile));
    return WrittenLayer{shown(plan, context.contexts), 0};
}

Result<WrittenLayer> write_addition(const LayerContext& context, const Addition& addition) {
    const Place& to = context.places[size_t(addition.output)];
    const RowPlan plan =
        TRY(plan_rows(to, context.writer.machine(), context.contexts, [](int64_t y, int64_t x) { return 2 * y * x; }));
    const int64_t pixels = plan.height * plan.width;
    std::vector<Uop> list;
    for (int64_t b = 0; b < plan.blocks; ++b) list.push_back({uint16_t(b * pixels), uint16_t(b * pixels), uint16_t(b)});
    const uint16_t uops = TRY(context.writer.uops(list));
    const auto load = [&](std::vector<Instruction>& loads, const RowTile& t, int64_t row) {
        context.writer.load(loads, Scratchpad::Acc, row, context.places[size_t(addition.a)], box_of(t, plan), 0);
        context.writer.load(loads, Scratchpad::Acc, row + plan.blocks * pixels, context.places[size_t(addition.b)],
                            box_of(t, plan), 0);
    };
    const auto compute_tile = [&](const RowTile& t, int64_t row) {
        const AccTile tile{row, pixels, plan.width, t.blocks, t.height, t.width};
        return std::pair(sum_instructions(addition.sum, tile, row, row + plan.blocks * pixels, uops), row);
    };
    TRY(write_tiles(context, to, plan, 2 * plan.blocks * pixels, load, compute_tile));
    return WrittenLayer{shown(plan, context.contexts), 0};
}

}  // namespace tessera::accelerator
