#include "onnx/message_writer.h"

namespace tessera::onnx {
namespace {

using Writer = protozero::pbf_writer;

void text(Writer& w, uint32_t field, const std::string& value) {
    if (!value.empty()) w.add_bytes(field, value);
}

void texts(Writer& w, uint32_t field, const std::vector<std::string>& values) {
    for (const std::string& value : values) w.add_bytes(field, value);
}

template <typename T>
void number(Writer& w, uint32_t field, T value) {
    if (value != T{}) w.add_int64(field, static_cast<int64_t>(value));
}

void numbers(Writer& w, uint32_t field, const std::vector<int64_t>& values) {
    for (int64_t value : values) w.add_int64(field, value);
}

void encoded(Writer& w, uint32_t field, const std::vector<Bytes>& messages) {
    for (const Bytes& message : messages) w.add_message(field, message.data(), message.size());
}

void payload(Writer& w, uint32_t field, const Bytes& bytes) {
    if (!bytes.empty()) w.add_bytes(field, bytes.data(), bytes.size());
}

}  // namespace

void MessageWriter::write(Writer& w, const StringPair& m) {
    w.add_bytes(1, m.key);
    w.add_bytes(2, m.value);
}

void MessageWriter::write(Writer& w, const OpsetImport& m) {
    w.add_bytes(1, m.domain);
    w.add_int64(2, m.version);
}

void MessageWriter::write(Writer& w, const Segment& m) {
    w.add_int64(1, m.begin);
    w.add_int64(2, m.end);
}

void MessageWriter::write(Writer& w, const Tensor& m) {
    numbers(w, 1, m.dims);
    w.add_int32(2, m.data_type);
    if (m.segment) nested(w, 3, *m.segment);
    payload(w, 4, m.float_data);
    payload(w, 5, m.int32_data);
    texts(w, 6, m.string_data);
    payload(w, 7, m.int64_data);
    text(w, 8, m.name);
    if (m.raw_data.present()) w.add_bytes(9, m.raw_data.data(), m.raw_data.size());
    payload(w, 10, m.double_data);
    payload(w, 11, m.uint64_data);
    text(w, 12, m.doc_string);
    nested(w, 13, m.external_data);
    number(w, 14, m.data_location);
    nested(w, 16, m.metadata_props);
}

void MessageWriter::write(Writer& w, const SparseTensor& m) {
    nested(w, 1, m.values);
    nested(w, 2, m.indices);
    numbers(w, 3, m.dims);
}

void MessageWriter::write(Writer& w, const Dim& m) {
    if (m.kind == Dim::Kind::Value) w.add_int64(1, m.value);
    if (m.kind == Dim::Kind::Param) w.add_bytes(2, m.param);
    text(w, 3, m.denotation);
}

void MessageWriter::write(Writer& w, const Type& m) {
    auto tensor = [&](Writer& inner) {
        number(inner, 1, m.elem_type);
        if (m.shape) inside(inner, 2, [&](Writer& shape) { nested(shape, 1, *m.shape); });
    };
    auto wrapper = [&](Writer& inner) { nested(inner, 1, m.elem); };
    // The denotation's number, 6, lies between the kinds'.
    bool late = m.kind == Type::Kind::Opaque || m.kind == Type::Kind::SparseTensor || m.kind == Type::Kind::Optional;
    if (late) text(w, 6, m.denotation);
    switch (m.kind) {
        case Type::Kind::None: break;
        case Type::Kind::Tensor: inside(w, 1, tensor); break;
        case Type::Kind::Sequence: inside(w, 4, wrapper); break;
        case Type::Kind::Map:
            inside(w, 5, [&](Writer& inner) {
                number(inner, 1, m.key_type);
                nested(inner, 2, m.elem);
            });
            break;
        case Type::Kind::Opaque:
            inside(w, 7, [&](Writer& inner) {
                text(inner, 1, m.opaque_domain);
                text(inner, 2, m.opaque_name);
            });
            break;
        case Type::Kind::SparseTensor: inside(w, 8, tensor); break;
        case Type::Kind::Optional: inside(w, 9, wrapper); break;
    }
    if (!late) text(w, 6, m.denotation);
}

void MessageWriter::write(Writer& w, const ValueInfo& m) {
    text(w, 1, m.name);
    if (m.type.kind != Type::Kind::None || !m.type.denotation.empty()) nested(w, 2, m.type);
    text(w, 3, m.doc_string);
    nested(w, 4, m.metadata_props);
}

void MessageWriter::write(Writer& w, const Attribute& m) {
    auto has = [&](AttributeType type) { return m.type == type && m.ref_attr_name.empty(); };
    text(w, 1, m.name);
    if (has(AttributeType::Float)) w.add_float(2, m.f);
    if (has(AttributeType::Int)) w.add_int64(3, m.i);
    if (has(AttributeType::String)) w.add_bytes(4, m.s);
    if (has(AttributeType::Tensor)) nested(w, 5, m.t);
    if (has(AttributeType::Graph)) nested(w, 6, m.g);
    if (has(AttributeType::Floats))
        for (float value : m.floats) w.add_float(7, value);
    if (has(AttributeType::Ints)) numbers(w, 8, m.ints);
    if (has(AttributeType::Strings)) texts(w, 9, m.strings);
    if (has(AttributeType::Tensors)) nested(w, 10, m.tensors);
    if (has(AttributeType::Graphs)) nested(w, 11, m.graphs);
    text(w, 13, m.doc_string);
    if (has(AttributeType::TypeProto)) nested(w, 14, m.tp);
    if (has(AttributeType::TypeProtos)) nested(w, 15, m.type_protos);
    number(w, 20, m.type);
    text(w, 21, m.ref_attr_name);
    if (has(AttributeType::SparseTensor)) nested(w, 22, m.sparse_tensor);
    if (has(AttributeType::SparseTensors)) nested(w, 23, m.sparse_tensors);
}

void MessageWriter::write(Writer& w, const Node& m) {
    texts(w, 1, m.inputs);
    texts(w, 2, m.outputs);
    text(w, 3, m.name);
    text(w, 4, m.op_type);
    nested(w, 5, m.attributes);
    text(w, 6, m.doc_string);
    text(w, 7, m.domain);
    text(w, 8, m.overload);
    nested(w, 9, m.metadata_props);
    encoded(w, 10, m.device_configurations);
}

void MessageWriter::write(Writer& w, const TensorAnnotation& m) {
    text(w, 1, m.tensor_name);
    nested(w, 2, m.quant_parameter_tensor_names);
}

void MessageWriter::write(Writer& w, const Graph& m) {
    nested(w, 1, m.nodes);
    text(w, 2, m.name);
    nested(w, 5, m.initializers);
    text(w, 10, m.doc_string);
    nested(w, 11, m.inputs);
    nested(w, 12, m.outputs);
    nested(w, 13, m.value_info);
    nested(w, 14, m.quantization_annotation);
    nested(w, 15, m.sparse_initializers);
    nested(w, 16, m.metadata_props);
}

void MessageWriter::write(Writer& w, const Function& m) {
    text(w, 1, m.name);
    texts(w, 4, m.inputs);
    texts(w, 5, m.outputs);
    texts(w, 6, m.attributes);
    nested(w, 7, m.nodes);
    text(w, 8, m.doc_string);
    nested(w, 9, m.opset_import);
    text(w, 10, m.domain);
    nested(w, 11, m.attribute_protos);
    nested(w, 12, m.value_info);
    text(w, 13, m.overload);
    nested(w, 14, m.metadata_props);
}

void MessageWriter::write(Writer& w, const Model& m) {
    number(w, 1, m.ir_version);
    text(w, 2, m.producer_name);
    text(w, 3, m.producer_version);
    text(w, 4, m.domain);
    number(w, 5, m.model_version);
    text(w, 6, m.doc_string);
    nested(w, 7, m.graph);
    nested(w, 8, m.opset_import);
    nested(w, 14, m.metadata_props);
    encoded(w, 20, m.training_info);
    nested(w, 25, m.functions);
    encoded(w, 26, m.configuration);
}

void MessageWriter::write(Writer& w, const Sequence& m) {
    text(w, 1, m.name);
    number(w, 2, m.elem_type);
    nested(w, 3, m.tensor_values);
    nested(w, 4, m.sparse_tensor_values);
    nested(w, 5, m.sequence_values);
    nested(w, 6, m.map_values);
    nested(w, 7, m.optional_values);
}

void MessageWriter::write(Writer& w, const Map& m) {
    text(w, 1, m.name);
    number(w, 2, m.key_type);
    numbers(w, 3, m.keys);
    texts(w, 4, m.string_keys);
    nested(w, 5, m.values);
}

void MessageWriter::write(Writer& w, const Optional& m) {
    text(w, 1, m.name);
    number(w, 2, m.elem_type);
    nested(w, 3, m.tensor_value);
    nested(w, 4, m.sparse_tensor_value);
    nested(w, 5, m.sequence_value);
    nested(w, 6, m.map_value);
    nested(w, 7, m.optional_value);
}

}  // namespace tessera::onnx
