#include "onnx/message_reader.h"

#include <fmt/format.h>

#include "onnx/read.h"
#include "onnx/utf8.h"

namespace tessera::onnx {

std::string MessageReader::place() const {
    std::string text;
    for (const Crumb& crumb : crumbs_) {
        if (!text.empty()) text += '.';
        text += crumb.field;
        if (crumb.index >= 0) text += fmt::format("[{}]", crumb.index);
    }
    return text;
}

template <typename OnField>
void MessageReader::each_field(std::string_view bytes, OnField on_field) {
    if (++depth_ > kMaxDepth)
        throw WireFailure{WireFailure::Kind::TooDeep, bytes.data(),
                          fmt::format("messages are nested more than {} deep", kMaxDepth)};
    at_ = bytes.data();
    Cursor c(bytes);
    while (c.next()) {
        if (!on_field(c)) c.skip();
    }
    --depth_;
}

template <typename Body>
void MessageReader::inside(const char* field, int64_t index, Body body) {
    if (crumbs_.empty()) met_known_ = true;
    crumbs_.push_back({field, index});
    body();
    crumbs_.pop_back();
}

template <typename T>
void MessageReader::nested(Cursor& c, const char* field, T& into) {
    inside(field, -1, [&] { read(into, c.bytes()); });
}

template <typename T>
void MessageReader::nested(Cursor& c, const char* field, Box<T>& into) {
    inside(field, -1, [&] {
        if (!into) charge(sizeof(T), at_);
        read(into.ensure(), c.bytes());
    });
}

template <typename T>
void MessageReader::nested(Cursor& c, const char* field, std::vector<T>& into) {
    inside(field, static_cast<int64_t>(into.size()), [&] {
        std::string_view bytes = c.bytes();
        read(grow(into), bytes);
    });
}

void MessageReader::charge(size_t bytes, const char* at) {
    charged_ += bytes;
    if (charged_ > may_charge_)
        throw WireFailure{WireFailure::Kind::TooLarge, at,
                          fmt::format("more than {} bytes of messages beside the tensors' payloads", may_charge_)};
}

template <typename T>
T& MessageReader::grow(std::vector<T>& list) {
    charge(sizeof(T), at_);
    return list.emplace_back();
}

void MessageReader::name(Cursor& c, const char* field, std::string& into) {
    inside(field, -1, [&] {
        std::string_view bytes = c.bytes();
        if (!is_utf8(bytes)) throw WireFailure{WireFailure::Kind::Malformed, bytes.data(), "text that is not UTF-8"};
        into = bytes;
    });
}

void MessageReader::names(Cursor& c, const char* field, std::vector<std::string>& into) { name(c, field, grow(into)); }

void MessageReader::prose(Cursor& c, const char* field, std::string& into) {
    inside(field, -1, [&] { into = to_utf8(c.bytes()); });
}

void MessageReader::text(Cursor& c, const char* field, std::string& into) {
    inside(field, -1, [&] { into = c.bytes(); });
}

void MessageReader::texts(Cursor& c, const char* field, std::vector<std::string>& into) { text(c, field, grow(into)); }

void MessageReader::encoded(Cursor& c, const char* field, std::vector<Bytes>& into) {
    inside(field, static_cast<int64_t>(into.size()), [&] { grow(into) = Bytes(c.bytes(), owner_); });
}

void MessageReader::integers(Cursor& c, const char* field, std::vector<int64_t>& into) {
    inside(field, -1, [&] {
        std::string_view bytes = c.packed(Wire::Varint);
        for (const char *at = bytes.data(), *end = at + bytes.size(); at != end;) {
            charge(sizeof(int64_t), at);
            into.push_back(static_cast<int64_t>(read_varint(&at, end)));
        }
    });
}

template <typename T>
void MessageReader::number(Cursor& c, const char* field, T& into) {
    inside(field, -1, [&] { into = static_cast<T>(static_cast<int64_t>(c.varint())); });
}

// Collects the encoded elements of a repeated number. One packed run, the usual case, stays a view.
class MessageReader::Payload {
  public:
    Payload(MessageReader& reader, Bytes& into) : reader_(reader), into_(into) {}
    void add(Cursor& c, const char* field, Wire element) {
        reader_.inside(field, -1, [&] {
            std::string_view run = c.packed(element);
            if (!joined_.empty()) {
                joined_ += run;
            } else if (into_.empty()) {
                into_ = Bytes(run, reader_.owner_);
            } else {
                joined_ = into_.view();
                joined_ += run;
            }
        });
    }
    void finish() {
        if (!joined_.empty()) into_ = Bytes::own(std::move(joined_));
    }

