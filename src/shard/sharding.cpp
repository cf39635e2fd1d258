#include "shard/sharding.h"

#include <algorithm>

namespace tessera::shard {
namespace {

constexpr std::pair<ReduceOp, std::string_view> kCombines[] = {
    {ReduceOp::Sum, "sum"}, {ReduceOp::Prod, "prod"}, {ReduceOp::Min, "min"}, {ReduceOp::Max, "max"}};

// Axes by name that are not among `used`; adds them there.
Result<std::vector<size_t>> read_axes(std::string_view names, const Mesh& mesh, std::vector<size_t>& used) {
    std::vector<size_t> axes;
    for (const std::string& name : split_text(names, '+')) {
        const auto axis = mesh.find(name);
        if (!axis) return Error(Code::E0501, "mesh {} has no axis \"{}\"", to_string(mesh), name);
        if (std::find(used.begin(), used.end(), *axis) != used.end())
            return Error(Code::E0501, "axis {} stands there twice", name);
        used.push_back(*axis);
        axes.push_back(*axis);
    }
    return axes;
}

Result<Sharding> read_sharding(std::string_view text, const Mesh& mesh, size_t rank) {
    Sharding s;
    std::vector<size_t> used;
    const size_t semicolon = std::min(text.find(';'), text.size());
    const std::string_view dims = text.substr(0, semicolon);
    if (!dims.empty())
        for (const std::string& part : split_text(dims, ',')) {
            DimSharding& d = s.dims.emplace_back();
            d.open = part.ends_with('?') || part == "_";
            const std::string names = d.open ? part.substr(0, part.size() - 1) : part;
            if (part != "_" && part != "-" && part != "?") d.axes = TRY(read_axes(names, mesh, used));
        }
    if (s.dims.size() != rank)
        return Error(Code::E0501, "it has {} dimensions, and the tensor {}", s.dims.size(), rank);
    if (semicolon == text.size()) return s;
    std::string_view partial = text.substr(semicolon + 1);
    for (const auto& [op, name] : kCombines)
        if (partial.starts_with(name) && partial.substr(name.size()).starts_with('(') && partial.ends_with(')')) {
            s.combine = op;
            s.partial = TRY(read_axes(partial.substr(name.size() + 1, partial.size() - name.size() - 2), mesh, used));
            return s;
        }
    return Error(Code::E0501, "\"{}\" is not sum(AXES), prod, min or max", partial);
}

}  // namespace

bool Sharding::uses(size_t axis) const {
    return std::any_of(dims.begin(), dims.end(), [&](const DimSharding& d) {
        return std::find(d.axes.begin(), d.axes.end(), axis) != d.axes.end();
    });
}

Result<Sharding> parse_sharding(std::string_view text, const Mesh& mesh, size_t rank) {
    auto read = read_sharding(text, mesh, rank);
    if (read.ok()) return read;
    return Error(Code::E0501, "sharding \"{}\": {}", text, read.error().message())
        .hint("for each dimension axes joined by +, _ where propagation may decide, or - for none");
}

std::string_view combine_name(ReduceOp op) {
    for (const auto& [known, name] : kCombines)
        if (known == op) return name;
    return {};
}

std::string to_string(const Sharding& sharding, const Mesh& mesh) {
    std::string text;
    for (const DimSharding& d : sharding.dims) {
        if (&d != sharding.dims.data()) text += ",";
        if (d.axes.empty())
            text += d.open ? "_" : "-";
        else
            text += axis_names(mesh, d.axes) + (d.open ? "?" : "");
    }
    if (!sharding.partial.empty())
        text += fmt::format(";{}({})", combine_name(sharding.combine), axis_names(mesh, sharding.partial));
    return text;
}

Box intersect(const Box& a, const Box& b) {
    Box both;
    for (size_t d = 0; d < a.size(); ++d)
        both.push_back({std::max(a[d].low, b[d].low), std::min(a[d].high, b[d].high)});
    return both;
}

int64_t volume(const Box& box) {
    int64_t n = 1;
    for (const Interval& i : box) n *= i.length();
    return n;
}

bool contains(const Box& outer, const Box& inner) {
    if (volume(inner) == 0) return true;
    for (size_t d = 0; d < outer.size(); ++d)
        if (!outer[d].contains(inner[d])) return false;
    return true;
}

std::vector<int64_t> lengths(const Box& box) {
    std::vector<int64_t> n;
    for (const Interval& i : box) n.push_back(i.length());
    return n;
}

Interval block(int64_t extent, const std::vector<size_t>& axes, const Mesh& mesh, int64_t rank) {
    Interval own{0, extent};
    int64_t size = extent;
    for (size_t a : axes) {
        size = (size + mesh.size(a) - 1) / mesh.size(a);
        own.low = std::min(own.low + mesh.coordinate(rank, a) * size, own.high);
        own.high = std::min(own.low + size, own.high);
    }
    return own;
}

Placement place(const std::vector<int64_t>& sizes, const Sharding& sharding, const Mesh& mesh) {
    Placement boxes(static_cast<size_t>(mesh.ranks()));
    for (size_t r = 0; r < boxes.size(); ++r)
        for (size_t d = 0; d < sizes.size(); ++d)
            boxes[r].push_back(block(sizes[d], sharding.dims[d].axes, mesh, static_cast<int64_t>(r)));
    return boxes;
}

Placement place_whole(const std::vector<int64_t>& sizes, const Mesh& mesh) {
    Box whole;
    for (int64_t n : sizes) whole.push_back({0, n});
    return Placement(static_cast<size_t>(mesh.ranks()), whole);
}

bool contains(const Placement& outer, const Placement& inner) {
    for (size_t r = 0; r < outer.size(); ++r)
        if (!contains(outer[r], inner[r])) return false;
    return true;
}

}  // namespace tessera::shard
