#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "kernel/accelerator/compile/write_layers.h"

namespace tessera::accelerator {
namespace {

// One part of a tile's sums: what is loaded and multiplied together.
struct Chunk {
    int64_t tile, image, y, x, height, width, block, blocks, depth, depths;
    bool first, last;  // of its tile
};

class ConvWriter {
  public:
    ConvWriter(const LayerContext& context, const Conv& conv)
        : context_(context),
          writer_(context.writer),
          machine_(context.writer.machine()),
          conv_(conv),
          from_(context.places[size_t(conv.input)]),
          to_(context.places[size_t(conv.output)]) {}

    Result<WrittenLayer> write() {
        describe();
        plan_ = TRY(plan_conv(shape_, machine_, context_.contexts));
        TRY(place_weights());
        TRY(choose_uops());
        find_chunks();
        const auto count = int64_t(chunks_.size());
        const int64_t ahead = context_.contexts > 1 ? 1 : 0;
        for (int64_t s = 0; s < count + ahead; ++s) {
            if (s < count) TRY(load(s));
            if (s >= ahead) compute(s - ahead);
        }
        if (!context_.last) writer_.barrier(dummy_row(machine_));
        return WrittenLayer{plan_.to_string(), rows_};
    }

  private:
    bool wide() const { return to_.is.dtype == DType::i32; }

    void describe() {
        const int64_t k = machine_.inputs, n = machine_.outputs;
        const int64_t inputs = from_.is.channels, outputs = to_.is.channels;
        shape_ = {.batch = to_.is.batch,
                  .height = to_.is.height,
                  .width = to_.is.width,
                  .output_blocks = parts(outputs, n),
                  .input_blocks = parts(inputs, k),
                  .depth = parts(inputs, k),
                  .first = {},
                  .window = conv_.window,
                  .alu_rows = wide()       ? 0
                              : conv_.rest ? 4
                                           : 1,
                  .rest = conv_.rest.has_value(),
                  .output_bytes = int(n * to_.element())};
        // A window of one place need not load those between.
        if (Window& w = shape_.window; w.kernel_y == 1 && w.kernel_x == 1 && w.top == 0 && w.left == 0) {
            step_y_ = std::exchange(w.stride_y, 1);
            step_x_ = std::exchange(w.stride_x, 1);
        }
        if (conv_.groups == 1) return;
        const int64_t group_in = inputs / conv_.groups, group_out = outputs / conv_.groups;
        int64_t depth = 1;
        std::vector<int64_t> first, last;
        for (int64_t o = 0; o < shape_.output_blocks; ++o) {
            const int64_t end = std::min((o + 1) * n, outputs) - 1;
            first.push_back(o * n / group_out * group_in / k);
            last.push_back(((end / group_out + 1) * group_in - 1) / k);
            depth = std::max(depth, last.back() - first.back() + 1);
        }
        if (depth >= shape_.input_blocks) return;
        for (int64_t& f : first) f = std::min(f, shape_.input_blocks - depth);
        shape_.first = std::move(first);
        shape_.depth = depth;
    }

    // Tiles of N x K weights by output block, input block and tap; rows of biases and scales.
    Status place_weights() {
        const int64_t k = machine_.inputs, n = machine_.outputs, taps = shape_.taps();
        const int64_t inputs = from_.is.channels, outputs = to_.is.channels;
        const int64_t group_in = inputs / conv_.groups, group_out = outputs / conv_.groups;
        std::vector<uint8_t> packed(size_t(shape_.output_blocks * shape_.depth * taps * n * k));
        const auto w = conv_.weights.as<int8_t>();
        for (int64_t o = 0; o < outputs; ++o)
            for (int64_t c = 0; c < group_in; ++c) {
                const int64_t channel = o / group_out * group_in + c, block = o / n;
                const int64_t plane = channel / k - shape_.first_of(block);
                CHECK(plane >= 0 && plane < shape_.depth, "a group's input channel {} lies outside of its blocks",
                      channel);
                for (int64_t t = 0; t < taps; ++t) {
                    const int64_t tile = (block * shape_.depth + plane) * taps + t;
                    packed[size_t((tile * n + o % n) * k + channel % k)] =
                        uint8_t(w[size_t((o * group_in + c) * taps + t)]);
                }
            }
        weights_ = TRY(writer_.place(packed));
        std::vector<uint8_t> rows(size_t(shape_.output_blocks * n * 4 * 2));
        std::memcpy(rows.data(), conv_.bias.data(), conv_.bias.size() * 4);
        if (!wide()) std::memcpy(&rows[rows.size() / 2], conv_.scales.data(), conv_.scales.size() * 4);
        if (wide()) rows.resize(rows.size() / 2);
        parameters_ = TRY(writer_.place(rows));
        bias_row_ = 0;
        scale_row_ = shape_.output_blocks;
        first_tile_row_ = (wide() ? 1 : 2) * shape_.output_blocks;
        return {};
    }

