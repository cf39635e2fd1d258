// A program of two devices: parts of its graph run on a device with memory of its own that does all it is given late,
// when somebody waits for it.
#include <gtest/gtest.h>

#include <cstring>
#include <set>

#include "base/memory.h"
#include "graph/evaluate/evaluate.h"
#include "graph/text/parse.h"
#include "kernel/from_graph/from_graph.h"
#include "runtime/interpreted_module.h"
#include "runtime/loaded_program.h"

namespace tessera::offload_test {
namespace {

class GraphCode : public DeviceCode {
  public:
    explicit GraphCode(const Graph& body) : body(body.clone()) {}
    std::string text() const override { return body->name(); }
    const std::unique_ptr<Graph> body;
};

// Each node of the op becomes a part.
class TakesOp : public Offloading {
  public:
    explicit TakesOp(std::string op) : op_(std::move(op)) {}
    std::string device() const override { return "late"; }
    Result<Changed> take(Graph& graph, PassContext&) const override {
        Changed changed = false;
        for (size_t i = 0, count = graph.nodes().size(); i < count; ++i) {
            Node& node = *graph.nodes()[i];
            if (node.op().name != op_) continue;
            GraphPtr body = graph.nested("part");
            Value* in = body->add_input("in", node.input(0)->type());
            Node* inside = TRY(body->add({.op = &node.op(), .inputs = {in}}));
            body->add_output(inside->output(), "out");
            Node* made = TRY(graph.add(
                {.op = find_op("offload"), .inputs = {node.input(0)}, .attrs = {{"body", Attr(std::move(body))}}}));
            graph.replace_uses(node.output(), made->output());
            changed = true;
        }
        graph.erase_unused();
        graph.sort();
        return changed;
    }
    Result<std::shared_ptr<const DeviceCode>> compile(const Node& node) const override {
        const Graph& body = node.view().graph("body");
        if (!body.inputs()[0]->type().tensor().shape.sizes())
            return Error(Code::E0604, "its sizes are known only when it runs");
        return std::make_shared<const GraphCode>(body);
    }

  private:
    std::string op_;
};

class LateEvent : public Event {
    Status wait() const override { return {}; }
    Result<double> seconds_since(const Event&) const override { return 0.0; }
};

class LateDevice : public Device {
  public:
    std::string_view name() const override { return "late"; }
    bool shares_memory() const override { return false; }
    Result<std::shared_ptr<void>> allocate(int64_t bytes) override {
        auto memory = TRY(allocate_bytes(bytes));
        const auto* begin = static_cast<const char*>(memory.get());
        own.emplace(begin, begin + bytes);
        return memory;
    }
    Result<std::shared_ptr<void>> load_code(std::shared_ptr<const DeviceCode> code) override {
        return std::shared_ptr<void>(code, const_cast<DeviceCode*>(code.get()));
    }
    Result<std::unique_ptr<Stream>> make_stream(int) override { return std::make_unique<LateStream>(*this); }
    bool owns(const void* at) const {
        return std::any_of(own.begin(), own.end(), [&](const auto& m) { return m.first <= at && at < m.second; });
    }

    std::set<std::pair<const char*, const char*>> own;
    int launches = 0, copies = 0;
    bool wrong = false;  // the first element of each result is one too large

  private:
    class LateStream : public Stream {
      public:
        explicit LateStream(LateDevice& device) : device_(device) {}
        Status reserve(int64_t) override { return {}; }
        Status launch(const Launch& launch, const LaunchArguments& arguments) override {
            const auto& code = *static_cast<const GraphCode*>(launch.handle);
            const std::vector<void*> at(arguments.buffers.begin(), arguments.buffers.end());
            for (const void* p : at) EXPECT_TRUE(device_.owns(p));
            ++device_.launches;
            todo_.emplace_back([&code, at, wrong = device_.wrong] {
                const TensorType& type = code.body->inputs()[0]->type().tensor();
                const Tensor in = Tensor::view(type.dtype, *type.shape.sizes(), at[0], nullptr);
                auto out = evaluate(*code.body, {{"in", in}});
                ASSERT_TRUE(out.ok()) << out.error().to_string();
                const Tensor& made = (*out)[0].tensor();
                std::memcpy(at[1], made.data(), size_t(made.bytes()));
                if (wrong) *static_cast<float*>(at[1]) += 1;
            });
            return {};
        }
        Status copy_to_device(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes, to); }
        Status copy_to_host(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes, from); }
        Status copy_on_device(void* to, const void* from, int64_t bytes) override { return copy(to, from, bytes, to); }
        Status touch(const void*, int64_t) override { return {}; }
        Result<std::shared_ptr<const Event>> record(bool) override { return std::make_shared<const LateEvent>(); }
        Status record(const Event&) override { return {}; }
        Status wait(const Event&) override { return {}; }
        Status synchronize() override {
            for (const auto& work : todo_) work();
            todo_.clear();
            return {};
        }
        Status begin_capture() override { return Error(Code::E0701, "it does not capture"); }
        Result<std::unique_ptr<Recording>> end_capture() override { return Error(Code::E0701, "it does not capture"); }
        Status replay(const Recording&) override { return Error(Code::E0701, "it does not capture"); }
        Status update(Recording&, size_t, const Launch&, const LaunchArguments&) override {
            return Error(Code::E0701, "it does not capture");
        }

