#include <algorithm>

#include "graph/builder.h"
#include "graph/ops/block_product.h"
#include "rewrite/edit.h"
#include "rewrite/passes/few_bits.h"

namespace tessera {
namespace {

constexpr int64_t kBits = 4, kSmallestBlock = 16, kLargestBlock = 256;
constexpr int64_t kPanels = 4;     // of columns, that are a task
constexpr int64_t kManyRows = 64;  // known to be so many: floats that were expanded ahead are faster
constexpr int64_t kLargestByte = 127;

class Product {
  public:
    Product(const Node& node, const Machine& machine, const PassContext& context)
        : node_(node),
          machine_(machine),
          level_(node.view().integer("accuracy_level")),
          k_(node.view().integer("k")),
          n_(node.view().integer("n")),
          size_(node.view().integer("block_size")),
          blocks_((k_ + size_ - 1) / size_),
          panels_((n_ + kPanelColumns * kPanels - 1) / (kPanelColumns * kPanels) * kPanels) {
        strict_ = context.precision == Precision::Strict;
    }

    Decision applies() const {
        const OpView op = node_.view();
        if (op.integer("bits") != kBits) return no("weights of {} bits", op.integer("bits"));
        if (op.dtype(0) != DType::f32) return no("{} elements", dtype_name(op.dtype(0)));
        if (size_ % kSmallestBlock || size_ > kLargestBlock) return no("blocks of {}", size_);
        for (size_t i : {1, 2, 3})
            if (!node_.input(i)->is_constant()) return no("weights that are not constant");
        if (node_.input(1)->tensor()->elements() != n_ * blocks_ * size_ / 2) return no("weights of another size");
        if (op.rank(0) < 2) return no("one vector");
        const Shape& a = op.shape(0);
        const int64_t rows = a.slice(0, a.rank() - 1).elements().as_int().value_or(0);
        if (!by_bytes() && rows >= kManyRows) return no("{} rows are worth floats that are expanded ahead", rows);
        return yes("{}", by_bytes() ? "a is rounded to 8 bits, block by block" : "in floats");
    }

    Value* write(Builder& b) const {
        const int64_t rank = node_.view().rank(0);
        Value* x = node_.input(0);
        if (const int64_t more = blocks_ * size_ - k_) {
            std::vector<int64_t> pads(static_cast<size_t>(2 * rank), 0);
            pads.back() = more;
            x = b.op("pad", {x, b.ints(pads)});
        }
        std::vector<int64_t> shape(static_cast<size_t>(rank - 1), 0);
        shape.insert(shape.end(), {blocks_, size_});
        x = b.reshape(x, shape);
        AttrMap attrs{{"n", Attr(n_)},
                      {"panels", Attr(kPanels)},
                      {"signed_words", Attr(int64_t{machine_.has("dotprod")})},
                      {"tile", Attr(tile())}};
        Value *words = b.constant(packed_words()), *scales = b.constant(packed(*node_.input(2)->tensor(), DType::f32));
        const Tensor& given = *node_.input(3)->tensor();
        const DType type = by_bytes() ? DType::i32 : DType::f32;
        Value* zeros =
            given.rank() ? b.constant(packed(given, type)) : b.reshape(b.scalar(given.real_at(0), type), {1, 1, 1});
        if (!by_bytes()) return b.op("nibble_product", {x, words, scales, zeros}, std::move(attrs));
        // The largest of a block becomes 127.
        Value* most = b.reduce("reduce_max", b.op("abs", {x}), {-1});
        Value *top = b.scalar(kLargestByte, DType::f32), *none = b.scalar(0, DType::f32);
        Value* factor = b.op("where", {b.op("greater", {most, none}), b.div(top, most), none});
        Value* bytes = b.cast(b.op("round", {b.mul(x, factor)}), DType::i8);
        Value* sums = b.reduce("reduce_sum", b.cast(bytes, DType::i32), {-1});
        Value* x_scales = b.mul(most, b.scalar(1.0 / kLargestByte, DType::f32));
        return b.op("nibble_product_of_bytes", {bytes, words, scales, zeros, x_scales, sums}, std::move(attrs));
    }

