// The messages of ONNX 1.23 as plain structs, one per message, fields named as there. They know nothing of our graph.
// Tensor payloads are views into the file they were read from, and share in owning it. Unknown fields are dropped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "onnx/box.h"
#include "onnx/bytes.h"

namespace tessera::onnx {

struct StringPair {  // StringStringEntryProto
    std::string key, value;
    bool operator==(const StringPair&) const = default;
};

struct Segment {
    int64_t begin = 0, end = 0;
    bool operator==(const Segment&) const = default;
};

// The payload stands in raw_data, in one of the typed fields, or in a file. tensor_data.h decodes it.
struct Tensor {
    enum class Location : int32_t { Default = 0, External = 1 };

    std::string name;
    int32_t data_type = 0;  // an ONNX number; dtypes.h maps it
    std::vector<int64_t> dims;
    Bytes raw_data;     // little-endian elements; sub-byte types packed
    Bytes float_data;   // little-endian float32
    Bytes double_data;  // little-endian float64
    Bytes int32_data;   // protobuf varints, as in the file
    Bytes int64_data;   // protobuf varints
    Bytes uint64_data;  // protobuf varints
    std::vector<std::string> string_data;
    Location data_location = Location::Default;
    std::vector<StringPair> external_data;  // keys location, offset, length, checksum
    std::optional<Segment> segment;
    std::string doc_string;
    std::vector<StringPair> metadata_props;
    bool operator==(const Tensor&) const = default;
};

struct SparseTensor {
    Tensor values;   // its name is the name of the whole
    Tensor indices;  // int64, [nnz] linear or [nnz, rank]
    std::vector<int64_t> dims;
    bool operator==(const SparseTensor&) const = default;
};

struct Dim {
    enum class Kind : uint8_t { Unknown, Value, Param };
    Kind kind = Kind::Unknown;
    int64_t value = 0;
    std::string param;
    std::string denotation;
    bool operator==(const Dim&) const = default;
};

struct Type {
    enum class Kind : uint8_t { None, Tensor, SparseTensor, Sequence, Map, Optional, Opaque };
    Kind kind = Kind::None;
    int32_t elem_type = 0;                  // Tensor, SparseTensor: an ONNX data type number
    std::optional<std::vector<Dim>> shape;  // Tensor, SparseTensor: absent means unknown rank
    Box<Type> elem;                         // Sequence, Optional: of what; Map: the values. May be empty in a bad file
    int32_t key_type = 0;                   // Map
    std::string opaque_domain, opaque_name;
    std::string denotation;
    bool operator==(const Type&) const = default;
};

struct ValueInfo {
    std::string name;
    Type type;
    std::string doc_string;
    std::vector<StringPair> metadata_props;
    bool operator==(const ValueInfo&) const = default;
};

struct Graph;

enum class AttributeType : int32_t {
    Undefined = 0,
    Float = 1,
    Int = 2,
    String = 3,
    Tensor = 4,
    Graph = 5,
    Floats = 6,
    Ints = 7,
    Strings = 8,
    Tensors = 9,
    Graphs = 10,
    SparseTensor = 11,
    SparseTensors = 12,
    TypeProto = 13,
    TypeProtos = 14,
};

// The field that `type` names is the value. Files from before `type` existed get it from the field they fill.
struct Attribute {
    std::string name;
    AttributeType type = AttributeType::Undefined;
    std::string ref_attr_name;  // in a function's body: the value is the caller's attribute of this name
    float f = 0;
    int64_t i = 0;
    std::string s;
    Box<Tensor> t;  // the reader sees to it that a box named by `type` is filled, unless ref_attr_name is set
    Box<Graph> g;
    Box<SparseTensor> sparse_tensor;
    Box<Type> tp;
    std::vector<float> floats;
    std::vector<int64_t> ints;
    std::vector<std::string> strings;
    std::vector<Tensor> tensors;
    std::vector<Graph> graphs;
    std::vector<SparseTensor> sparse_tensors;
    std::vector<Type> type_protos;
    std::string doc_string;
    bool operator==(const Attribute&) const = default;
};

struct Node {
    std::string op_type, domain, overload, name;
    std::vector<std::string> inputs;  // an empty name is an omitted optional input
    std::vector<std::string> outputs;
    std::vector<Attribute> attributes;
    std::string doc_string;
    std::vector<StringPair> metadata_props;
    std::vector<Bytes> device_configurations;  // encoded messages, preserved unparsed
    bool operator==(const Node&) const = default;
};

struct TensorAnnotation {
    std::string tensor_name;
    std::vector<StringPair> quant_parameter_tensor_names;
    bool operator==(const TensorAnnotation&) const = default;
};

struct Graph {
    std::string name;
    std::vector<Node> nodes;
    std::vector<ValueInfo> inputs, outputs, value_info;
    std::vector<Tensor> initializers;
    std::vector<SparseTensor> sparse_initializers;
    std::vector<TensorAnnotation> quantization_annotation;
    std::string doc_string;
    std::vector<StringPair> metadata_props;
    bool operator==(const Graph&) const = default;
};

struct OpsetImport {
    std::string domain;
    int64_t version = 0;
    bool operator==(const OpsetImport&) const = default;
};

struct Function {
    std::string domain, name, overload;
    std::vector<std::string> inputs, outputs;
    std::vector<std::string> attributes;      // without a default
    std::vector<Attribute> attribute_protos;  // with a default
    std::vector<Node> nodes;
    std::vector<OpsetImport> opset_import;
    std::vector<ValueInfo> value_info;
    std::string doc_string;
    std::vector<StringPair> metadata_props;
    bool operator==(const Function&) const = default;
};

struct Model {
    int64_t ir_version = 0;
    std::vector<OpsetImport> opset_import;
    std::string producer_name, producer_version, domain;
    int64_t model_version = 0;
    std::string doc_string;
    Graph graph;
    std::vector<Function> functions;
    std::vector<StringPair> metadata_props;
    std::vector<Bytes> training_info;  // encoded messages, preserved unparsed
    std::vector<Bytes> configuration;  // encoded messages, preserved unparsed
    std::filesystem::path path;        // where it was read from; empty when from memory. Not part of the message
    bool operator==(const Model&) const = default;
};

// The messages of onnx-data.proto: values of inputs and outputs.
enum class ValueKind : int32_t { Undefined = 0, Tensor = 1, SparseTensor = 2, Sequence = 3, Map = 4, Optional = 5 };

struct Optional;
struct Map;

struct Sequence {
    std::string name;
    ValueKind elem_type = ValueKind::Undefined;  // says which of the lists below is filled
    std::vector<Tensor> tensor_values;
    std::vector<SparseTensor> sparse_tensor_values;
    std::vector<Sequence> sequence_values;
    std::vector<Map> map_values;
    std::vector<Optional> optional_values;
    bool operator==(const Sequence&) const = default;
};

struct Map {
    std::string name;
    int32_t key_type = 0;  // an ONNX data type number
    std::vector<int64_t> keys;
    std::vector<std::string> string_keys;
    Sequence values;
    bool operator==(const Map&) const = default;
};

struct Optional {
    std::string name;
    ValueKind elem_type = ValueKind::Undefined;  // Undefined: holds nothing. Else that box may still be empty: nothing
    Box<Tensor> tensor_value;
    Box<SparseTensor> sparse_tensor_value;
    Box<Sequence> sequence_value;
    Box<Map> map_value;
    Box<Optional> optional_value;
    bool operator==(const Optional&) const = default;
};

}  // namespace tessera::onnx
