// Appends each message of model.h in protobuf's encoding: fields by ascending number, as ONNX's own library writes
// them. Empty strings and zero numbers are left out where absent means the same. Only for write.cpp.
#pragma once

#include <protozero/pbf_writer.hpp>

#include <string>

#include "onnx/model.h"

namespace tessera::onnx {

class MessageWriter {
  public:
    template <typename T>
    static std::string encode(const T& message) {
        std::string out;
        MessageWriter writer(out);
        protozero::pbf_writer w(out);
        writer.write(w, message);
        return out;
    }

  private:
    using Writer = protozero::pbf_writer;
    explicit MessageWriter(std::string& out) : out_(out) {}

    void write(Writer& w, const Model& m);
    void write(Writer& w, const Function& m);
    void write(Writer& w, const Graph& m);
    void write(Writer& w, const Node& m);
    void write(Writer& w, const Attribute& m);
    void write(Writer& w, const Tensor& m);
    void write(Writer& w, const SparseTensor& m);
    void write(Writer& w, const Segment& m);
    void write(Writer& w, const Type& m);
    void write(Writer& w, const Dim& m);
    void write(Writer& w, const ValueInfo& m);
    void write(Writer& w, const TensorAnnotation& m);
    void write(Writer& w, const StringPair& m);
    void write(Writer& w, const OpsetImport& m);
    void write(Writer& w, const Sequence& m);
    void write(Writer& w, const Map& m);
    void write(Writer& w, const Optional& m);

    // protozero drops a nested message that turns out empty; here it is written, since a scalar's shape is one.
    template <typename Body>
    void inside(Writer& w, uint32_t field, Body body) {
        size_t before = out_.size();
        {
            Writer nested_writer(w, field);
            body(nested_writer);
        }
        if (out_.size() == before) w.add_message(field, "", 0);
    }
    template <typename T>
    void nested(Writer& w, uint32_t field, const T& message) {
        inside(w, field, [&](Writer& inner) { write(inner, message); });
    }
    template <typename T>
    void nested(Writer& w, uint32_t field, const Box<T>& message) {
        if (message) nested(w, field, *message);
    }
    template <typename T>
    void nested(Writer& w, uint32_t field, const std::vector<T>& messages) {
        for (const T& message : messages) nested(w, field, message);
    }

    std::string& out_;
};

}  // namespace tessera::onnx
