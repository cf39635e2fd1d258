// A mesh: the devices of a run as a grid with named axes (data=2,model=4). A rank is a position in it, counted with the
// last axis innermost.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tessera::shard {

struct MeshAxis {
    std::string name;
    int64_t size = 1;
    bool operator==(const MeshAxis&) const = default;
};

inline constexpr int64_t kMostRanks = 4096;
inline constexpr int64_t kMostSimulated = int64_t{1} << 24;  // of a mesh whose axes are mostly replicas

class Mesh {
  public:
    Mesh() = default;
    explicit Mesh(std::vector<MeshAxis> axes) : axes_(std::move(axes)) {}
    static Result<Mesh> parse(std::string_view text, int64_t most = kMostRanks);  // E0501

    const std::vector<MeshAxis>& axes() const { return axes_; }
    int64_t size(size_t axis) const { return axes_[axis].size; }
    int64_t ranks() const;
    std::optional<size_t> find(std::string_view name) const;
    int64_t coordinate(int64_t rank, size_t axis) const;
    // The ranks that differ from this one along these axes only, itself among them, ascending.
    std::vector<int64_t> group(int64_t rank, const std::vector<size_t>& axes) const;
    bool operator==(const Mesh&) const = default;

  private:
    std::vector<MeshAxis> axes_;
};

std::string to_string(const Mesh& mesh);                                    // data=2,model=4
std::string axis_names(const Mesh& mesh, const std::vector<size_t>& axes);  // data+model

// The parts of `text` between the separators, without blanks around them.
std::vector<std::string> split_text(std::string_view text, char separator);

}  // namespace tessera::shard
