// Launches of tile functions from Python without Python's help: arguments of types that were seen before are read here.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "tessera/tile.h"
#include "torch_tensors.h"

class TileLauncher {
  public:
    using Values = nanobind::typed<nanobind::list, nanobind::object>;
    using Grid = std::array<int64_t, 3>;
    using Defaults = nanobind::typed<nanobind::dict, nanobind::str, nanobind::object>;
    using Words = nanobind::typed<nanobind::set, nanobind::str>;

    // By parameter: its name, whether it is a constant of the kernel, and whether the integer 1 is no constant. Beside
    // parameters that are not given stands their default; `options` are words that change nothing here.
    TileLauncher(const std::vector<std::string>& names, Defaults defaults, std::vector<bool> fixed,
                 std::vector<bool> whole, Words options);

    // Launches what was kept for arguments like these, and gives it. Null: there is none, or arguments that are not
    // read here; a grid that is computed is then `grid` from here on.
    nanobind::object call(nanobind::object& grid, PyObject* args, PyObject* kwargs);
    // `warps` and `stages`: of a GPU's blocks, and of their loops.
    void keep(Values values, const Grid& grid, int warps, int stages, nanobind::object function);

  private:
    struct Shape {
        int warps = 4, stages = 3;  // where nobody says
    };
    struct Read {
        void clear();

        std::string key;
        std::vector<void*> memory;
        std::vector<int64_t> numbers;
        std::vector<std::array<char, 8>> elements;      // numbers that are given by their address
        std::vector<std::pair<size_t, size_t>> placed;  // which of `memory` are those of `elements`
        std::vector<std::pair<char*, char*>> spans;
        int64_t device = TorchTensor::kProcessor;  // of the arrays
    };
    struct Known {
        tessera::tile::Function function;
        nanobind::object object;  // the same, as Python has it
    };
    bool place(PyObject* args, PyObject* kwargs, std::vector<PyObject*>& values, Shape& shape) const;
    std::optional<Grid> size_of(nanobind::object& grid, const std::vector<PyObject*>& values) const;
    bool read(const std::vector<PyObject*>& values, const Grid& grid, Shape shape, Read& into) const;
    static bool read_array(PyObject* value, Read& into);
    static bool read_tensor(PyObject* value, Read& into);
    static bool add_array(char element, char* begin, int64_t count, size_t size, Read& into);

    std::vector<nanobind::object> names_, defaults_;  // null where there is none
    std::vector<bool> fixed_, whole_;
    nanobind::object warps_, stages_;  // the words for them
    Words options_;
    std::unordered_map<std::string, Known> known_;
    std::vector<nanobind::object> kept_;  // constants whose identity is part of a key
};

// What a kernel in Python derives from: kernel[grid] gives it over a grid.
struct Launchable {
    nanobind::object launcher;   // a TileLauncher, or null: all launches are by Python
    nanobind::object listeners;  // a list; where somebody is in it, all launches are by Python too
    nanobind::object spare;      // a LaunchOver, for its memory
};

// A kernel over a grid: called, it launches by itself or else by the kernel's `run`, which takes any arguments.
struct LaunchOver {
    nanobind::object kernel, grid;
};

void bind_launcher(nanobind::module_& m);
