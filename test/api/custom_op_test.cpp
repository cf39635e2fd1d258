// Operators that a program adds: imported, run by the evaluator and by compiled code, written back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>

#include "tessera/custom_op.h"
#include "tessera/tessera.h"

namespace {

using tessera::Code;
using tessera::CustomAttrs;
using tessera::CustomOp;
using tessera::CustomType;
using tessera::DType;
using tessera::Error;
using tessera::Model;
using tessera::Result;
using tessera::Tensor;
using testing::HasSubstr;

// Each row twice, times a factor.
CustomOp repeat_rows(const std::string& name) {
    CustomOp op{.domain = "com.example", .name = name, .attrs = {{"factor", 1.0f}}};
    op.types = [](const std::vector<CustomType>& in, const CustomAttrs&) -> Result<std::vector<CustomType>> {
        if (!in[0].dims || in[0].dims->size() != 2) return Error(Code::E0210, "it takes a matrix");
        return std::vector<CustomType>{{in[0].dtype, {{"2*(" + (*in[0].dims)[0] + ")", (*in[0].dims)[1]}}}};
    };
    op.run = [](const std::vector<Tensor>& in, const CustomAttrs& attrs) -> Result<std::vector<Tensor>> {
        const Tensor& x = in[0];
        const float factor = std::get<float>(attrs.at("factor"));
        if (factor < 0) throw std::runtime_error("a negative factor");
        auto y = Tensor::zeros(DType::f32, {2 * x.size(0), x.size(1)});
        if (!y.ok()) return y.error();
        for (int64_t i = 0; i < y->elements(); ++i) {
            const int64_t row = i / x.size(1) / 2;
            y->set_real(i, factor * x.real_at(row * x.size(1) + i % x.size(1)));
        }
        return std::vector<Tensor>{*y};
    };
    return op;
}

std::string using_op(const std::string& name, const std::string& factor) {
    return "graph g(x: f32[N,3]) {\n  a = add(x, x)\n  b = com_example_" + name + "(a, factor=" + factor +
           ")\n  y = relu(b)\n  return y\n}";
}

TEST(CustomOp, RunsInModels) {
    ASSERT_TRUE(tessera::register_op(repeat_rows("Repeat")).ok());
    auto text = Model::parse(using_op("repeat", "0.5"));
    ASSERT_TRUE(text.ok()) << text.error().to_string();
    EXPECT_EQ(text->outputs()[0].type, "f32[2*N,3]");
    auto onnx = text->to_onnx();
    ASSERT_TRUE(onnx.ok()) << onnx.error().to_string();
    auto model = Model::from_onnx(*onnx);
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    const tessera::NamedData inputs{{"x", Tensor::of<float>({2, 3}, {1, -2, 3, 4, 5, -6})}};
    const Tensor expected = Tensor::of<float>({4, 3}, {1, 0, 3, 1, 0, 3, 4, 5, 0, 4, 5, 0});
    EXPECT_EQ((*model->run(inputs))[0].tensor(), expected);
    auto made = tessera::compile(*model);
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    EXPECT_EQ(made->report().host_steps, 1u);
    std::vector<std::thread> threads;
    for (int k = 0; k < 4; ++k)
        threads.emplace_back([&] {
            for (int i = 0; i < 20; ++i) {
                auto y = made->run(inputs);
                ASSERT_TRUE(y.ok()) << y.error().to_string();
                EXPECT_EQ((*y)[0].tensor(), expected);
            }
        });
    for (std::thread& t : threads) t.join();
    auto optimized = tessera::optimize(*model);
    ASSERT_TRUE(optimized.ok()) << optimized.error().to_string();
    EXPECT_EQ((*optimized->model.run(inputs))[0].tensor(), expected);
}

TEST(CustomOp, ErrorsAreValues) {
    ASSERT_TRUE(tessera::register_op(repeat_rows("Checked")).ok());
    EXPECT_EQ(tessera::register_op(repeat_rows("Checked")).error().code(), Code::E0204);
    CustomOp nameless = repeat_rows("");
    EXPECT_EQ(tessera::register_op(nameless).error().code(), Code::E0501);
    CustomOp empty{.domain = "com.example", .name = "Empty"};
    EXPECT_EQ(tessera::register_op(empty).error().code(), Code::E0501);

    auto model = Model::parse("graph g(x: f32[N]) {\n  y = com_example_checked(x)\n  return y\n}");
    ASSERT_FALSE(model.ok());
    EXPECT_THAT(model.error().to_string(), HasSubstr("it takes a matrix"));
    EXPECT_FALSE(Model::parse(using_op("checked", "\"text\"")).ok());
    auto throwing = Model::parse(using_op("checked", "-1.0"));
    ASSERT_TRUE(throwing.ok()) << throwing.error().to_string();
    auto made = tessera::compile(*throwing);
    ASSERT_TRUE(made.ok());
    auto y = made->run({{"x", Tensor::of<float>({1, 3}, {1, 2, 3})}});
    ASSERT_FALSE(y.ok());
    EXPECT_EQ(y.error().code(), Code::E0407);
    EXPECT_THAT(y.error().to_string(), HasSubstr("a negative factor"));
}

}  // namespace
