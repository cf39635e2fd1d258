// Launches of tile functions from Python without Python's help: arguments of types that were seen before are read here.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/tile.h"

class TileLauncher {
  public:
    using Values = nanobind::typed<nanobind::list, nanobind::object>;

    // By parameter: whether it is a constant of the kernel, and whether the integer 1 is no constant.
    TileLauncher(std::vector<bool> fixed, std::vector<bool> whole) : fixed_(std::move(fixed)), whole_(std::move(whole)) {}

    // Launches what was kept for arguments like these, and gives it. Nothing: there is none, or arguments that are not
    // read here.
    // `warps`: of a GPU's blocks.
    std::optional<tessera::tile::Function> launch(Values values, const std::array<int64_t, 3>& grid, int warps);
    void keep(Values values, const std::array<int64_t, 3>& grid, int warps, const tessera::tile::Function& function);

  private:
    struct Read {
        std::string key;
        std::vector<void*> memory;
        std::vector<int64_t> numbers;
        std::vector<std::array<char, 8>> elements;  // numbers that are given by their address
        std::vector<std::pair<size_t, size_t>> placed;  // which of `memory` are those of `elements`
        std::vector<std::pair<char*, char*>> spans;
        int64_t device = kProcessor;  // of the arrays; a GPU's number
    };
    static constexpr int64_t kProcessor = -1;
    bool read(Values values, const std::array<int64_t, 3>& grid, Read& into) const;
    bool read_array(PyObject* value, Read& into) const;
    bool read_tensor(PyObject* value, Read& into) const;
    static bool add_array(char element, char* begin, int64_t count, size_t size, Read& into);

    void* current_stream(int64_t device);

    std::vector<bool> fixed_, whole_;
    nanobind::object stream_of_;  // a function of PyTorch's
    std::unordered_map<std::string, tessera::tile::Function> known_;
    std::vector<nanobind::object> kept_;  // constants whose identity is part of a key
};

void bind_launcher(nanobind::module_& m);
