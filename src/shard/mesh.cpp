#include "shard/mesh.h"

#include <algorithm>
#include <charconv>
#include <set>

namespace tessera::shard {
namespace {

bool is_name(std::string_view text) {
    if (text.empty() || !(std::isalpha(static_cast<unsigned char>(text[0])))) return false;
    return std::all_of(text.begin(), text.end(),
                       [](char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; });
}

}  // namespace

std::vector<std::string> split_text(std::string_view text, char separator) {
    std::vector<std::string> parts;
    while (true) {
        const size_t end = std::min(text.find(separator), text.size());
        std::string_view part = text.substr(0, end);
        while (!part.empty() && part.front() == ' ') part.remove_prefix(1);
        while (!part.empty() && part.back() == ' ') part.remove_suffix(1);
        parts.emplace_back(part);
        if (end == text.size()) return parts;
        text.remove_prefix(end + 1);
    }
}

Result<Mesh> Mesh::parse(std::string_view text, int64_t most) {
    std::vector<MeshAxis> axes;
    std::set<std::string> names;
    int64_t ranks = 1;
    for (const std::string& part : split_text(text, ',')) {
        const size_t equals = part.find('=');
        MeshAxis axis{part.substr(0, equals), 0};
        const char *at = part.data() + equals + 1, *end = part.data() + part.size();
        if (equals == std::string::npos || !is_name(axis.name) || std::from_chars(at, end, axis.size).ptr != end ||
            axis.size < 1)
            return Error(Code::E0501, "mesh \"{}\": expected NAME=SIZE, got \"{}\"", text, part)
                .hint("a mesh is written as data=2,model=4");
        if (!names.insert(axis.name).second)
            return Error(Code::E0501, "mesh \"{}\": two axes are named {}", text, axis.name);
        if (axis.size > most || (ranks *= axis.size) > most)
            return Error(Code::E0501, "mesh \"{}\" has more than {} ranks", text, most);
        axes.push_back(std::move(axis));
    }
    return Mesh(std::move(axes));
}

int64_t Mesh::ranks() const {
    int64_t n = 1;
    for (const MeshAxis& a : axes_) n *= a.size;
    return n;
}

std::optional<size_t> Mesh::find(std::string_view name) const {
    for (size_t i = 0; i < axes_.size(); ++i)
        if (axes_[i].name == name) return i;
    return {};
}

int64_t Mesh::coordinate(int64_t rank, size_t axis) const {
    for (size_t i = axes_.size(); --i > axis;) rank /= axes_[i].size;
    return rank % axes_[axis].size;
}

std::vector<int64_t> Mesh::group(int64_t rank, const std::vector<size_t>& axes) const {
    std::vector<int64_t> ranks{0};
    int64_t stride = this->ranks();
    for (size_t a = 0; a < axes_.size(); ++a) {
        stride /= axes_[a].size;
        const bool varies = std::find(axes.begin(), axes.end(), a) != axes.end();
        std::vector<int64_t> next;
        for (int64_t r : ranks)
            for (int64_t c = varies ? 0 : coordinate(rank, a); c <= (varies ? size(a) - 1 : coordinate(rank, a)); ++c)
                next.push_back(r + c * stride);
        ranks = std::move(next);
    }
    return ranks;
}

std::string to_string(const Mesh& mesh) {
    std::string text;
    for (const MeshAxis& a : mesh.axes()) text += fmt::format("{}{}={}", text.empty() ? "" : ",", a.name, a.size);
    return text;
}

std::string axis_names(const Mesh& mesh, const std::vector<size_t>& axes) {
    std::string text;
    for (size_t a : axes) text += (text.empty() ? "" : "+") + mesh.axes()[a].name;
    return text;
}

}  // namespace tessera::shard