    Status choose_uops() {
        const Window& w = shape_.window;
        std::vector<Uop> sums, tiles;
        const int64_t plane = plan_.input_y * plan_.input_x;
        for (int64_t i = 0; i < plan_.depth; ++i)
            for (int64_t y = 0; y < w.kernel_y; ++y)
                for (int64_t x = 0; x < w.kernel_x; ++x)
                    sums.push_back({0, uint16_t(i * plane + y * w.dilation_y * plan_.input_x + x * w.dilation_x),
                                    uint16_t(int64_t(sums.size()))});
        for (int64_t b = 0; b < plan_.blocks; ++b)
            tiles.push_back({uint16_t(b * plan_.pixels()), uint16_t(b * plan_.pixels()), uint16_t(b)});
        sum_uops_ = TRY(writer_.uops(sums));
        tile_uops_ = TRY(writer_.uops(tiles));
        return {};
    }

    void find_chunks() {
        const auto places = [&](int64_t block) {
            for (int64_t image = 0; image < shape_.batch; ++image)
                for (int64_t y = 0; y < shape_.height; y += plan_.tile_y)
                    for (int64_t x = 0; x < shape_.width; x += plan_.tile_x) tile(image, y, x, block);
        };
        if (plan_.weights_stay) {
            for (int64_t b = 0; b < shape_.output_blocks; b += plan_.blocks) places(b);
            return;
        }
        for (int64_t image = 0; image < shape_.batch; ++image)
            for (int64_t y = 0; y < shape_.height; y += plan_.tile_y)
                for (int64_t x = 0; x < shape_.width; x += plan_.tile_x)
                    for (int64_t b = 0; b < shape_.output_blocks; b += plan_.blocks) tile(image, y, x, b);
    }
    void tile(int64_t image, int64_t y, int64_t x, int64_t block) {
        for (int64_t d = 0; d < shape_.depth; d += plan_.depth)
            chunks_.push_back({tiles_, image, y, x, std::min(plan_.tile_y, shape_.height - y),
                               std::min(plan_.tile_x, shape_.width - x), block,
                               std::min(plan_.blocks, shape_.output_blocks - block), d,
                               std::min(plan_.depth, shape_.depth - d), d == 0, d + plan_.depth >= shape_.depth});
        ++tiles_;
    }

    int64_t plane_of(const Chunk& c) const { return shape_.grouped() ? shape_.first_of(c.block) : c.depth; }
    int64_t planes_of(const Chunk& c) const {
        if (!shape_.grouped()) return c.depths;
        return shape_.first_of(c.block + c.blocks - 1) + shape_.depth - shape_.first_of(c.block);
    }

    Status load(int64_t s) {
        const Chunk& c = chunks_[size_t(s)];
        const Chunk* before = s ? &chunks_[size_t(s) - 1] : nullptr;
        std::vector<Instruction> loads;
        if (!before) {
            if (context_.first) load_dummy(context_, loads);
            TRY(writer_.load_uops(loads));
            const int64_t row = machine_.outputs * 4, count = first_tile_row_;
            loads.push_back({.tokens = {},
                             .op = Load{.to = Scratchpad::Acc,
                                        .address = parameters_,
                                        .row = 0,
                                        .x = uint16_t(count),
                                        .x_stride = uint32_t(row)}});
        }
        const bool same_weights = before && before->block == c.block && before->depth == c.depth;
        if (!same_weights) {
            weight_slot_ = before ? (weight_slot_ + 1) % plan_.weight_slots : 0;
            const int64_t tile = machine_.inputs * machine_.outputs, taps = shape_.taps();
            loads.push_back(
                {.tokens = {},
                 .op = Load{.to = Scratchpad::Wgt,
                            .address = uint32_t(weights_ + ((c.block * shape_.depth + c.depth) * taps) * tile),
                            .row = uint16_t(weight_row(weight_slot_)),
                            .x = uint16_t(c.depths * taps),
                            .y = uint16_t(c.blocks),
                            .x_stride = uint32_t(tile),
                            .y_stride = uint32_t(shape_.depth * taps * tile)}});
        }
        const bool same_input = before && before->image == c.image && before->y == c.y && before->x == c.x &&
                                before->depth == c.depth && (!shape_.grouped() || before->block == c.block);
        if (!same_input) {
            input_slot_ = before ? (input_slot_ + 1) % plan_.input_slots : 0;
            const Window& w = shape_.window;
            const Box box{.image = c.image,
                          .plane = plane_of(c),
                          .planes = planes_of(c),
                          .y = c.y * w.stride_y - w.top,
                          .x = c.x * w.stride_x - w.left,
                          .height = plan_.input_y,
                          .width = plan_.input_x,
                          .pitch_y = plan_.input_y,
                          .pitch_x = plan_.input_x,
                          .step_y = step_y_,
                          .step_x = step_x_};
            writer_.load(loads, Scratchpad::Inp, input_slot_ * plan_.input_rows(), from_, box, conv_.input_zero);
        }
        if (c.last && conv_.rest)
            writer_.load(loads, Scratchpad::Acc, tile_row(c) + plan_.blocks * plan_.pixels(),
                         context_.places[size_t(conv_.other)], box_of(c), 0);
        slots_.emplace_back(input_slot_, weight_slot_);
        writer_.add_loads(std::move(loads), s >= context_.contexts || (s == 0 && !context_.first));
        return {};
    }