  private:
    MessageReader& reader_;
    Bytes& into_;
    std::string joined_;
};

void MessageReader::read(StringPair& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: prose(c, "key", m.key); return true;
            case 2: prose(c, "value", m.value); return true;
        }
        return false;
    });
}

void MessageReader::read(OpsetImport& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: name(c, "domain", m.domain); return true;
            case 2: number(c, "version", m.version); return true;
        }
        return false;
    });
}

void MessageReader::read(Segment& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: number(c, "begin", m.begin); return true;
            case 2: number(c, "end", m.end); return true;
        }
        return false;
    });
}

void MessageReader::read(Tensor& m, std::string_view bytes) {
    Payload floats(*this, m.float_data), doubles(*this, m.double_data), int32s(*this, m.int32_data),
        int64s(*this, m.int64_data), uint64s(*this, m.uint64_data);
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: integers(c, "dims", m.dims); return true;
            case 2: number(c, "data_type", m.data_type); return true;
            case 3: {
                if (!m.segment) m.segment.emplace();
                nested(c, "segment", *m.segment);
                return true;
            }
            case 4: floats.add(c, "float_data", Wire::Fixed32); return true;
            case 5: int32s.add(c, "int32_data", Wire::Varint); return true;
            case 6: texts(c, "string_data", m.string_data); return true;
            case 7: int64s.add(c, "int64_data", Wire::Varint); return true;
            case 8: name(c, "name", m.name); return true;
            case 9: inside("raw_data", -1, [&] { m.raw_data = Bytes(c.bytes(), owner_); }); return true;
            case 10: doubles.add(c, "double_data", Wire::Fixed64); return true;
            case 11: uint64s.add(c, "uint64_data", Wire::Varint); return true;
            case 12: prose(c, "doc_string", m.doc_string); return true;
            case 13: nested(c, "external_data", m.external_data); return true;
            case 14: number(c, "data_location", m.data_location); return true;
            case 16: nested(c, "metadata_props", m.metadata_props); return true;
        }
        return false;
    });
    for (Payload* payload : {&floats, &doubles, &int32s, &int64s, &uint64s}) payload->finish();
}

void MessageReader::read(SparseTensor& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: nested(c, "values", m.values); return true;
            case 2: nested(c, "indices", m.indices); return true;
            case 3: integers(c, "dims", m.dims); return true;
        }
        return false;
    });
}

void MessageReader::read(Dim& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1:
                m.param.clear();
                m.kind = Dim::Kind::Value;
                number(c, "dim_value", m.value);
                return true;
            case 2:
                m.value = 0;
                m.kind = Dim::Kind::Param;
                name(c, "dim_param", m.param);
                return true;
            case 3: prose(c, "denotation", m.denotation); return true;
        }
        return false;
    });
}

void MessageReader::read(std::vector<Dim>& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        if (c.field() != 1) return false;
        nested(c, "dim", m);
        return true;
    });
}

void MessageReader::read_tensor_type(Type& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: number(c, "elem_type", m.elem_type); return true;
            case 2:
                inside("shape", -1, [&] {
                    if (!m.shape) m.shape.emplace();
                    read(*m.shape, c.bytes());
                });
                return true;
        }
        return false;
    });
}

void MessageReader::read_wrapper_type(Type& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        if (c.field() != 1) return false;
        nested(c, "elem_type", m.elem);
        return true;
    });
}

void MessageReader::read_map_type(Type& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: number(c, "key_type", m.key_type); return true;
            case 2: nested(c, "value_type", m.elem); return true;
        }
        return false;
    });
}

void MessageReader::read_opaque_type(Type& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: name(c, "domain", m.opaque_domain); return true;
            case 2: name(c, "name", m.opaque_name); return true;
        }
        return false;
    });
}

