#include "graph/demo.h"

#include <cmath>

#include "base/random.h"
#include "graph/builder.h"

namespace tessera {
namespace {

// Builds a residual network layer by layer. Values are named as PyTorch names the layers that make them.
class ResidualNetwork {
  public:
    ResidualNetwork(Graph& graph, uint64_t seed) : build_(graph), seed_(seed) {}

    Value* stem(Value* x) {
        x = relu(batch_norm(conv(x, "conv1", 3, 64, 7, 2), "bn1", 64, 1), "relu");
        return add("max_pool", {x}, "maxpool", window(3, 2));
    }

    // `count` bottlenecks, the first of which has the stride and makes the channels wider.
    Value* stage(Value* x, const std::string& name, int count, int64_t channels, int64_t width, int64_t stride) {
        for (int i = 0; i < count; ++i) {
            std::string block = fmt::format("{}.{}", name, i);
            x = bottleneck(x, block, i == 0 ? channels : 4 * width, width, i == 0 ? stride : 1);
        }
        return x;
    }

    Value* head(Value* x) {
        x = add("global_average_pool", {x}, "avgpool");
        x = add("flatten", {x}, "flatten", {{"axis", Attr(int64_t{1})}});
        Value* w = weight("fc.weight", {1000, 2048}, std::sqrt(1.0 / 2048));
        Value* b = weight("fc.bias", {1000}, 0.01);
        return add("gemm", {x, w, b}, "logits", {{"transB", Attr(int64_t{1})}});
    }

    Status status() const { return build_.status(); }

  private:
    Value* bottleneck(Value* x, const std::string& name, int64_t channels, int64_t width, int64_t stride) {
        int64_t wide = 4 * width;
        Value* y = conv(x, name + ".conv1", channels, width, 1, 1);
        y = relu(batch_norm(y, name + ".bn1", width, 1), name + ".relu1");
        y = conv(y, name + ".conv2", width, width, 3, stride);
        y = relu(batch_norm(y, name + ".bn2", width, 1), name + ".relu2");
        y = conv(y, name + ".conv3", width, wide, 1, 1);
        y = batch_norm(y, name + ".bn3", wide, 0.25);  // branches add up: small ones keep the sum in range
        if (channels != wide || stride != 1) {
            x = conv(x, name + ".downsample.0", channels, wide, 1, stride);
            x = batch_norm(x, name + ".downsample.1", wide, 1);
        }
        return relu(add("add", {y, x}, name + ".add"), name + ".relu3");
    }

    // Padded so that stride 1 keeps the size.
    static AttrMap window(int64_t kernel, int64_t stride) {
        return {{"kernel_shape", Attr(std::vector<int64_t>(2, kernel))},
                {"strides", Attr(std::vector<int64_t>(2, stride))},
                {"pads", Attr(std::vector<int64_t>(4, kernel / 2))}};
    }

    Value* conv(Value* x, const std::string& name, int64_t in, int64_t out, int64_t kernel, int64_t stride) {
        double spread = std::sqrt(2.0 / static_cast<double>(in * kernel * kernel));  // He: keeps the variance
        Value* w = weight(name + ".weight", {out, in, kernel, kernel}, spread);
        return add("conv", {x, w}, name, window(kernel, stride));
    }

    Value* batch_norm(Value* x, const std::string& name, int64_t channels, double scale) {
        return add(
            "batch_normalization",
            {x, weight(name + ".weight", {channels}, 0.1 * scale, scale), weight(name + ".bias", {channels}, 0.1),
             weight(name + ".running_mean", {channels}, 0.1), weight(name + ".running_var", {channels}, 0.1, 1)},
            name);
    }

    Value* relu(Value* x, const std::string& name) { return add("relu", {x}, name); }

    Value* weight(const std::string& name, Sizes sizes, double spread, double mean = 0) {
        if (build_.failed()) return nullptr;
        auto t = Tensor::zeros(DType::f32, std::move(sizes));
        if (!t.ok()) {
            build_.fail(std::move(t).error());
            return nullptr;
        }
        RandomStream random(seed_, name);
        auto out = t->mutable_as<float>();
        double step = static_cast<float>(spread * RandomStream::kBellStep);  // a float: its products below are exact
        for (size_t i = 0; i < out.size(); ++i)
            out[i] = static_cast<float>(mean + step * static_cast<double>(random.bell(i)));
        return build_.graph().constant(std::move(*t), name);
    }

    Value* add(std::string_view op, std::vector<Value*> inputs, const std::string& name, AttrMap attrs = {}) {
        if (build_.failed()) return nullptr;
        const OpDef* def = find_op(op);
        CHECK(def, "there is no op {}", op);
        auto node = build_.graph().add(
            {.op = def, .inputs = std::move(inputs), .attrs = std::move(attrs), .name = name, .output_names = {name}});
        if (node.ok()) return (*node)->output();
        build_.fail(std::move(node).error());
        return nullptr;
    }

    Builder build_;
    uint64_t seed_;
};

}  // namespace

Result<std::unique_ptr<Graph>> resnet50(uint64_t seed) {
    auto graph = std::make_unique<Graph>("resnet50");
    graph->info().source = "resnet50";
    graph->info().producer_name = "tessera";
    Value* x = graph->add_input("image", Type(DType::f32, {symbol("N"), 3, 224, 224}));
    ResidualNetwork net(*graph, seed);
    x = net.stem(x);
    x = net.stage(x, "layer1", 3, 64, 64, 1);
    x = net.stage(x, "layer2", 4, 256, 128, 2);
    x = net.stage(x, "layer3", 6, 512, 256, 2);
    x = net.stage(x, "layer4", 3, 1024, 512, 2);
    x = net.head(x);
    TRY(net.status());
    graph->add_output(x, "logits");
    return graph;
}

}  // namespace tessera