    Box box_of(const Chunk& c) const {
        return {.image = c.image,
                .plane = c.block,
                .planes = c.blocks,
                .y = c.y,
                .x = c.x,
                .height = c.height,
                .width = c.width,
                .pitch_y = plan_.tile_y,
                .pitch_x = plan_.tile_x};
    }
    int64_t weight_row(int slot) const { return slot * plan_.blocks * plan_.depth * shape_.taps(); }
    int64_t tile_row(const Chunk& c) const {
        return first_tile_row_ + c.tile % context_.contexts * plan_.blocks * plan_.pixels() * (conv_.rest ? 2 : 1);
    }

    void compute(int64_t s) {
        const Chunk& c = chunks_[size_t(s)];
        const auto [input_slot, weight_slot] = slots_[size_t(s)];
        const Window& w = shape_.window;
        std::vector<Instruction> sums, rest;
        for (int64_t b = 0; b < c.blocks; ++b) {
            const int64_t plane = shape_.first_of(c.block + b) - shape_.first_of(c.block);
            const Gemm gemm{
                .loop = {sum_uops_, uint16_t(c.depths * shape_.taps()), uint16_t(c.height), uint16_t(c.width)},
                .acc = {uint16_t(tile_row(c) + b * plan_.pixels()), uint16_t(plan_.tile_x), 1},
                .inp = {uint16_t(input_slot * plan_.input_rows() + plane * plan_.input_y * plan_.input_x),
                        uint16_t(w.stride_y * plan_.input_x), uint16_t(w.stride_x)},
                .wgt = {uint16_t(weight_row(weight_slot) + b * c.depths * shape_.taps()), 0, 0},
                .init = c.first ? Init::FirstUop : Init::Never,
                .from_bias = c.first,
                .bias = uint16_t(c.first ? bias_row_ + c.block + b : 0),
                .unsigned_inp = from_.is.dtype == DType::u8};
            sums.push_back({.tokens = {}, .op = gemm});
            rows_ += c.depths * shape_.taps() * c.height * c.width;
        }
        if (c.last && !wide()) rest = epilogue(c);
        const auto count = int64_t(chunks_.size());
        const bool give = s + context_.contexts < count, reads_more = c.last && conv_.rest;
        Tokens begin{.pop_previous = true, .pop_next = c.first && c.tile >= context_.contexts};
        begin.push_previous = give && !reads_more;
        begin.push_next = c.last && rest.empty();
        writer_.add_compute(std::move(sums), begin);
        if (!rest.empty())
            writer_.add_compute(std::move(rest), {.push_previous = give && reads_more, .push_next = true});
        if (!c.last) return;
        std::vector<Instruction> stores;
        writer_.store(stores, tile_row(c), to_, box_of(c));
        const bool final = c.tile + 1 == tiles_;
        writer_.add_stores(std::move(stores), final ? !context_.last : c.tile + context_.contexts < tiles_);
    }

    std::vector<Instruction> epilogue(const Chunk& c) const {
        const int64_t row = tile_row(c);
        const AccTile tile{row, plan_.pixels(), plan_.tile_x, c.blocks, c.height, c.width};
        std::vector<Instruction> all{{.tokens = {},
                                      .op = Alu{.op = AluOp::Scale,
                                                .loop = loop_over(tile, tile_uops_),
                                                .dst = operand(tile, row),
                                                .a = operand(tile, row),
                                                .b = SecondOperand::Row,
                                                .row = uint16_t(scale_row_ + c.block),
                                                .addend = int16_t(conv_.zero),
                                                .clip = true,
                                                .low = int16_t(conv_.low),
                                                .high = int16_t(conv_.high)}}};
        if (!conv_.rest) return all;
        const auto sum = sum_instructions(*conv_.rest, tile, row, row + plan_.blocks * plan_.pixels(), tile_uops_);
        all.insert(all.end(), sum.begin(), sum.end());
        return all;
    }

    const LayerContext& context_;
    Writer& writer_;
    const Machine& machine_;
    const Conv& conv_;
    const Place &from_, &to_;
    ConvShape shape_{};
    ConvPlan plan_;
    int64_t step_y_ = 1, step_x_ = 1;  // of the input's lines and pixels
    uint32_t weights_ = 0, parameters_ = 0;
    int64_t bias_row_ = 0, scale_row_ = 0, first_tile_row_ = 0, tiles_ = 0, rows_ = 0;
    uint16_t sum_uops_ = 0, tile_uops_ = 0;
    int input_slot_ = 0, weight_slot_ = 0;
    std::vector<Chunk> chunks_;
    std::vector<std::pair<int, int>> slots_;  // of each chunk: its input's, its weights'
};

}  // namespace

Result<WrittenLayer> write_conv(const LayerContext& context, const Conv& conv) {
    return ConvWriter(context, conv).write();
}

}  // namespace tessera::accelerator
