// Sizes for a model's symbolic dimensions that are like those it was made for: by how they are called and where they
// stand.
#include <algorithm>
#include <cctype>

#include "base/protect.h"
#include "rewrite/fix_sizes.h"
#include "tessera/model.h"

namespace tessera {
namespace {

constexpr int64_t kBatch = 1, kImage = 224, kFeatureMap = 56, kVolume = 16, kSequence = 128, kSamples = 16000;
constexpr int64_t kMostColors = 4;  // channels of an image

// Where one symbol stands.
struct Place {
    DType dtype;
    const Shape* shape;
    int64_t axis;
};

bool has_any(const std::string& name, std::initializer_list<const char*> parts) {
    return std::any_of(parts.begin(), parts.end(),
                       [&](const char* part) { return name.find(part) != std::string::npos; });
}

std::string lowered(std::string name) {
    std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name;
}

enum class Kind { Batch, Image, Sequence, Past, Total, Samples };

std::optional<Kind> kind_by_name(const std::string& given) {
    const std::string name = lowered(given);
    if (has_any(name, {"batch"})) return Kind::Batch;
    if (has_any(name, {"past", "cache"})) return has_any(name, {"total"}) ? Kind::Total : Kind::Past;
    if (has_any(name, {"total"})) return Kind::Total;
    if (has_any(name, {"height", "width"})) return Kind::Image;
    if (has_any(name, {"sample", "audio"})) return Kind::Samples;
    if (has_any(name, {"seq", "token", "length", "len", "time", "frame"})) return Kind::Sequence;
    return std::nullopt;
}

bool few_channels(const Shape& shape, int64_t axis) {
    const auto channels = shape[axis].as_int();
    return channels && *channels <= kMostColors;
}

int64_t size_by_place(const Place& place) {
    const Shape& shape = *place.shape;
    if (shape.rank() == 1) return kSequence;
    if (place.axis == 0) return kBatch;
    if (shape.rank() == 4 && is_float(place.dtype)) {
        if (few_channels(shape, 1) && place.axis > 1) return kImage;
        if (few_channels(shape, 3) && place.axis < 3) return kImage;
        return kFeatureMap;
    }
    return shape.rank() == 5 ? kVolume : kSequence;
}

std::map<std::string, std::vector<Place>> places_of_symbols(const Graph& graph) {
    std::map<std::string, std::vector<Place>> places;
    for (const auto& v : graph.inputs()) {
        if (v->tensor() || !v->type().is_tensor() || !v->type().tensor().shape.ranked()) continue;
        const TensorType& type = v->type().tensor();
        for (int64_t axis = 0; axis < type.rank(); ++axis)
            for (const std::string& name : free_symbols(type.shape[axis]))
                places[name].push_back({type.dtype, &type.shape, axis});
    }
    return places;
}

SymbolValues by_names_and_places(const Graph& graph) {
    const auto places = places_of_symbols(graph);
    bool past = false;
    for (const auto& [name, at] : places) past |= kind_by_name(name) == Kind::Past;
    const int64_t fresh = past ? 1 : kSequence;  // tokens after those of the past
    SymbolValues sizes;
    for (const auto& [name, at] : places) {
        // The first axis of one input may be any axis of another: a batch is a batch everywhere.
        const bool first =
            std::any_of(at.begin(), at.end(), [](const Place& p) { return p.axis == 0 && p.shape->rank() > 1; });
        int64_t size = first ? kBatch : size_by_place(at[0]);
        if (const auto kind = kind_by_name(name)) switch (*kind) {
                case Kind::Batch: size = kBatch; break;
                case Kind::Image: size = first || at[0].shape->rank() != 4 ? kImage : size_by_place(at[0]); break;
                case Kind::Sequence: size = fresh; break;
                case Kind::Past: size = kSequence; break;
                case Kind::Total: size = past ? kSequence + fresh : kSequence; break;
                case Kind::Samples: size = kSamples; break;
            }
        sizes[name] = size;
    }
    return sizes;
}

// Whether inference finds nothing wrong with them.
bool fits(const Graph& graph, const SymbolValues& sizes) {
    std::shared_ptr<Graph> copy = graph.clone();
    fix_sizes(*copy, sizes);
    return copy->infer_again().ok();
}

}  // namespace

std::map<std::string, int64_t> Model::suggested_sizes() const {
    auto made = protect("suggested_sizes", {.text = [&] { return to_text(); }}, [&]() -> Result<SymbolValues> {
        SymbolValues sizes = by_names_and_places(graph());
        if (!fits(graph(), sizes))
            for (auto& [name, size] : sizes) size = 1;
        return sizes;
    });
    return made.ok() ? std::move(*made) : SymbolValues();
}

}  // namespace tessera