      private:
        Status copy(void* to, const void* from, int64_t bytes, const void* inside) {
            EXPECT_TRUE(device_.owns(inside));
            ++device_.copies;
            todo_.emplace_back([=] { std::memcpy(to, from, size_t(bytes)); });
            return {};
        }
        LateDevice& device_;
        std::vector<std::function<void()>> todo_;
    };
};

struct Case {
    std::string text;
    int64_t launches, copies, host_steps;
};

void expect_as_evaluated(const Case& c) {
    SCOPED_TRACE(c.text);
    auto parsed = parse(c.text);
    ASSERT_TRUE(parsed.ok()) << parsed.error().to_string();
    const std::shared_ptr<const Graph> graph = std::move(*parsed);
    LowerOptions lower;
    lower.offloading = std::make_shared<TakesOp>("tanh");
    auto program = from_graph(graph, lower);
    ASSERT_TRUE(program.ok()) << program.error().to_string();
    const auto hosts = std::count_if(program->steps.begin(), program->steps.end(),
                                     [](const Step& s) { return std::holds_alternative<HostStep>(s); });
    EXPECT_EQ(hosts, c.host_steps);
    auto module = std::make_shared<test::InterpretedModule>(program->kernels);
    LateDevice device;
    auto loaded = LoadedProgram::load(std::move(*program), module,
                                      {.threads = 1, .keep_constants = true, .others = {&device}});
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    Tensor x = *Tensor::zeros(DType::f32, {3, 4});
    for (int run = 1; run <= 3; ++run) {
        for (int64_t i = 0; i < x.elements(); ++i) x.set_real(i, double((i * run) % 7) - 3);
        auto want = evaluate(*graph, {{"x", x}});
        auto got = (*loaded)->run({{"x", x}});
        ASSERT_TRUE(want.ok() && got.ok()) << (got.ok() ? want.error() : got.error()).to_string();
        for (size_t k = 0; k < want->size(); ++k)
            for (int64_t i = 0; i < x.elements(); ++i)
                ASSERT_NEAR((*got)[k].tensor().real_at(i), (*want)[k].tensor().real_at(i), 1e-6) << run << " " << i;
        EXPECT_EQ(device.launches, c.launches * run);
        EXPECT_EQ(device.copies, c.copies * run);
    }
    const auto worst = [&]() -> double {
        auto checked = (*loaded)->check({{"x", x}});
        if (!checked.ok()) return -1;
        double most = 0;
        for (const auto& [step, difference] : *checked) most = std::max(most, difference);
        return most;
    };
    EXPECT_GE(worst(), 0);
    EXPECT_LT(worst(), 1e-6);
    device.wrong = true;
    EXPECT_EQ(worst() > 0.1, c.launches > 0);
}

TEST(Offload, BetweenKernels) {
    expect_as_evaluated({"graph g(x: f32[3,4]) {\n  a = exp(x)\n  b = tanh(a)\n  return add(b, x)\n}\n", 1, 2, 0});
}

// Neither the input nor what one step leaves for the next is copied twice.
TEST(Offload, StaysOnTheDevice) {
    expect_as_evaluated({"graph g(x: f32[3,4]) {\n  a = tanh(x)\n  b = tanh(a)\n  c = tanh(b)\n  return c\n}\n", 3, 2, 0});
    expect_as_evaluated({"graph g(x: f32[3,4]) {\n  a = tanh(x)\n  b = tanh(a)\n  return add(a, b), b\n}\n", 2, 3, 0});
}

// Where it has no code for a part, the evaluator computes it.
TEST(Offload, WithoutCode) {
    expect_as_evaluated({"graph g(x: f32[N,4]) {\n  a = exp(x)\n  b = tanh(a)\n  return add(b, x)\n}\n", 0, 0, 1});
}

// The device of a program is one that a back end knows.
TEST(Offload, UnknownDevice) {
    auto graph = parse("graph g(x: f32[3,4]) {\n  a = tanh(x)\n  return a\n}\n");
    ASSERT_TRUE(graph.ok());
    LowerOptions lower;
    lower.offloading = std::make_shared<TakesOp>("tanh");
    auto program = from_graph(std::shared_ptr<const Graph>(std::move(*graph)), lower);
    ASSERT_TRUE(program.ok());
    auto module = std::make_shared<test::InterpretedModule>(program->kernels);
    auto loaded = LoadedProgram::load(std::move(*program), module, {});
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code(), Code::E0603);
}

}  // namespace
}  // namespace tessera::offload_test