void MessageReader::read(Type& m, std::string_view bytes) {
    // Of the kinds only one holds: the last one met. Met again, it merges.
    auto choose = [&](Cursor& c, const char* field, Type::Kind kind,
                      void (MessageReader::*read_kind)(Type&, std::string_view)) {
        if (m.kind != kind) {
            std::string denotation = std::move(m.denotation);
            m = Type{};
            m.kind = kind;
            m.denotation = std::move(denotation);
        }
        inside(field, -1, [&] { (this->*read_kind)(m, c.bytes()); });
        return true;
    };
    each_field(bytes, [&](Cursor& c) {
        using Self = MessageReader;
        switch (c.field()) {
            case 1: return choose(c, "tensor_type", Type::Kind::Tensor, &Self::read_tensor_type);
            case 4: return choose(c, "sequence_type", Type::Kind::Sequence, &Self::read_wrapper_type);
            case 5: return choose(c, "map_type", Type::Kind::Map, &Self::read_map_type);
            case 7: return choose(c, "opaque_type", Type::Kind::Opaque, &Self::read_opaque_type);
            case 8: return choose(c, "sparse_tensor_type", Type::Kind::SparseTensor, &Self::read_tensor_type);
            case 9: return choose(c, "optional_type", Type::Kind::Optional, &Self::read_wrapper_type);
            case 6: prose(c, "denotation", m.denotation); return true;
        }
        return false;
    });
}

void MessageReader::read(ValueInfo& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: name(c, "name", m.name); return true;
            case 2: nested(c, "type", m.type); return true;
            case 3: prose(c, "doc_string", m.doc_string); return true;
            case 4: nested(c, "metadata_props", m.metadata_props); return true;
        }
        return false;
    });
}

void MessageReader::read(Attribute& m, std::string_view bytes) {
    AttributeType filled = AttributeType::Undefined;
    each_field(bytes, [&](Cursor& c) {
        auto fills = [&](AttributeType type) {
            filled = type;
            return true;
        };
        using enum AttributeType;
        switch (c.field()) {
            case 1: name(c, "name", m.name); return true;
            case 2: inside("f", -1, [&] { m.f = c.float32(); }); return fills(Float);
            case 3: number(c, "i", m.i); return fills(Int);
            case 4: text(c, "s", m.s); return fills(String);
            case 5: nested(c, "t", m.t); return fills(Tensor);
            case 6: nested(c, "g", m.g); return fills(Graph);
            case 7:
                inside("floats", -1, [&] {
                    std::string_view run = c.packed(Wire::Fixed32);
                    charge(run.size(), run.data());
                    size_t old = m.floats.size();
                    m.floats.resize(old + run.size() / sizeof(float));
                    if (!run.empty()) std::memcpy(m.floats.data() + old, run.data(), run.size());
                });
                return fills(Floats);
            case 8: integers(c, "ints", m.ints); return fills(Ints);
            case 9: texts(c, "strings", m.strings); return fills(Strings);
            case 10: nested(c, "tensors", m.tensors); return fills(Tensors);
            case 11: nested(c, "graphs", m.graphs); return fills(Graphs);
            case 13: prose(c, "doc_string", m.doc_string); return true;
            case 14: nested(c, "tp", m.tp); return fills(TypeProto);
            case 15: nested(c, "type_protos", m.type_protos); return fills(TypeProtos);
            case 20: number(c, "type", m.type); return true;
            case 21: name(c, "ref_attr_name", m.ref_attr_name); return true;
            case 22: nested(c, "sparse_tensor", m.sparse_tensor); return fills(SparseTensor);
            case 23: nested(c, "sparse_tensors", m.sparse_tensors); return fills(SparseTensors);
        }
        return false;
    });
    if (m.type == AttributeType::Undefined) m.type = filled;
    if (!m.ref_attr_name.empty()) return;
    switch (m.type) {
        case AttributeType::Tensor: m.t.ensure(); break;
        case AttributeType::Graph: m.g.ensure(); break;
        case AttributeType::SparseTensor: m.sparse_tensor.ensure(); break;
        case AttributeType::TypeProto: m.tp.ensure(); break;
        default: break;
    }
}

void MessageReader::read(Node& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: names(c, "input", m.inputs); return true;
            case 2: names(c, "output", m.outputs); return true;
            case 3: name(c, "name", m.name); return true;
            case 4: name(c, "op_type", m.op_type); return true;
            case 5: nested(c, "attribute", m.attributes); return true;
            case 6: prose(c, "doc_string", m.doc_string); return true;
            case 7: name(c, "domain", m.domain); return true;
            case 8: name(c, "overload", m.overload); return true;
            case 9: nested(c, "metadata_props", m.metadata_props); return true;
            case 10: encoded(c, "device_configurations", m.device_configurations); return true;
        }
        return false;
    });
}

