#include "shard/simulate/gpt_blocks.h"

#include "graph/gradient/gradient.h"
#include "train/losses.h"
#include "train/training_mode.h"

namespace tessera::shard {
namespace {

class BlockBuilder {
  public:
    explicit BlockBuilder(const char* name) : graph_(std::make_shared<Graph>(name)), b_(*graph_) {}

    Builder& b() { return b_; }
    Value* input(const std::string& name, const Shape& shape, DType dtype = DType::bf16) {
        return graph_->add_input(name, Type(dtype, shape));
    }
    Value* weight(const std::string& name, const Shape& shape) {
        weights_.push_back(input(name, shape));
        return weights_.back();
    }
    Value* linear(Value* x, const std::string& name, int64_t from, int64_t to) {
        return b_.add(b_.matmul(x, weight(name, {from, to})), weight("b" + name, {to}));
    }
    Value* norm(Value* x, const std::string& name, int64_t features) {
        return b_.op("layer_normalization", {x, weight(name, {features}), weight("b" + name, {features})},
                     {{"axis", Attr(int64_t{-1})}});
    }

    // `back_to`: an input whose gradient is wanted before those of the weights; null: none. The seeds' gradients are
    // inputs where they are null.
    Result<TrainedBlock> finish(const char* name, Value* result, Value* back_to, Seed seed, size_t first_weight) {
        TRY(b_.status());
        TrainedBlock block{graph_, first_weight, graph_->inputs().size(), back_to != nullptr};
        if (!seed.gradient) seed.gradient = graph_->add_input("gradient", seed.of->type());
        std::vector<Value*> wanted;
        if (back_to) wanted.push_back(back_to);
        wanted.insert(wanted.end(), weights_.begin(), weights_.end());
        TRY(write_out_for_gradients(*graph_, wanted));
        const Gradients made = TRY(gradients(b_, {seed}, wanted));
        graph_->add_output(result, name);
        for (size_t i = 0; i < wanted.size(); ++i) graph_->add_output(made[i], "gradient_of_" + wanted[i]->name());
        return block;
    }

  private:
    std::shared_ptr<Graph> graph_;
    Builder b_;
    std::vector<Value*> weights_;
};

}  // namespace

Result<TrainedBlock> gpt_embedding(const GptShape& s, int64_t batch) {
    BlockBuilder block("embedding");
    Builder& b = block.b();
    Value* ids = block.input("ids", {batch, s.sequence}, DType::i64);
    Value* words = b.op("gather", {block.weight("words", {s.vocabulary, s.hidden}), ids}, {{"axis", Attr(int64_t{0})}});
    Value* x = b.add(words, block.weight("positions", {s.sequence, s.hidden}));
    return block.finish("y", x, nullptr, {x}, 1);
}

Result<TrainedBlock> gpt_layer(const GptShape& s, int64_t batch) {
    BlockBuilder block("layer");
    Builder& b = block.b();
    const int64_t h = s.hidden, size = h / s.heads, ff = s.feedforward ? s.feedforward : 4 * h;
    Value* x = block.input("x", {batch, s.sequence, h});
    Value* normed = block.norm(x, "norm1", h);
    // Query, key and value of a head lie next to each other, so that ranks have whole heads.
    Value* packed = b.reshape(block.linear(normed, "wqkv", h, 3 * h), {batch, s.sequence, s.heads, 3, size});
    auto heads = [&](int64_t part) {
        return b.transpose(b.reshape(b.slice(packed, {part}, {part + 1}, {3}), {batch, s.sequence, s.heads, size}),
                           {0, 2, 1, 3});
    };
    Value* attended = b.op("attention", {heads(0), heads(1), heads(2)}, {{"is_causal", Attr(int64_t{1})}});
    Value* joined = b.reshape(b.transpose(attended, {0, 2, 1, 3}), {batch, s.sequence, h});
    Value* y = b.add(x, block.linear(joined, "wo", h, h));
    Value* inner = b.op("gelu", {block.linear(block.norm(y, "norm2", h), "w1", h, ff)},
                        {{"approximate", Attr(std::string("tanh"))}});
    Value* z = b.add(y, block.linear(inner, "w2", ff, h));
    return block.finish("y", z, x, {z}, 1);
}

Result<TrainedBlock> gpt_head(const GptShape& s, int64_t batch) {
    BlockBuilder block("head");
    Builder& b = block.b();
    Value* x = block.input("x", {batch, s.sequence, s.hidden});
    Value* target = block.input("target", {batch, s.sequence}, DType::i64);
    Value* normed = block.norm(x, "norm", s.hidden);
    Value* logits = b.matmul(normed, block.weight("logits", {s.hidden, s.vocabulary}));
    TRY(b.status());
    Loss loss;
    loss.class_axis = -1;
    const LossNodes made = TRY(build_loss(b, loss, logits, target));
    return block.finish("loss", made.loss, x, {logits, b.cast(made.gradient, DType::bf16)}, 2);
}

}  // namespace tessera::shard
