// Structs with every field filled, and bytes made by hand, for the tests of this folder.
#pragma once

#include <protozero/pbf_writer.hpp>

#include <filesystem>
#include <string>

#include "onnx/model.h"
#include "onnx/tensor_data.h"

namespace tessera::onnx {

// Encodes one field number with bytes under it.
inline std::string field(uint32_t number, const std::string& bytes) {
    std::string out;
    protozero::pbf_writer(out).add_bytes(number, bytes);
    return out;
}

template <typename T>
std::string bytes_of(const std::vector<T>& values) {
    return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

inline Tensor sample_tensor() {
    Tensor t = make_tensor("w", DType::f32, {2, 2}, Bytes::own(bytes_of<float>({1, 2, 3, 4})));
    t.doc_string = "weights";
    t.metadata_props = {{"k", "v"}};
    return t;
}

// A tensor with every payload field filled, which no reader of values would take but every reader of bytes must.
inline Tensor crowded_tensor() {
    Tensor t = sample_tensor();
    t.float_data = Bytes::own(bytes_of<float>({1.5f}));
    t.double_data = Bytes::own(bytes_of<double>({2.5}));
    t.int32_data = encode_varints({-1, 300});
    t.int64_data = encode_varints({INT64_MIN, INT64_MAX});
    t.uint64_data = encode_varints({7});
    t.string_data = {"", "a", std::string("\xff\0b", 3)};
    t.data_location = Tensor::Location::External;
    t.external_data = {{"location", "w.bin"}, {"offset", "0"}};
    t.segment = Segment{1, 2};
    return t;
}

inline Type tensor_type(int32_t elem_type, std::optional<std::vector<Dim>> shape) {
    Type type;
    type.kind = Type::Kind::Tensor;
    type.elem_type = elem_type;
    type.shape = std::move(shape);
    return type;
}

inline Dim dim(int64_t value) { return Dim{Dim::Kind::Value, value, "", ""}; }
inline Dim dim(std::string param) { return Dim{Dim::Kind::Param, 0, std::move(param), ""}; }

inline std::vector<Type> sample_types() {
    Type scalar = tensor_type(1, std::vector<Dim>{});
    Type ranked = tensor_type(10, std::vector<Dim>{dim(0), dim("batch"), Dim{}, dim(7)});
    ranked.shape->back().denotation = "DATA_CHANNEL";
    ranked.denotation = "IMAGE";
    Type unranked = tensor_type(7, std::nullopt);
    Type sparse = ranked;
    sparse.kind = Type::Kind::SparseTensor;
    Type sequence, map, optional, opaque, none;
    sequence.kind = Type::Kind::Sequence;
    sequence.elem = ranked;
    map.kind = Type::Kind::Map;
    map.key_type = 8;
    map.elem = sequence;
    map.denotation = "LOOKUP";
    optional.kind = Type::Kind::Optional;
    optional.elem = map;
    optional.denotation = "MAYBE";
    opaque.kind = Type::Kind::Opaque;
    opaque.opaque_domain = "d";
    opaque.opaque_name = "n";
    return {scalar, ranked, unranked, sparse, sequence, map, optional, opaque, none};
}

inline Graph small_graph(std::string name) {
    Graph g;
    g.name = std::move(name);
    Node add;
    add.op_type = "Add";
    add.inputs = {"x", ""};
    add.outputs = {"y"};
    g.nodes = {add};
    return g;
}

inline std::vector<Attribute> sample_attributes() {
    std::vector<Attribute> list;
    auto add = [&](AttributeType type) -> Attribute& {
        Attribute& a = list.emplace_back();
        a.name = "a" + std::to_string(static_cast<int>(type));
        a.type = type;
        return a;
    };
    SparseTensor sparse;
    sparse.values = sample_tensor();
    sparse.indices = make_tensor("", DType::i64, {4}, Bytes::own(bytes_of<int64_t>({0, 1, 2, 3})));
    sparse.dims = {10};
    add(AttributeType::Float).f = 0.f;
    add(AttributeType::Int).i = 0;
    add(AttributeType::String).s = std::string("\xff\0", 2);
    add(AttributeType::Tensor).t = crowded_tensor();
    add(AttributeType::Graph).g = small_graph("inner");
    add(AttributeType::Floats).floats = {1, -2.5f};
    add(AttributeType::Ints).ints = {0, -1, INT64_MAX};
    add(AttributeType::Strings).strings = {"", "b"};
    add(AttributeType::Tensors).tensors = {sample_tensor(), Tensor{}};
    add(AttributeType::Graphs).graphs = {small_graph("one"), small_graph("two")};
    add(AttributeType::SparseTensor).sparse_tensor = sparse;
    add(AttributeType::SparseTensors).sparse_tensors = {sparse};
    add(AttributeType::TypeProto).tp = sample_types()[1];
    add(AttributeType::TypeProtos).type_protos = sample_types();
    add(AttributeType::Ints).ref_attr_name = "outer";
    list.back().doc_string = "doc";
    return list;
}

// Every field of every message that a model can reach.
inline Model sample_model() {
    Model m;
    m.ir_version = 13;
    m.opset_import = {{"", 28}, {"local", 1}};
    m.producer_name = "tessera";
    m.producer_version = "0.1";
    m.domain = "d";
    m.model_version = 3;
    m.doc_string = "doc";
    m.metadata_props = {{"author", ""}};
    m.training_info = {Bytes::own(field(2, ""))};
    m.configuration = {Bytes::own(field(1, "c"))};
    Graph& g = m.graph;
    g = small_graph("main");
    g.doc_string = "doc";
    g.metadata_props = {{"k", "v"}};
    g.quantization_annotation = {{"x", {{"SCALE_TENSOR", "s"}}}};
    g.initializers = {sample_tensor()};
    for (const Type& type : sample_types()) g.inputs.push_back({"x", type, "doc", {{"k", "v"}}});
    g.outputs = {{"y", tensor_type(1, std::nullopt), "", {}}};
    g.value_info = g.outputs;
    Node& node = g.nodes[0];
    node.name = "n";
    node.domain = "local";
    node.overload = "o";
    node.doc_string = "doc";
    node.attributes = sample_attributes();
    node.metadata_props = {{"k", "v"}};
    node.device_configurations = {Bytes::own(field(1, "c"))};
    SparseTensor sparse = *node.attributes[10].sparse_tensor;
    g.sparse_initializers = {sparse};
    Function f;
    f.domain = "local";
    f.name = "f";
    f.overload = "o";
    f.inputs = {"a", "b"};
    f.outputs = {"c"};
    f.attributes = {"alpha"};
    f.attribute_protos = {sample_attributes()[1]};
    f.nodes = small_graph("").nodes;
    f.opset_import = {{"", 28}};
    f.value_info = g.outputs;
    f.doc_string = "doc";
    f.metadata_props = {{"k", "v"}};
    m.functions = {f};
    return m;
}

// A folder of its own that goes away with it.
class ScratchFolder {
  public:
    ScratchFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "tessera_onnx_XXXXXX").string();
        path = ::mkdtemp(name.data());
    }
    ~ScratchFolder() { std::filesystem::remove_all(path); }
    ScratchFolder(const ScratchFolder&) = delete;
    ScratchFolder& operator=(const ScratchFolder&) = delete;
    std::filesystem::path path;
};

}  // namespace tessera::onnx
