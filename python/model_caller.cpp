#include "model_caller.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "errors.h"
#include "run_watch.h"
#include "tensor_arrays.h"
#include "torch_tensors.h"

namespace nb = nanobind;
using namespace tessera;

namespace {

using Whose = ArrayMemory::Whose;

// Asked by a run for memory to leave its outputs in.
struct Places {
    Result<std::optional<Tensor>> operator()(size_t output, DType dtype, const Sizes& sizes) {
        if (given[output]) {
            const Tensor& t = given[output]->tensor;
            if (t.dtype() == dtype && t.sizes() == sizes) return std::optional(t);
            return left_to_python();  // which says what is wrong
        }
        if (!torch) return std::optional<Tensor>();
        nb::gil_scoped_acquire gil;
        try {
            nb::object tensor = make_tensor(std::string(dtype_name(dtype)), sizes, gpu);
            const auto memory = read_array_memory(tensor.ptr(), gpu, true);
            if (!memory) return left_to_python();
            made[output] = std::move(tensor);
            return std::optional(memory->tensor);
        } catch (nb::python_error& e) {
            failed.emplace(std::move(e));
            return left_to_python();
        }
    }
    Error left_to_python() {
        left = true;
        return Error(Code::E0410, "there is no memory for an output");
    }

    std::vector<const ArrayMemory*> given;  // by output; null: nobody did
    bool torch;                             // others become tensors of PyTorch's
    int gpu;                                // that they lie on
    const nb::object& make_tensor;
    std::vector<nb::object> made = std::vector<nb::object>(given.size());
    bool left = false;
    std::optional<nb::python_error> failed = {};
};

}  // namespace

ModelCaller::ModelCaller(nb::object executable, nb::object make_tensor)
    : held_(std::move(executable)),
      make_tensor_(std::move(make_tensor)),
      executable_(nb::cast<const Executable&>(held_)),
      gpu_(executable_.gpu()),
      out_word_(interned("out")) {
    for (const Port& p : executable_.inputs()) {
        inputs_.push_back(interned(p.name.c_str()));
        usable_ &= p.dtype && *p.dtype != DType::string;
        out_is_input_ |= p.name == "out";
    }
    for (const Port& p : executable_.outputs()) {
        outputs_.push_back(interned(p.name.c_str()));
        const bool strings = p.dtype == DType::string;
        usable_ &= p.dtype.has_value();
        if (strings) object_array_ = nb::module_::import_("tessera._arrays").attr("object_array");
        plain_ &= strings || (p.dtype && has_numpy(*p.dtype));
    }
    usable_ &= inputs_.size() <= kMostArrays && outputs_.size() <= kMostArrays && !outputs_.empty();
}

bool ModelCaller::gather(nb::handle from, const std::vector<nb::object>& names, bool all, Given& into) {
    into.count = names.size();
    if (PyDict_CheckExact(from.ptr())) {
        Py_ssize_t found = 0;
        for (size_t i = 0; i < names.size(); ++i) {
            into.values[i] = nb::borrow(PyDict_GetItem(from.ptr(), names[i].ptr()));
            found += into.values[i].is_valid();
        }
        return found == PyDict_Size(from.ptr()) && (!all || found == static_cast<Py_ssize_t>(names.size()));
    }
    const auto count = static_cast<Py_ssize_t>(names.size());
    if (PyTuple_CheckExact(from.ptr())) {
        if (PyTuple_Size(from.ptr()) != count) return false;
        for (Py_ssize_t i = 0; i < count; ++i) into.values[i] = nb::borrow(PyTuple_GetItem(from.ptr(), i));
        return true;
    }
    if (PyList_CheckExact(from.ptr())) {
        if (PyList_Size(from.ptr()) != count) return false;
        for (Py_ssize_t i = 0; i < count; ++i) into.values[i] = nb::borrow(PyList_GetItem(from.ptr(), i));
        return true;
    }
    into.values[0] = nb::borrow(from);
    return count == 1;
}

bool ModelCaller::choose_stream(const std::vector<const ArrayMemory*>& arrays, std::optional<void*>& stream) const {
    bool any = false, torch = false;
    std::optional<uintptr_t> others;
    for (const ArrayMemory* a : arrays) {
        if (a->tensor.gpu() == kNoGpu) continue;
        if (a->tensor.gpu() != gpu_) return false;
        any = true;
        torch |= a->whose == Whose::Torch;
        if (!a->stream) continue;
        if (others && others != a->stream) return false;
        others = a->stream;
    }
    if (!any) return true;
    const uintptr_t chosen = torch ? reinterpret_cast<uintptr_t>(torch_stream(gpu_)) : others.value_or(0);
    if (others && *others != chosen) return false;
    stream = reinterpret_cast<void*>(chosen);
    return true;
}

