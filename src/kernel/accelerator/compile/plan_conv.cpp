#include "kernel/accelerator/compile/plan_conv.h"

#include <algorithm>
#include <set>

namespace tessera::accelerator {
namespace {

constexpr int64_t kMostLines = 255, kInstructionCycles = 12;  // rows of padding in one load; what an instruction costs

// Of so many, the sizes of parts that differ in how many parts there are.
std::vector<int64_t> parts_of(int64_t n) {
    std::set<int64_t> sizes;
    for (int64_t count = 1; count <= n; count = count < 8 ? count + 1 : count + count / 4)
        sizes.insert(parts(n, count));
    sizes.insert(1);
    return {sizes.rbegin(), sizes.rend()};
}

class Planner {
  public:
    Planner(const ConvShape& shape, const Machine& machine, int contexts)
        : shape_(shape), machine_(machine), contexts_(contexts) {}

    std::optional<ConvPlan> best() {
        const bool grouped = shape_.grouped();
        std::optional<ConvPlan> found;
        for (int64_t depth : grouped ? std::vector<int64_t>{shape_.depth} : parts_of(shape_.depth))
            for (int64_t blocks : parts_of(shape_.output_blocks))
                for (int64_t y : parts_of(shape_.height))
                    for (int64_t x : parts_of(shape_.width))
                        for (bool stay : {true, false}) {
                            ConvPlan p{.tile_y = y,
                                       .tile_x = x,
                                       .blocks = blocks,
                                       .depth = depth,
                                       .weights_stay = stay,
                                       .contexts = contexts_};
                            if (!place(p)) continue;
                            p.cycles = estimate(p);
                            if (!found || p.cycles < found->cycles) found = p;
                        }
        return found;
    }

  private:
    bool place(ConvPlan& p) const {
        const Window& w = shape_.window;
        p.input_y = (p.tile_y - 1) * w.stride_y + (w.kernel_y - 1) * w.dilation_y + 1;
        p.input_x = (p.tile_x - 1) * w.stride_x + (w.kernel_x - 1) * w.dilation_x + 1;
        // Tiles at the edges are filled up to the size of the others.
        const int64_t short_y = parts(shape_.height, p.tile_y) * p.tile_y - shape_.height;
        const int64_t short_x = parts(shape_.width, p.tile_x) * p.tile_x - shape_.width;
        if (short_y * w.stride_y + w.kernel_y * w.dilation_y > kMostLines) return false;
        if (short_x * w.stride_x + w.kernel_x * w.dilation_x > kMostLines) return false;
        p.input_planes = p.depth;
        if (shape_.grouped())
            for (int64_t o = 0; o < shape_.output_blocks; o += p.blocks) {
                const int64_t last = std::min(o + p.blocks, shape_.output_blocks) - 1;
                p.input_planes = std::max(p.input_planes, shape_.first_of(last) + shape_.depth - shape_.first_of(o));
            }
        const bool one_chunk = p.depth == shape_.depth, all_blocks = p.blocks >= shape_.output_blocks;
        const bool one_place = p.tile_y >= shape_.height && p.tile_x >= shape_.width && shape_.batch == 1;
        const bool same_input = one_place && one_chunk && (!shape_.grouped() || all_blocks);
        p.input_slots = same_input ? 1 : contexts_;
        p.weight_slots = all_blocks && one_chunk ? 1 : contexts_;
        const int64_t tiles = one_place && all_blocks ? 1 : contexts_;
        const int64_t acc = 2 * shape_.output_blocks + 1 + tiles * p.blocks * p.pixels() * (shape_.rest ? 2 : 1);
        return p.input_rows() * p.input_slots <= machine_.inp_rows &&
               p.blocks * p.depth * shape_.taps() * p.weight_slots <= machine_.wgt_tiles && acc <= machine_.acc_rows &&
               p.depth * shape_.taps() + p.blocks + 1 <= machine_.uops / 2;
    }

    double estimate(const ConvPlan& p) const {
        const double ys = double(parts(shape_.height, p.tile_y)), xs = double(parts(shape_.width, p.tile_x));
        const double places = double(shape_.batch) * ys * xs;
        const double outer = double(parts(shape_.output_blocks, p.blocks));
        const double chunks = double(parts(shape_.depth, p.depth));
        const double tiles = places * outer, steps = tiles * chunks;
        const double rows = double(shape_.batch * shape_.height * shape_.width * shape_.output_blocks);
        const double beat = machine_.bytes_per_cycle;
        const auto beats = [&](double bytes) { return std::max(1.0, bytes / beat); };
        const double compute = rows * double(shape_.depth * shape_.taps() + shape_.alu_rows) +
                               double(kInstructionCycles) * (steps * double(p.blocks) + tiles * shape_.alu_rows);
        // What is loaded: each input tile once for each tile of outputs that needs it anew.
        const double input_tile = double(p.input_rows()) * beats(machine_.inputs);
        const double weight_tile =
            double(p.blocks * p.depth * shape_.taps()) * beats(machine_.inputs * machine_.outputs);
        double input_loads = steps, weight_loads = steps;
        if (chunks == 1) {
            if (p.weights_stay) weight_loads = outer;
            if (!p.weights_stay && !shape_.grouped()) input_loads = places;
            if (p.input_slots == 1) input_loads = 1;
            if (p.weight_slots == 1) weight_loads = 1;
        }
        const double rest = shape_.rest ? rows * beats(machine_.outputs) : 0;
        const double instructions = steps * (2 + double(p.blocks)) + tiles * (shape_.alu_rows + 1.0);
        const double load = input_loads * input_tile + weight_loads * weight_tile + rest +
                            instructions * beats(kInstructionBytes) + steps * 4;
        const double store = rows * beats(shape_.output_bytes);
        const double first = input_tile + weight_tile + 3.0 * machine_.latency;
        const double last = double(p.blocks * p.pixels()) * (shape_.alu_rows + beats(shape_.output_bytes));
        if (contexts_ == 1) return compute + load + store + steps * 2.0 * machine_.latency;
        return std::max({compute, load, store}) + first + last;
    }

    const ConvShape& shape_;
    const Machine& machine_;
    const int contexts_;
};

}  // namespace

std::string ConvPlan::to_string() const {
    return fmt::format("tile {}x{}, {} output blocks, {} input blocks, {} stay, {} contexts", tile_y, tile_x, blocks,
                       depth, weights_stay ? "weights" : "inputs", contexts);
}

Result<ConvPlan> plan_conv(const ConvShape& shape, const Machine& machine, int contexts) {
    if (auto found = Planner(shape, machine, contexts).best()) return std::move(*found);
    return Error(Code::E0601, "no tile of a convolution with {} blocks of input and {} of output channels fits {}",
                 shape.input_blocks, shape.output_blocks, machine.name)
        .hint("larger scratchpads in the machine's description take it");
}

}  // namespace tessera::accelerator
