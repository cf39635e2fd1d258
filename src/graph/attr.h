// A node's attributes: constant, named, typed.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "graph/tensor.h"
#include "graph/type.h"

namespace tessera {

class Graph;
using GraphPtr = std::shared_ptr<Graph>;  // a nested graph; belongs to one node, which may share it with its copies

using Attr = std::variant<int64_t, float, std::string, std::vector<int64_t>, std::vector<float>,
                          std::vector<std::string>, Tensor, Type, GraphPtr>;
enum class AttrKind { Int, Float, String, Ints, Floats, Strings, Tensor, Type, Graph };  // in the order of Attr
inline AttrKind attr_kind(const Attr& a) { return static_cast<AttrKind>(a.index()); }
std::string_view attr_kind_name(AttrKind kind);  // "int", "floats", ...

using AttrMap = std::map<std::string, Attr>;

// How an op declares an attribute: int_attr("axis", 0), ints_attr("perm"), string_attr("mode").required().
struct AttrDef {
    std::string name;
    AttrKind kind;
    std::optional<Attr> fallback;
    bool is_required = false, is_hint = false;
    std::vector<std::string> choices = {};  // of a string: what it may be; none: anything
    AttrDef required() && {
        is_required = true;
        return std::move(*this);
    }
    AttrDef one_of(std::vector<std::string> texts) && {
        choices = std::move(texts);
        return std::move(*this);
    }
    // It says how to compute, not what. ONNX has no such attributes: there it is the node's metadata.
    AttrDef hint() && {
        is_hint = true;
        return std::move(*this);
    }
};
inline AttrDef int_attr(std::string name) { return {std::move(name), AttrKind::Int, {}}; }
inline AttrDef int_attr(std::string name, int64_t v) { return {std::move(name), AttrKind::Int, Attr(v)}; }
inline AttrDef float_attr(std::string name) { return {std::move(name), AttrKind::Float, {}}; }
inline AttrDef float_attr(std::string name, float v) { return {std::move(name), AttrKind::Float, Attr(v)}; }
inline AttrDef string_attr(std::string name) { return {std::move(name), AttrKind::String, {}}; }
inline AttrDef string_attr(std::string name, std::string v) { return {std::move(name), AttrKind::String, Attr(v)}; }
inline AttrDef auto_pad_attr() {
    return string_attr("auto_pad", "NOTSET").one_of({"NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"});
}
inline AttrDef ints_attr(std::string name) { return {std::move(name), AttrKind::Ints, {}}; }
inline AttrDef ints_attr(std::string name, std::vector<int64_t> v) { return {std::move(name), AttrKind::Ints, Attr(v)}; }
inline AttrDef floats_attr(std::string name) { return {std::move(name), AttrKind::Floats, {}}; }
inline AttrDef strings_attr(std::string name) { return {std::move(name), AttrKind::Strings, {}}; }
inline AttrDef strings_attr(std::string name, std::vector<std::string> v) {
    return {std::move(name), AttrKind::Strings, Attr(std::move(v))};
}
inline AttrDef tensor_attr(std::string name) { return {std::move(name), AttrKind::Tensor, {}}; }
inline AttrDef type_attr(std::string name) { return {std::move(name), AttrKind::Type, {}}; }
inline AttrDef graph_attr(std::string name) { return {std::move(name), AttrKind::Graph, {}}; }

}  // namespace tessera
