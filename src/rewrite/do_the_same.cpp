#include <algorithm>
#include <bit>

#include "base/hash.h"
#include "rewrite/edit.h"

namespace tessera {
namespace {

constexpr int64_t kSamples = 64;

}  // namespace

uint64_t fingerprint(const Tensor& t) {
    uint64_t h = mix(uint64_t(t.dtype()), uint64_t(t.rank()));
    for (int64_t n : t.sizes()) h = mix(h, uint64_t(n));
    if (t.dtype() == DType::string) return t.content_hash();
    auto* bytes = static_cast<const unsigned char*>(t.data());
    int64_t step = std::max<int64_t>(1, t.bytes() / kSamples);
    for (int64_t i = 0; i < t.bytes(); i += step) h = mix(h, bytes[i]);
    return h;
}

namespace {

uint64_t hash_of(const Attr& a) {
    switch (attr_kind(a)) {
        case AttrKind::Int: return uint64_t(std::get<int64_t>(a));
        case AttrKind::Float: return std::hash<float>{}(std::get<float>(a));
        case AttrKind::String: return std::hash<std::string>{}(std::get<std::string>(a));
        case AttrKind::Ints: {
            uint64_t h = 0;
            for (int64_t n : std::get<std::vector<int64_t>>(a)) h = mix(h, uint64_t(n));
            return h;
        }
        case AttrKind::Tensor: return fingerprint(std::get<Tensor>(a));
        default: return 0;
    }
}

// The inputs, those of a commutative op in one order of two.
std::vector<Value*> ordered_inputs(const Node& node) {
    std::vector<Value*> inputs = node.inputs();
    if (node.is(Trait::Commutative) && inputs.size() == 2) std::sort(inputs.begin(), inputs.end());
    return inputs;
}

}  // namespace

uint64_t hash_of(const Node& node) {
    uint64_t h = reinterpret_cast<uintptr_t>(&node.op());
    for (const Value* v : ordered_inputs(node)) h = mix(h, reinterpret_cast<uintptr_t>(v));
    for (const auto& [name, attr] : node.attrs()) h = mix(mix(h, std::hash<std::string>{}(name)), hash_of(attr));
    return mix(h, node.output_count());
}

namespace {

// Floats by their bits: 0.0 is not -0.0 here.
bool same(const Attr& a, const Attr& b) {
    if (auto* x = std::get_if<float>(&a), *y = std::get_if<float>(&b); x && y)
        return std::bit_cast<uint32_t>(*x) == std::bit_cast<uint32_t>(*y);
    if (auto* x = std::get_if<std::vector<float>>(&a), *y = std::get_if<std::vector<float>>(&b); x && y)
        return std::ranges::equal(*x, *y, {}, std::bit_cast<uint32_t, float>, std::bit_cast<uint32_t, float>);
    return a == b;
}

}  // namespace

bool do_the_same(const Node& a, const Node& b) {
    for (size_t i = 0; i < a.output_count() && i < b.output_count(); ++i)
        if (a.output_given(i) != b.output_given(i)) return false;
    return &a.op() == &b.op() && a.output_count() == b.output_count() && ordered_inputs(a) == ordered_inputs(b) &&
           std::ranges::equal(a.attrs(), b.attrs(), [](const auto& x, const auto& y) {
               return x.first == y.first && same(x.second, y.second);
           });
}

}  // namespace tessera
