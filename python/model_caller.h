// Runs of a compiled model without Python's help: arrays that can be read and written where they lie go straight to the
// run, and those of types met before are not looked at again.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>
#include <vector>

#include "array_memory.h"
#include "tessera/compile.h"

class ModelCaller {
  public:
    // `make_tensor`(element type, sizes, GPU or -1): a tensor of PyTorch's, or None where it has no such elements.
    ModelCaller(nanobind::object executable, nanobind::object make_tensor);

    // Each gives None where something is not read here: then Python runs the model, or says what is wrong.
    // `inputs` and `out` as Runnable.run takes them; the outputs by name.
    nanobind::object run(nanobind::handle inputs, nanobind::handle out, uint64_t seed);
    // Inputs in order; `words` may have `out`. The output, or a tuple of them.
    nanobind::object call(nanobind::tuple inputs, nanobind::dict words);

  private:
    static constexpr size_t kMostArrays = 64;
    struct Given {
        size_t count = 0;
        nanobind::object values[kMostArrays];  // held: others may change what they were given in; null: none
    };
    // One for each name, out of a dict, a list, a tuple, or one array for one name. `all`: none may be left out.
    static bool gather(nanobind::handle from, const std::vector<nanobind::object>& names, bool all, Given& into);
    // The outputs in order; none where something is not read here.
    std::vector<nanobind::object> run_given(const Given& inputs, const Given& out, uint64_t seed);
    // Where the run takes place among the work of a GPU; false where Python has to see to it.
    bool choose_stream(const std::vector<const ArrayMemory*>& arrays, std::optional<void*>& stream) const;

    nanobind::object held_, make_tensor_;
    const tessera::Executable& executable_;
    const int gpu_;
    bool usable_ = true;    // all inputs are tensors of numbers, all outputs tensors
    bool plain_ = true;     // NumPy has the element types of all outputs, or they are strings
    bool out_is_input_ = false;
    std::vector<nanobind::object> inputs_, outputs_;  // names
    nanobind::object out_word_;
    nanobind::object object_array_;  // where some outputs are strings: makes an array of them
};

void bind_caller(nanobind::module_& m);
