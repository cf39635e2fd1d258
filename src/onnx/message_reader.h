// Decodes each message of model.h into a struct, merging with the struct's contents. Throws WireFailure; `place()` is
// then the path of the field. Only for read.cpp.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "onnx/model.h"
#include "onnx/wire.h"

namespace tessera::onnx {

class MessageReader {
  public:
    MessageReader(std::shared_ptr<const void> owner, size_t max_struct_bytes)
        : owner_(std::move(owner)), may_charge_(max_struct_bytes) {}

    void read(Model& m, std::string_view bytes);
    void read(Tensor& m, std::string_view bytes);
    void read(Sequence& m, std::string_view bytes);
    void read(Optional& m, std::string_view bytes);

    std::string place() const;                           // "graph.node[3].attribute[0].t"
    bool met_known_field() const { return met_known_; }  // whether anything looked like the message asked for
    bool met_graph() const { return met_graph_; }

  private:
    void read(Graph& m, std::string_view bytes);
    void read(Node& m, std::string_view bytes);
    void read(Attribute& m, std::string_view bytes);
    void read(SparseTensor& m, std::string_view bytes);
    void read(Segment& m, std::string_view bytes);
    void read(Type& m, std::string_view bytes);
    void read(std::vector<Dim>& m, std::string_view bytes);
    void read(Dim& m, std::string_view bytes);
    void read(ValueInfo& m, std::string_view bytes);
    void read(TensorAnnotation& m, std::string_view bytes);
    void read(StringPair& m, std::string_view bytes);
    void read(OpsetImport& m, std::string_view bytes);
    void read(Function& m, std::string_view bytes);
    void read(Map& m, std::string_view bytes);
    void read_tensor_type(Type& m, std::string_view bytes);
    void read_wrapper_type(Type& m, std::string_view bytes);
    void read_map_type(Type& m, std::string_view bytes);
    void read_opaque_type(Type& m, std::string_view bytes);

    class Payload;
    struct Crumb {
        const char* field;
        int64_t index;  // negative: not in a list
    };

    // Calls on_field(cursor) for each field; it returns false for a field it does not know.
    template <typename OnField>
    void each_field(std::string_view bytes, OnField on_field);
    // Runs body() as being inside the field; the crumb stays behind when body throws.
    template <typename Body>
    void inside(const char* field, int64_t index, Body body);

    template <typename T>
    void nested(Cursor& c, const char* field, T& into);
    template <typename T>
    void nested(Cursor& c, const char* field, Box<T>& into);
    template <typename T>
    void nested(Cursor& c, const char* field, std::vector<T>& into);

    void name(Cursor& c, const char* field, std::string& into);
    void names(Cursor& c, const char* field, std::vector<std::string>& into);
    void prose(Cursor& c, const char* field, std::string& into);  // names that are only for people
    void text(Cursor& c, const char* field, std::string& into);   // any bytes
    void texts(Cursor& c, const char* field, std::vector<std::string>& into);
    void encoded(Cursor& c, const char* field, std::vector<Bytes>& into);
    void integers(Cursor& c, const char* field, std::vector<int64_t>& into);
    template <typename T>
    void number(Cursor& c, const char* field, T& into);

    template <typename T>
    T& grow(std::vector<T>& list);
    void charge(size_t bytes, const char* at);

    std::shared_ptr<const void> owner_;
    std::vector<Crumb> crumbs_;
    size_t may_charge_;
    size_t charged_ = 0;
    int depth_ = 0;
    bool met_known_ = false;
    bool met_graph_ = false;
    const char* at_ = nullptr;  // where the message being read starts
};

}  // namespace tessera::onnx