void MessageReader::read(TensorAnnotation& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: name(c, "tensor_name", m.tensor_name); return true;
            case 2: nested(c, "quant_parameter_tensor_names", m.quant_parameter_tensor_names); return true;
        }
        return false;
    });
}

void MessageReader::read(Graph& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: nested(c, "node", m.nodes); return true;
            case 2: name(c, "name", m.name); return true;
            case 5: nested(c, "initializer", m.initializers); return true;
            case 10: prose(c, "doc_string", m.doc_string); return true;
            case 11: nested(c, "input", m.inputs); return true;
            case 12: nested(c, "output", m.outputs); return true;
            case 13: nested(c, "value_info", m.value_info); return true;
            case 14: nested(c, "quantization_annotation", m.quantization_annotation); return true;
            case 15: nested(c, "sparse_initializer", m.sparse_initializers); return true;
            case 16: nested(c, "metadata_props", m.metadata_props); return true;
        }
        return false;
    });
}

void MessageReader::read(Function& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: name(c, "name", m.name); return true;
            case 4: names(c, "input", m.inputs); return true;
            case 5: names(c, "output", m.outputs); return true;
            case 6: names(c, "attribute", m.attributes); return true;
            case 7: nested(c, "node", m.nodes); return true;
            case 8: prose(c, "doc_string", m.doc_string); return true;
            case 9: nested(c, "opset_import", m.opset_import); return true;
            case 10: name(c, "domain", m.domain); return true;
            case 11: nested(c, "attribute_proto", m.attribute_protos); return true;
            case 12: nested(c, "value_info", m.value_info); return true;
            case 13: name(c, "overload", m.overload); return true;
            case 14: nested(c, "metadata_props", m.metadata_props); return true;
        }
        return false;
    });
}

void MessageReader::read(Model& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: number(c, "ir_version", m.ir_version); return true;
            case 2: name(c, "producer_name", m.producer_name); return true;
            case 3: name(c, "producer_version", m.producer_version); return true;
            case 4: name(c, "domain", m.domain); return true;
            case 5: number(c, "model_version", m.model_version); return true;
            case 6: prose(c, "doc_string", m.doc_string); return true;
            case 7: nested(c, "graph", m.graph); return met_graph_ = true;
            case 8: nested(c, "opset_import", m.opset_import); return true;
            case 14: nested(c, "metadata_props", m.metadata_props); return true;
            case 20: encoded(c, "training_info", m.training_info); return true;
            case 25: nested(c, "functions", m.functions); return true;
            case 26: encoded(c, "configuration", m.configuration); return true;
        }
        return false;
    });
}

void MessageReader::read(Sequence& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: name(c, "name", m.name); return true;
            case 2: number(c, "elem_type", m.elem_type); return true;
            case 3: nested(c, "tensor_values", m.tensor_values); return true;
            case 4: nested(c, "sparse_tensor_values", m.sparse_tensor_values); return true;
            case 5: nested(c, "sequence_values", m.sequence_values); return true;
            case 6: nested(c, "map_values", m.map_values); return true;
            case 7: nested(c, "optional_values", m.optional_values); return true;
        }
        return false;
    });
}

void MessageReader::read(Map& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: name(c, "name", m.name); return true;
            case 2: number(c, "key_type", m.key_type); return true;
            case 3: integers(c, "keys", m.keys); return true;
            case 4: texts(c, "string_keys", m.string_keys); return true;
            case 5: nested(c, "values", m.values); return true;
        }
        return false;
    });
}

void MessageReader::read(Optional& m, std::string_view bytes) {
    each_field(bytes, [&](Cursor& c) {
        switch (c.field()) {
            case 1: name(c, "name", m.name); return true;
            case 2: number(c, "elem_type", m.elem_type); return true;
            case 3: nested(c, "tensor_value", m.tensor_value); return true;
            case 4: nested(c, "sparse_tensor_value", m.sparse_tensor_value); return true;
            case 5: nested(c, "sequence_value", m.sequence_value); return true;
            case 6: nested(c, "map_value", m.map_value); return true;
            case 7: nested(c, "optional_value", m.optional_value); return true;
        }
        return false;
    });
}

}  // namespace tessera::onnx
