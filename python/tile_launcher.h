// Launches of tile functions from Python without Python's help: arguments of types that were seen before are read here.
#pragma once

#include <nanobind/nanobind.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
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
    using ReadConstants =
        nanobind::typed<nanobind::list,
                        nanobind::typed<nanobind::tuple, nanobind::object, nanobind::str, nanobind::object>>;

    // By parameter: its name, whether it is a constant of the kernel, and whether the integer 1 is no constant. Beside
    // parameters that are not given stands their default; `options` are words that change nothing here.
    TileLauncher(const std::vector<std::string>& names, Defaults defaults, const std::vector<bool>& fixed,
                 const std::vector<bool>& whole, Words options);

    // Launches what was kept for arguments like these, and gives it. Null: there is none, or arguments that are not
    // read here; a grid that is computed is then `grid` from here on.
    nanobind::object call(nanobind::object& grid, PyObject* args, PyObject* kwargs);
    // `warps` and `stages`: of a GPU's blocks, and of their loops. `read`: constants of modules that the function is
    // made of, as (the module's dictionary, name, object); where another has taken a place, it is not launched.
    void keep(Values values, const Grid& grid, int warps, int stages, nanobind::object function, ReadConstants read);

  private:
    static constexpr size_t kMostArguments = 128, kMostKeyBytes = 2048;  // of a launch: others are left to Python

    struct Shape {
        int warps = 4, stages = 3;  // where nobody says
    };
    struct Parameter {
        nanobind::object name, fallback;  // the latter null where there is none
        bool fixed = false, whole = false;
    };
    // One object for each parameter.
    using Given = std::array<PyObject*, kMostArguments>;
    struct Span {
        char *begin, *end;
    };
    // What the arguments of a launch are. It lies on the stack, and is not cleared.
    struct Read {
        // What code depends on of them; nothing where it is too much.
        std::optional<std::string_view> key() const {
            return key_bytes > kMostKeyBytes ? std::nullopt : std::optional(std::string_view(bytes.data(), key_bytes));
        }
        void note(char c) { note(&c, 1); }
        void note(const void* from, size_t count);
        template <typename T>
        void note_value(const T& value) {
            note(&value, sizeof(value));
        }
        void add_number(int64_t number) { numbers[number_count++] = number; }
        void add_element(char kind, const void* value, size_t count);
        bool add_array(char element, char* begin, int64_t count, size_t size);

        size_t key_bytes = 0, memory_count = 0, number_count = 0, array_count = 0;
        int64_t device = TorchTensor::kProcessor;  // of the arrays
        std::array<char, kMostKeyBytes> bytes;
        std::array<void*, kMostArguments> memory;
        std::array<int64_t, kMostArguments> numbers;
        std::array<int64_t, kMostArguments> elements;  // numbers that are given by their address
        std::array<Span, kMostArguments> spans;
    };
    struct ReadConstant {
        bool is_as_before() const;

        nanobind::object place, name, value;  // a module's names, or a cell of a function around
    };
    struct Known {
        bool is_as_before() const;

        nanobind::object object;                            // the function, as Python has it
        const tessera::tile::Function* function = nullptr;  // the same
        std::vector<ReadConstant> read;
    };
    struct Hash : std::hash<std::string_view> {
        using is_transparent = void;
    };
    using KnownByKey = std::unordered_map<std::string, Known, Hash, std::equal_to<>>;

    bool place(PyObject* args, PyObject* kwargs, Given& values, Shape& shape) const;
    std::optional<Grid> size_of(nanobind::object& grid, const Given& values) const;
    bool read(const Given& values, const Grid& grid, Shape shape, Read& into) const;
    static bool read_number(const Parameter& parameter, PyObject* value, Read& into);
    static bool read_array(PyObject* value, Read& into);
    static bool read_tensor(PyObject* value, Read& into);
    const Known* find(std::string_view key);

    std::vector<Parameter> parameters_;
    nanobind::object warps_, stages_;  // the words for them
    Words options_;
    KnownByKey known_;
    const KnownByKey::value_type* last_ = nullptr;  // found: most launches are like the one before
    std::vector<nanobind::object> kept_;            // constants whose identity is part of a key
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
