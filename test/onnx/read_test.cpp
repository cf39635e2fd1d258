#include "onnx/read.h"

#include <gtest/gtest.h>

#include <random>

#include "base/output_file.h"
#include "onnx/sample.h"
#include "onnx/write.h"

namespace tessera::onnx::read_test {
namespace {

using protozero::pbf_writer;

template <typename T>
std::string code_of(const Result<T>& result) {
    return result.ok() ? "ok" : std::string(code_name(result.error().code()));
}

// The same model without what refers to other files, so that it can be written.
Model writable_model() {
    Model m = sample_model();
    Tensor& t = *m.graph.nodes[0].attributes[3].t;
    t.data_location = Tensor::Location::Default;
    t.external_data.clear();
    return m;
}

TEST(Read, EveryFieldComesBack) {
    Model m = writable_model();
    auto bytes = write_model(m);
    ASSERT_TRUE(bytes.ok()) << bytes.error().to_string();
    auto back = read_model(*bytes);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    EXPECT_TRUE(*back == m);
    EXPECT_EQ(*write_model(*back), *bytes);
}

TEST(Read, ValuesComeBack) {
    Tensor t = crowded_tensor();
    std::string tensor_bytes = write_tensor(t);
    EXPECT_TRUE(*read_tensor(tensor_bytes) == t);

    Sequence s;
    s.name = "s";
    s.elem_type = ValueKind::Tensor;
    s.tensor_values = {t, Tensor{}};
    Map map;
    map.name = "m";
    map.key_type = 7;
    map.keys = {1, -2};
    map.string_keys = {"a"};
    map.values = s;
    Optional some;
    some.name = "o";
    some.elem_type = ValueKind::Map;
    some.map_value = map;
    Optional other;
    other.tensor_value = t;
    other.sparse_tensor_value = SparseTensor{};
    other.sequence_value = s;
    other.optional_value = some;
    Sequence all = s;
    all.sparse_tensor_values = {SparseTensor{}};
    all.sequence_values = {s};
    all.map_values = {map};
    all.optional_values = {some, other, Optional{}};
    std::string bytes = write_sequence(all);
    auto back = read_sequence(bytes);
    ASSERT_TRUE(back.ok()) << back.error().to_string();
    EXPECT_TRUE(*back == all);
    bytes = write_optional(other);
    EXPECT_TRUE(*read_optional(bytes) == other);
    EXPECT_TRUE(*read_optional("") == Optional{});
}

TEST(Read, PayloadsAreNotCopied) {
    Model m;
    m.graph.initializers = {sample_tensor()};
    std::string bytes = *write_model(m);
    auto back = read_model(bytes);
    const char* data = back->graph.initializers[0].raw_data.data();
    EXPECT_GE(data, bytes.data());
    EXPECT_LT(data, bytes.data() + bytes.size());
}

TEST(Read, TheMappingOutlivesTheModel) {
    ScratchFolder folder;
    Model m;
    m.graph.initializers = {sample_tensor()};
    ASSERT_TRUE(write_model_file(m, folder.path / "m.onnx").ok());
    Bytes payload = read_model_file(folder.path / "m.onnx")->graph.initializers[0].raw_data;
    EXPECT_EQ(payload.view(), bytes_of<float>({1, 2, 3, 4}));
}

TEST(Read, TruncatedAnywhereIsAnErrorOrAModel) {
    std::string bytes = *write_model(writable_model());
    int errors = 0;
    for (size_t size = 0; size < bytes.size(); ++size) {
        std::string cut = bytes.substr(0, size);  // its own allocation, so that a sanitizer sees its end
        auto model = read_model(cut);
        errors += !model.ok();
        if (!model.ok() && size > 0) {
            EXPECT_TRUE(code_of(model) == "E0104" || code_of(model) == "E0103") << model.error().to_string();
        }
    }
    EXPECT_GT(errors, static_cast<int>(bytes.size()) / 2);
}

TEST(Read, ChangedBytesNeverCrash) {
    std::string bytes = *write_model(writable_model());
    std::mt19937 random(1);
    for (int round = 0; round < 20000; ++round) {
        std::string changed = bytes;
        for (int i = 0, n = 1 + round % 4; i < n; ++i) changed[random() % changed.size()] = static_cast<char>(random());
        auto model = read_model(changed);
        if (model.ok())
            for (const Tensor& t : model->graph.initializers) (void)tensor_data(t).ok();
    }
}

TEST(Read, FilesThatAreNoModels) {
    ScratchFolder folder;
    auto read_text = [&](std::string_view text) {
        EXPECT_TRUE(write_file(folder.path / "m", text).ok());
        return read_model_file(folder.path / "m");
    };
    EXPECT_EQ(code_of(read_model_file(folder.path / "none")), "E0101");
    EXPECT_EQ(code_of(read_model_file(folder.path)), "E0101");
    EXPECT_EQ(code_of(read_text("")), "E0102");
    EXPECT_EQ(code_of(read_model("")), "E0102");
    EXPECT_EQ(code_of(read_text("{\"a\": 1}")), "E0103");
    EXPECT_EQ(code_of(read_text("hello world, this is text")), "E0103");
    auto lfs = read_text("version https://git-lfs.github.com/spec/v1\n");
    EXPECT_EQ(code_of(lfs), "E0103");
    EXPECT_NE(lfs.error().hint().find("git lfs pull"), std::string::npos);
    auto tensor = read_text(write_tensor(sample_tensor()));
    EXPECT_EQ(code_of(tensor), "E0103");
    EXPECT_NE(tensor.error().where().find((folder.path / "m").string()), std::string::npos);
    EXPECT_EQ(code_of(read_tensor("hello world")), "E0110");
}

TEST(Read, NoGraphIsAnErrorWithAHint) {
    std::string bytes;
    pbf_writer(bytes).add_int64(1, 8);
    auto model = read_model(bytes);
    EXPECT_EQ(code_of(model), "E0103");
    EXPECT_FALSE(model.error().hint().empty());
    EXPECT_EQ(code_of(read_model(bytes + field(7, ""))), "ok");
}

TEST(Read, SaysWhereTheBytesEnd) {
    std::string tensor = field(9, "1234");
    tensor.pop_back();
    auto model = read_model(field(7, field(5, "") + field(5, tensor)));
    ASSERT_EQ(code_of(model), "E0104");
    EXPECT_EQ(model.error().where(), "graph.initializer[1].raw_data, byte 8");
}

TEST(Read, HostileLengthsAllocateNothing) {
    for (uint64_t size :
         {uint64_t{1} << 31, uint64_t{1} << 32, (uint64_t{1} << 32) + 4, uint64_t{1} << 40, ~uint64_t{0}})
        for (uint32_t number : {6u, 7u, 8u, 14u, 20u, 25u, 99u}) {
            std::string bytes = field(6, "doc");
            protozero::add_varint_to_buffer(&bytes, number << 3 | 2);
            protozero::add_varint_to_buffer(&bytes, size);
            bytes += "1234";
            EXPECT_EQ(code_of(read_model(bytes)), "E0104");
        }
}

TEST(Read, ManyEmptyMessagesAreRefused) {
    std::string nodes;
    while (nodes.size() < 1 << 20) nodes += std::string_view("\x0a\0", 2);
    EXPECT_EQ(code_of(read_model(field(7, nodes))), "E0108");
}

TEST(Read, DeepNestingIsRefusedAndShallowIsNot) {
    auto graphs = [](int depth) {
        std::string graph;
        for (int i = 0; i < depth; ++i) graph = field(1, field(5, field(6, graph)));  // node, attribute, g
        return read_model(field(7, graph));
    };
    EXPECT_EQ(code_of(graphs(30)), "ok");
    EXPECT_EQ(code_of(graphs(100)), "E0109");
    std::string type = field(1, "");
    for (int i = 0; i < 20000; ++i) type = field(4, field(1, type));
    EXPECT_EQ(code_of(read_model(field(7, field(11, field(2, type))))), "E0109");
    std::string sequence;
    for (int i = 0; i < 20000; ++i) sequence = field(5, sequence);
    EXPECT_EQ(code_of(read_sequence(sequence)), "E0109");
    EXPECT_EQ(code_of(read_optional(field(5, sequence))), "E0109");
}

TEST(Read, WrongWireTypesAreErrors) {
    std::string number_as_bytes = field(1, "x"), graph_as_number;
    pbf_writer(graph_as_number).add_int64(7, 3);
    EXPECT_EQ(code_of(read_model(number_as_bytes)), "E0103");
    EXPECT_EQ(code_of(read_model(graph_as_number)), "E0103");
    std::string floats = field(4, "12345");  // no whole number of floats
    EXPECT_EQ(code_of(read_tensor(floats)), "E0110");
    EXPECT_EQ(code_of(read_model(std::string("\x0b", 1))), "E0103");      // a group
    EXPECT_EQ(code_of(read_model(std::string("\x00\x00", 2))), "E0103");  // field 0
    EXPECT_EQ(code_of(read_model(std::string("\x08") + std::string(11, '\xff'))), "E0103");
}

TEST(Read, UnknownFieldsAreSkipped) {
    std::string bytes = field(99, "later");
    pbf_writer w(bytes);
    w.add_int64(100, 1);
    w.add_fixed32(101, 1);
    w.add_fixed64(102, 1);
    EXPECT_EQ(code_of(read_model(bytes + field(7, field(200, "x")))), "ok");
}

TEST(Read, TwiceGivenFieldsMerge) {
    auto model = read_model(field(7, field(2, "a") + field(1, "")) + field(7, field(2, "b") + field(1, "")));
    ASSERT_TRUE(model.ok());
    EXPECT_EQ(model->graph.name, "b");
    EXPECT_EQ(model->graph.nodes.size(), 2u);
    std::string type = field(1, field(2, "")) + field(4, "");  // tensor, then sequence: the last one holds
    model = read_model(field(7, field(11, field(2, type))));
    EXPECT_EQ(model->graph.inputs[0].type.kind, Type::Kind::Sequence);
    EXPECT_FALSE(model->graph.inputs[0].type.shape.has_value());
}

TEST(Read, PackedAndUnpackedNumbersAreTheSame) {
    std::string packed, unpacked, split;
    std::vector<int64_t> values{1, -1, 300};
    std::vector<float> floats{1, 2, 3};
    pbf_writer w(packed), u(unpacked), s(split);
    w.add_packed_int64(1, values.begin(), values.end());
    w.add_packed_int64(7, values.begin(), values.end());
    w.add_packed_float(4, floats.begin(), floats.end());
    for (int64_t v : values) u.add_int64(1, v);
    for (int64_t v : values) u.add_int64(7, v);
    for (float v : floats) u.add_float(4, v);
    s.add_packed_int64(1, values.begin(), values.end());
    s.add_packed_int64(7, values.begin(), values.begin() + 1);
    s.add_int64(7, values[1]);
    s.add_packed_int64(7, values.begin() + 2, values.end());
    s.add_packed_float(4, floats.begin(), floats.begin() + 1);
    s.add_packed_float(4, floats.begin() + 1, floats.end());
    auto a = read_tensor(packed), b = read_tensor(unpacked), c = read_tensor(split);
    EXPECT_TRUE(*a == *b);
    EXPECT_TRUE(*a == *c);
}

TEST(Read, AttributesWithoutATypeGetItFromTheirField) {
    std::string attribute = field(1, "a");
    pbf_writer(attribute).add_int64(3, 5);
    auto model = read_model(field(7, field(1, field(5, attribute))));
    EXPECT_EQ(model->graph.nodes[0].attributes[0].type, AttributeType::Int);
    // A type that names a field which is not there: the field's default.
    attribute = field(1, "a");
    pbf_writer(attribute).add_int64(20, 5);
    model = read_model(field(7, field(1, field(5, attribute))));
    EXPECT_TRUE(model->graph.nodes[0].attributes[0].g);
}

TEST(Read, NamesAreUtf8AndProseIsMended) {
    EXPECT_EQ(code_of(read_model(field(7, field(2, "\xc3\xa9")))), "ok");
    EXPECT_EQ(code_of(read_model(field(7, field(2, "\xc3")))), "E0103");
    EXPECT_EQ(code_of(read_model(field(7, field(2, "\xed\xa0\x80")))), "E0103");
    auto model = read_model(field(7, "") + field(6,
                                                 "a\xff"
                                                 "b"));
    EXPECT_EQ(model->doc_string,
              "a\xef\xbf\xbd"
              "b");
}

}  // namespace
}  // namespace tessera::onnx::read_test
