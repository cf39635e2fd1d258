#include "graph/op_def.h"

#include <algorithm>

#include "base/check.h"

namespace tessera {

std::string_view attr_kind_name(AttrKind kind) {
    constexpr std::string_view kNames[] = {"int", "float", "string", "ints", "floats", "strings", "tensor", "type", "graph"};
    return kNames[static_cast<int>(kind)];
}

ParamDef::ParamDef(const char* text) {
    std::string_view s = text;
    size_t colon = s.find(": ");
    CHECK(colon != std::string_view::npos, "{}", text);
    type = s.substr(colon + 2);
    s = s.substr(0, colon);
    if (s.ends_with("...")) {
        variadic = true;
        s.remove_suffix(3);
    } else if (s.ends_with("?")) {
        optional = true;
        s.remove_suffix(1);
    }
    name = s;
}

void OnnxCall::set_input(size_t i, Value* v) {
    if (inputs.size() <= i) inputs.resize(i + 1, nullptr);
    inputs[i] = v;
}

bool OpDef::has(Trait t) const { return std::find(traits.begin(), traits.end(), t) != traits.end(); }

const AttrDef* OpDef::attr(std::string_view wanted) const {
    for (const AttrDef& a : attrs)
        if (a.name == wanted) return &a;
    return nullptr;
}

size_t OpDef::min_inputs() const {
    size_t n = 0;
    for (size_t i = 0; i < inputs.size(); ++i)
        if (!inputs[i].optional && !inputs[i].variadic) n = i + 1;
    return n;
}

}  // namespace tessera