std::vector<nb::object> ModelCaller::run_given(const Given& inputs, const Given& out, uint64_t seed) {
    std::vector<ArrayMemory> arrays;
    std::vector<const ArrayMemory*> all;
    arrays.reserve(inputs.count + out.count);  // they do not move
    std::vector<Datum> data;
    data.reserve(inputs.count);
    bool torch = false;
    auto read = [&](PyObject* value, bool writable) -> const ArrayMemory* {
        auto memory = read_array_memory(value, gpu_, writable);
        if (!memory) return nullptr;
        torch |= memory->whose == Whose::Torch;
        return all.emplace_back(&arrays.emplace_back(std::move(*memory)));
    };
    for (size_t i = 0; i < inputs.count; ++i) {
        const ArrayMemory* memory = read(inputs.values[i].ptr(), false);
        if (!memory) return {};
        data.emplace_back(memory->tensor);
    }
    std::vector<const ArrayMemory*> given(outputs_.size(), nullptr);
    size_t placed = 0;
    for (size_t k = 0; k < out.count; ++k) {
        if (!out.values[k].is_valid() || out.values[k].is_none()) continue;
        given[k] = read(out.values[k].ptr(), true);
        if (!given[k]) return {};
        ++placed;
    }
    RunWatch watch(nb::none(), gpu_ != kNoGpu);
    if (!choose_stream(all, watch.options.stream)) return {};
    const bool on_gpu = watch.options.stream.has_value();
    const bool rest = placed < given.size();
    if (rest && !torch && (on_gpu || !plain_)) return {};
    if (object_array_.is_valid() && (torch || placed || on_gpu)) return {};
    watch.options.seed = seed;
    const bool tensors = torch && std::any_of(all.begin(), all.end(), [&](const ArrayMemory* a) {
                             return a->whose == Whose::Torch && a->tensor.gpu() == gpu_;
                         });
    Places places{std::move(given), torch, on_gpu && tensors ? gpu_ : kNoGpu, make_tensor_};
    if (placed || torch) watch.options.place = [&places](size_t k, DType t, const Sizes& s) { return places(k, t, s); };
    Result<std::vector<Datum>> result = [&] {
        nb::gil_scoped_release release;
        return executable_.run_in_order(data, watch.options);
    }();
    if (places.failed) throw std::move(*places.failed);
    if (!result.ok() && places.left) return {};
    watch.end();
    std::vector<Datum> found = unwrap(std::move(result));
    std::vector<nb::object> values;
    values.reserve(found.size());
    for (size_t k = 0; k < found.size(); ++k) {
        if (places.given[k])
            values.push_back(out.values[k]);
        else if (places.made[k].is_valid())
            values.push_back(std::move(places.made[k]));
        else if (const Tensor& t = found[k].tensor(); t.dtype() == DType::string)
            values.push_back(object_array_(t.sizes(), t.as_strings()));
        else
            values.push_back(numpy_of(owned(std::move(found[k])).tensor()));
    }
    return values;
}

nb::object ModelCaller::run(nb::handle inputs, nb::handle out, uint64_t seed) {
    Given in, into;
    if (!usable_ || !gather(inputs, inputs_, true, in)) return nb::none();
    if (!out.is_none() && !gather(out, outputs_, false, into)) return nb::none();
    const std::vector<nb::object> values = run_given(in, into, seed);
    if (values.empty()) return nb::none();
    nb::dict named;
    for (size_t k = 0; k < values.size(); ++k) named[outputs_[k]] = values[k];
    return named;
}

nb::object ModelCaller::call(nb::tuple inputs, nb::dict words) {
    Given in, into;
    if (!usable_ || !gather(inputs, inputs_, true, in)) return nb::none();
    if (const size_t count = words.size()) {
        PyObject* out = out_is_input_ ? nullptr : PyDict_GetItem(words.ptr(), out_word_.ptr());
        if (count != 1 || !out || (out != Py_None && !gather(out, outputs_, false, into))) return nb::none();
    }
    std::vector<nb::object> values = run_given(in, into, 0);
    if (values.empty()) return nb::none();
    if (values.size() == 1) return std::move(values[0]);
    nb::list all;
    for (const nb::object& value : values) all.append(value);
    return nb::tuple(all);
}

void bind_caller(nb::module_& m) {
    nb::class_<ModelCaller>(m, "ModelCaller", "Runs a compiled model over arrays that can be used where they lie.")
        .def(nb::init<nb::object, nb::object>(), nb::arg("executable"), nb::arg("make_tensor"))
        .def("run", &ModelCaller::run, nb::arg("inputs").none(), nb::arg("out").none(), nb::arg("seed"),
             nb::sig("def run(self, inputs: object, out: object, seed: int) -> dict[str, typing.Any] | None"))
        .def("call", &ModelCaller::call, nb::arg("inputs"), nb::arg("words"),
             nb::sig("def call(self, inputs: tuple[typing.Any, ...], words: dict[str, typing.Any]) -> typing.Any"));
}
