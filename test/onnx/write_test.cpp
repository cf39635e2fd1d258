#include "onnx/write.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/output_file.h"
#include "onnx/read.h"
#include "onnx/sample.h"

namespace tessera::onnx::write_test {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
    std::ranges::sort(names);
    return names;
}

using Names = std::vector<std::string>;

Model model_with_weights() {
    Model m;
    m.ir_version = 8;
    m.graph.name = "g";
    m.graph.initializers = {sample_tensor(), sample_tensor()};
    m.graph.initializers[1].name = "small";
    m.graph.initializers[1].dims = {1};
    m.graph.initializers[1].raw_data = Bytes::own(bytes_of<float>({9}));
    Node& constant = m.graph.nodes.emplace_back();
    constant.op_type = "Constant";
    Attribute& value = constant.attributes.emplace_back();
    value.name = "value";
    value.type = AttributeType::Tensor;
    Tensor floats = sample_tensor();
    floats.float_data = floats.raw_data;
    floats.raw_data = Bytes();
    value.t = floats;
    return m;
}

void expect_same_weights(const Model& m) {
    DataSource source = DataSource::beside(m);
    std::string four = bytes_of<float>({1, 2, 3, 4});
    auto bytes = [&](const Tensor& t) {
        auto data = tensor_data(t, source);
        EXPECT_TRUE(data.ok()) << data.error().to_string();
        return data.ok() ? std::string(data->bytes) : "";
    };
    ASSERT_EQ(m.graph.initializers.size(), 2u);
    EXPECT_EQ(bytes(m.graph.initializers[0]), four);
    EXPECT_EQ(bytes(m.graph.initializers[1]), bytes_of<float>({9}));
    EXPECT_EQ(bytes(*m.graph.nodes[0].attributes[0].t), four);
}

TEST(Write, LeavesOneFile) {
    ScratchFolder folder;
    fs::path path = folder.path / "m.onnx";
    ASSERT_TRUE(write_model_file(model_with_weights(), path).ok());
    ASSERT_TRUE(write_model_file(model_with_weights(), path).ok());  // over the first
    EXPECT_EQ(names_in(folder.path), Names{"m.onnx"});
    auto back = read_model_file(path);
    ASSERT_TRUE(back.ok());
    expect_same_weights(*back);
    back->path.clear();
    EXPECT_TRUE(*back == model_with_weights());
}

TEST(Write, LeavesNothingWhenItFails) {
    ScratchFolder folder;
    Status status = write_model_file(model_with_weights(), folder.path / "none" / "m.onnx");
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(code_name(status.error().code()), "E0105");
    status = write_model_file(model_with_weights(), folder.path);
    EXPECT_EQ(code_name(status.error().code()), "E0105");
    EXPECT_EQ(code_name(write_model_file(model_with_weights(), "/dev/null").error().code()), "E0105");
    // The data file cannot be written: the model must not appear either.
    fs::create_directory(folder.path / "m.onnx.data");
    WriteOptions external{.external_from = 0, .data_name = "", .max_protobuf_bytes = kMaxProtobufBytes};
    status = write_model_file(model_with_weights(), folder.path / "m.onnx", external);
    EXPECT_EQ(code_name(status.error().code()), "E0105");
    EXPECT_EQ(names_in(folder.path), Names{"m.onnx.data"});
    {
        auto file = OutputFile::create(folder.path / "dropped");
        ASSERT_TRUE(file->write("half").ok());
    }
    EXPECT_EQ(names_in(folder.path), Names{"m.onnx.data"});
}

TEST(Write, PutsLargePayloadsBeside) {
    ScratchFolder folder;
    fs::path path = folder.path / "m.onnx";
    WriteOptions options;
    options.external_from = 16;
    ASSERT_TRUE(write_model_file(model_with_weights(), path, options).ok());
    EXPECT_EQ(names_in(folder.path), (Names{"m.onnx", "m.onnx.data"}));
    auto back = read_model_file(path);
    ASSERT_TRUE(back.ok());
    expect_same_weights(*back);
    EXPECT_EQ(back->graph.initializers[0].data_location, Tensor::Location::External);
    EXPECT_EQ(back->graph.initializers[1].data_location, Tensor::Location::Default);

    // Written elsewhere, and over itself while it is mapped, it depends on no file that was there before.
    fs::create_directory(folder.path / "other");
    ASSERT_TRUE(write_model_file(*back, folder.path / "other" / "m.onnx").ok());
    ASSERT_TRUE(write_model_file(*back, path, options).ok());
    expect_same_weights(*back);
    expect_same_weights(*read_model_file(path));
    auto inline_again = read_model_file(folder.path / "other" / "m.onnx");
    EXPECT_EQ(inline_again->graph.initializers[0].data_location, Tensor::Location::Default);
    expect_same_weights(*inline_again);
    EXPECT_EQ(names_in(folder.path / "other"), Names{"m.onnx"});
}

TEST(Write, TurnsToExternalDataWhenTheProtobufWouldBeTooLarge) {
    ScratchFolder folder;
    Model m = model_with_weights();
    m.graph.initializers[0].dims = {1 << 20};
    m.graph.initializers[0].raw_data = Bytes::own(std::string(4 << 20, 'x'));
    WriteOptions options;
    options.max_protobuf_bytes = 1 << 20;
    ASSERT_TRUE(write_model_file(m, folder.path / "m.onnx", options).ok());
    EXPECT_EQ(names_in(folder.path), (Names{"m.onnx", "m.onnx.data"}));
    EXPECT_EQ(fs::file_size(folder.path / "m.onnx.data"), uint64_t{4} << 20);
    // Too large even so.
    m.doc_string = std::string(2 << 20, 'd');
    Status status = write_model_file(m, folder.path / "n.onnx", options);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(code_name(status.error().code()), "E0214");
    EXPECT_EQ(names_in(folder.path), (Names{"m.onnx", "m.onnx.data"}));
}

TEST(Write, NewFilesHaveTheUsualRights) {
    ScratchFolder folder;
    ASSERT_TRUE(write_file(folder.path / "f", "x").ok());
    EXPECT_NE(fs::status(folder.path / "f").permissions() & fs::perms::group_read, fs::perms::none);
}

TEST(Write, EmptyNestedMessagesStay) {
    Model m;
    m.graph.inputs = {{"x", tensor_type(1, std::vector<Dim>{}), "", {}},
                      {"y", tensor_type(1, std::vector<Dim>{Dim{}}), "", {}}};
    std::string bytes = *write_model(m);
    auto back = read_model(bytes);
    ASSERT_TRUE(back.ok());
    ASSERT_TRUE(back->graph.inputs[0].type.shape.has_value());
    EXPECT_EQ(back->graph.inputs[1].type.shape->size(), 1u);
}

}  // namespace
}  // namespace tessera::onnx::write_test