  private:
    bool by_bytes() const {
        if (level_ != 4 || strict_ || !machine_.multiplies_bytes()) return false;
        const Tensor& zeros = *node_.input(3)->tensor();
        for (int64_t i = 0; i < zeros.elements(); ++i) {
            const double zero = zeros.real_at(i);
            if (!(zero >= 0 && zero < (1 << kBits)) || zero != double(int64_t(zero))) return false;
        }
        return true;
    }

    // Rows times panels: a quarter of the registers for the sums of a block, as many for all of them.
    int64_t tile() const {
        constexpr int64_t kFewest = 4;
        const int64_t registers = machine_.vector_registers * machine_.vector_bytes / (4 * kPanelColumns);
        int64_t tile = kFewest;
        while (tile * 2 <= registers / 4) tile *= 2;
        return tile;
    }

    Tensor packed_words() const {
        const auto bytes = node_.input(1)->tensor()->as<uint8_t>();
        const int64_t words = size_ / kNibblesOfWord;
        auto made = Tensor::zeros(DType::i32, {panels_, blocks_, words, kPanelColumns});
        CHECK(made.ok(), "no memory for weights");
        auto out = made->mutable_as<int32_t>();
        for (int64_t column = 0; column < n_; ++column)
            for (int64_t block = 0; block < blocks_; ++block)
                for (int64_t word = 0; word < words; ++word) {
                    uint32_t all = 0;
                    for (int64_t i = 0; i < kNibblesOfWord; ++i) {
                        const int64_t at = word * kNibblesOfWord + i;
                        const uint8_t byte = bytes[size_t((column * blocks_ + block) * (size_ / 2) + at / 2)];
                        all |= uint32_t((at % 2 ? byte >> 4 : byte) & 15) << nibble_shift(i);
                    }
                    const int64_t panel = column / kPanelColumns;
                    const int64_t to = (panel * blocks_ + block) * words + word;
                    out[size_t(to * kPanelColumns + column % kPanelColumns)] = int32_t(all);
                }
        return std::move(*made);
    }

    // [n, blocks] as [panel, block, column].
    Tensor packed(const Tensor& given, DType type) const {
        auto made = Tensor::zeros(type, {panels_, blocks_, kPanelColumns});
        CHECK(made.ok(), "no memory for scales");
        for (int64_t column = 0; column < n_; ++column)
            for (int64_t block = 0; block < blocks_; ++block) {
                const int64_t to = (column / kPanelColumns * blocks_ + block) * kPanelColumns + column % kPanelColumns;
                if (type == DType::i32)
                    made->set_int(to, int64_t(given.real_at(column * blocks_ + block)));
                else
                    made->set_real(to, given.real_at(column * blocks_ + block));
            }
        return std::move(*made);
    }

    const Node& node_;
    const Machine& machine_;
    const int64_t level_, k_, n_, size_, blocks_, panels_;
    bool strict_ = false;
};

}  // namespace

Result<Changed> keep_bits(Graph& graph, const Machine& machine, PassContext& context) {
    if (machine.blocks) return false;
    Changed changed = false;
    const size_t count = graph.nodes().size();
    for (size_t i = 0; i < count; ++i) {
        Node& node = *graph.nodes()[i];
        if (node.op().name != "matmul_nbits" || !any_used(node)) continue;
        const Product product(node, machine, context);
        Decision decision = product.applies();
        const bool applies = bool(decision);
        context.choices.push_back({fmt::format("four bits for {}", node.output()->name()), std::move(decision)});
        if (!applies) continue;
        const size_t before = graph.nodes().size();
        Builder b(graph, node.where());
        Value* y = product.write(b);
        TRY(b.status());
        Rewriting rewriting(context, "keep bits", {&node});
        if (!put_made_in_place(node, {y}, context)) continue;
        note_origin(graph, node, before, context);
        Rewriting::Nodes nodes;
        for (size_t j = before; j < graph.nodes().size(); ++j) nodes.push_back(graph.nodes()[j].get());
        rewriting.done(nodes);
        graph.disconnect(node);
        changed = true;
    }
    if (graph.nodes().size() == count) return changed;
    graph.erase_unused();
    graph.sort_canonically();
    return changed;
}

}  // namespace tessera
