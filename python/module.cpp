// The Python module: tensors, data, models and kernels of the public API. python/tessera/ makes them pleasant.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstring>
#include <mutex>

#include "array_memory.h"
#include "bind_custom_op.h"
#include "bind_quantize.h"
#include "bind_search.h"
#include "bind_shard.h"
#include "bind_tile.h"
#include "bind_training.h"
#include "command_line.h"
#include "errors.h"
#include "model_caller.h"
#include "run_watch.h"
#include "tensor_arrays.h"
#include "tessera/model_text.h"
#include "tessera/tessera.h"
#include "torch_tensors.h"
#include "watched.h"

namespace nb = nanobind;
using namespace tessera;

namespace {

// Keeps a Python object alive from C++, where it may be released on any thread.
std::shared_ptr<const void> keep(nb::object object) {
    PyObject* p = object.release().ptr();
    return std::shared_ptr<const void>(p, [](const void* q) {
        if (!Py_IsInitialized()) return;
        nb::gil_scoped_acquire gil;
        Py_DECREF(static_cast<PyObject*>(const_cast<void*>(q)));
    });
}

std::optional<DType> from_dlpack(nb::dlpack::dtype t) {
    using Kind = nb::dlpack::dtype_code;
    if (t.lanes != 1) return std::nullopt;
    auto pick = [&](std::initializer_list<DType> types) -> std::optional<DType> {
        for (DType d : types)
            if (dtype_bytes(d) * 8 == t.bits) return d;
        return std::nullopt;
    };
    switch (static_cast<Kind>(t.code)) {
        case Kind::Float: return pick({DType::f64, DType::f32, DType::f16});
        case Kind::Bfloat: return pick({DType::bf16});
        case Kind::Int: return pick({DType::i64, DType::i32, DType::i16, DType::i8});
        case Kind::UInt: return pick({DType::u64, DType::u32, DType::u16, DType::u8});
        case Kind::Bool: return pick({DType::boolean});
        case Kind::Complex: return pick({DType::c64, DType::c128});
        default: return std::nullopt;
    }
}

using AnyArray = nb::ndarray<nb::ro, nb::c_contig, nb::device::cpu>;

template <typename Array>
Tensor tensor_from_dlpack(Array array) {
    auto dtype = from_dlpack(array.dtype());
    if (!dtype) throw nb::type_error("this element type cannot be taken over DLPack");
    const int where = array.device_type();
    const bool on_gpu = where == nb::device::cuda::value;
    if (!on_gpu && where != nb::device::cpu::value && where != nb::device::cuda_host::value)
        throw nb::type_error("it is neither in CPU memory nor in an NVIDIA GPU's");
    Sizes sizes;
    for (size_t i = 0; i < array.ndim(); ++i) sizes.push_back(static_cast<int64_t>(array.shape(i)));
    const void* data = array.data();
    if (!data && array.size() > 0) throw nb::type_error("it has no memory");
    const int gpu = on_gpu ? static_cast<int>(array.device_id()) : kNoGpu;
    return Tensor::view_on_gpu(gpu, *dtype, std::move(sizes), data, keep(nb::cast(std::move(array))));
}

// A capsule belongs to the first who takes it, and nanobind does not look whether somebody did. Those that give the same
// capsule again are found by a mark on it.
void refuse_taken(const nb::object& value) {
    static char taken;
    nb::object capsule = value;
    if (!PyCapsule_CheckExact(value.ptr())) {
        PyObject* made = PyObject_CallMethod(value.ptr(), "__dlpack__", nullptr);
        if (!made) PyErr_Clear();  // what is wrong is said where it is taken
        if (!made) return;
        capsule = nb::steal(made);
        if (!PyCapsule_CheckExact(made) || Py_REFCNT(made) == 1) return;  // nobody else has it
    }
    const char* name = PyCapsule_GetName(capsule.ptr());
    if (!name) PyErr_Clear();
    const bool used = name && std::string_view(name).starts_with("used_");
    if (used || PyCapsule_GetContext(capsule.ptr()) == &taken) throw nb::type_error("its DLPack capsule was taken before");
    PyErr_Clear();
    PyCapsule_SetContext(capsule.ptr(), &taken);
}

Tensor tensor_from_any(nb::object value, bool writable) {
    refuse_taken(value);
    nb::ndarray<nb::ro, nb::c_contig> read;
    if (!writable) {
        if (!nb::try_cast(value, read)) throw nb::type_error("it gives no tensor, or one that is not contiguous");
        return tensor_from_dlpack(std::move(read));
    }
    nb::ndarray<nb::c_contig> array;  // no copy will do
    if (!nb::try_cast(value, array, false)) throw nb::type_error("it is read only, or not contiguous");
    return tensor_from_dlpack(std::move(array));
}

// None where it is no tensor that can be used as it is.
std::optional<Tensor> tensor_from_torch(nb::object value) {
    Sizes sizes;
    const auto read = read_torch(value.ptr(), &sizes);
    if (!read) return std::nullopt;
    const int gpu = read->device == TorchTensor::kProcessor ? kNoGpu : static_cast<int>(read->device);
    return Tensor::view_on_gpu(gpu, element_type(read->element), std::move(sizes), read->begin, keep(std::move(value)));
}

// `address` is the first of contiguous elements that `owner` keeps alive.
Tensor tensor_from_memory(const std::string& dtype, Sizes sizes, uintptr_t address, nb::object owner, int gpu) {
    auto t = dtype_from_name(dtype);
    if (!t || *t == DType::string) throw nb::value_error("no such element type");
    return Tensor::view_on_gpu(gpu, *t, std::move(sizes), reinterpret_cast<const void*>(address), keep(std::move(owner)));
}

// The tensor's bytes as a one-dimensional array that keeps the tensor alive.
nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>> bytes_of(const Tensor& t) {
    auto* held = new Tensor(t);
    nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
    static uint8_t none = 0;
    void* data = t.data() ? const_cast<void*>(t.data()) : &none;
    return nb::ndarray<nb::numpy, uint8_t, nb::ndim<1>>(data, {static_cast<size_t>(t.bytes())}, owner);
}

nb::object dlpack_of(const Tensor& t, nb::kwargs) {
    auto dtype = to_dlpack(t.dtype());
    if (!dtype) throw nb::type_error("DLPack has no such element type");
    std::vector<size_t> shape(t.sizes().begin(), t.sizes().end());
    auto* held = new Tensor(t);
    nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
    const int device = t.gpu() == kNoGpu ? nb::device::cpu::value : nb::device::cuda::value;
    nb::ndarray<> array(const_cast<void*>(t.data()), shape.size(), shape.data(), owner, nullptr, *dtype, device,
                        std::max(t.gpu(), 0));
    return nb::cast(std::move(array));
}

// A model that was read, with a Python warning for each of its own.
Model read(Result<Model> result) {
    Model model = unwrap(std::move(result));
    warn(model.warnings());
    return model;
}

bool on_gpu(const Model&) { return false; }
bool on_gpu(const Executable& e) { return e.gpu() != kNoGpu; }

// Runs without the GIL; Ctrl-C cancels. `place`(output, element type, sizes) gives memory for outputs, a Tensor or None.
template <typename Runnable>
std::vector<Datum> run(const Runnable& model, const NamedData& inputs, uint64_t seed, int64_t max_work, nb::object progress,
                       nb::object place, std::optional<uintptr_t> stream) {
    RunWatch watch(std::move(progress), on_gpu(model));
    RunOptions& options = watch.options;
    options.seed = seed;
    options.max_work = max_work;
    if (stream) options.stream = reinterpret_cast<void*>(*stream);
    std::vector<size_t> placed;  // outputs
    std::optional<nb::python_error> failed;
    if (!place.is_none())
        options.place = [&](size_t output, DType dtype, const Sizes& sizes) -> Result<std::optional<Tensor>> {
            nb::gil_scoped_acquire gil;
            try {
                nb::object memory = place(output, std::string(dtype_name(dtype)), sizes);
                if (memory.is_none()) return std::optional<Tensor>();
                placed.push_back(output);
                return std::optional(nb::cast<Tensor>(memory));
            } catch (nb::python_error& e) {
                failed.emplace(std::move(e));
            }
            return Error(Code::E0410, "there is no memory for an output");
        };
    Result<std::vector<Datum>> result = [&] {
        nb::gil_scoped_release release;
        return model.run(inputs, options);
    }();
    if (failed) throw std::move(*failed);
    watch.end();
    std::vector<Datum> outputs = unwrap(std::move(result));
    for (size_t i = 0; i < outputs.size(); ++i)
        if (std::find(placed.begin(), placed.end(), i) == placed.end()) outputs[i] = owned(std::move(outputs[i]));
    return outputs;
}

// Arrays in and arrays out, by name. None where an input is not an array that can be used as it is.
nb::object run_arrays(const Model& model, nb::dict inputs, nb::list names, uint64_t seed) {
    NamedData data;
    for (auto [name, value] : inputs) {
        AnyArray array;
        if (!PyUnicode_Check(name.ptr()) || !is_numpy(value.ptr(), true) ||
            !nb::try_cast(value, array, false) || !from_dlpack(array.dtype()))
            return nb::none();
        data.emplace(nb::cast<std::string>(name), tensor_from_dlpack(std::move(array)));
    }
    std::vector<Datum> found = run(model, data, seed, int64_t{1} << 50, nb::none(), nb::none(), {});
    nb::dict outputs;
    for (size_t i = 0; i < found.size(); ++i) outputs[names[i]] = numpy_of(found[i].tensor());
    return outputs;
}

// Runs without the GIL; Ctrl-C between passes cancels.
Optimized optimize_model(const Model& model, const std::string& precision, const std::vector<std::string>& rules,
                         bool refute_rules, int64_t fold_limit, const std::string& stop_after, bool record,
                         const std::optional<std::string>& cache) {
    std::atomic<bool> cancel{false};
    bool interrupted = false;
    OptimizeOptions options;
    options.precision = precision;
    options.rules = rules;
    options.refute_rules = refute_rules;
    options.fold_limit = fold_limit;
    options.stop_after = stop_after;
    options.record = record;
    options.cache = cache;
    options.cancel = &cancel;
    options.after = [&](const std::string&, const Model&, bool) {
        nb::gil_scoped_acquire gil;
        if (!cancel && PyErr_CheckSignals() != 0) cancel = interrupted = true;
    };
    Result<Optimized> result = [&] {
        nb::gil_scoped_release release;
        return optimize(model, options);
    }();
    if (interrupted) throw nb::python_error();
    return unwrap(std::move(result));
}

Executable compile_model(const Model& model, const std::string& target, int threads, const std::string& precision,
                         bool optimize, bool fuse, bool keep_weights,
                         const std::optional<std::string>& cache, const std::string& tier, int virtual_threads,
                         nb::object progress) {
    struct Step {
        std::string what;
        size_t done, total;
    };
    Watched<Step> watched;
    std::function<void(const Step&)> deliver;
    CompileOptions options{.target = target, .threads = threads, .precision = precision, .optimize = optimize};
    options.fuse = fuse;
    options.keep_weights = keep_weights;
    options.cache = cache;
    options.tier = tier;
    options.virtual_threads = virtual_threads;
    options.cancel = watched.cancel();
    if (!progress.is_none()) {
        deliver = [&](const Step& s) { progress(s.what, s.done, s.total); };
        options.progress = [&](std::string_view what, size_t done, size_t total) {
            watched.tell({std::string(what), done, total});
        };
    }
    return watched.run<Executable>([&] { return compile(model, options); }, deliver);
}

std::vector<StepProfile> profile(const Executable& executable, const NamedData& inputs, int runs) {
    Result<std::vector<StepProfile>> result = [&] {
        nb::gil_scoped_release release;
        return executable.profile(inputs, runs);
    }();
    return unwrap(std::move(result));
}

std::vector<std::pair<std::string, double>> check(const Executable& executable, const NamedData& inputs) {
    Result<std::vector<std::pair<std::string, double>>> result = [&] {
        nb::gil_scoped_release release;
        return executable.check(inputs);
    }();
    return unwrap(std::move(result));
}

KernelFunction build_kernel(const KernelSchedule& schedule, int threads, const std::map<std::string, Tensor>& known) {
    Result<KernelFunction> result = [&] {
        nb::gil_scoped_release release;
        return schedule.build(threads, known);
    }();
    return unwrap(std::move(result));
}

// Each array as its element type, shape and address; the caller keeps them alive.
void run_kernel(const KernelFunction& function, const std::vector<std::tuple<std::string, Sizes, uintptr_t>>& arrays) {
    std::vector<ArrayRef> given;
    for (const auto& [dtype, sizes, address] : arrays) {
        auto t = dtype_from_name(dtype);
        if (!t) throw nb::value_error("no such element type");
        given.push_back({*t, sizes, reinterpret_cast<void*>(address)});
    }
    Status status = [&] {
        nb::gil_scoped_release release;
        return function.run(given);
    }();
    unwrap(std::move(status));
}

void bind_kernels(nb::module_& m) {
    nb::class_<KernelArgument>(m, "KernelArgument", "An array that a kernel takes.")
        .def_ro("name", &KernelArgument::name)
        .def_prop_ro("dtype", [](const KernelArgument& a) { return std::string(dtype_name(a.dtype)); })
        .def_ro("shape", &KernelArgument::shape)
        .def_ro("written", &KernelArgument::written);

    nb::class_<KernelFunction>(m, "KernelFunction")
        .def_prop_ro("arguments", [](const KernelFunction& f) { return f.arguments(); })
        .def("emit", [](const KernelFunction& f, const std::string& what) { return unwrap(f.emit(what)); }, nb::arg("what"))
        .def("run", &run_kernel, nb::arg("arrays"));

    nb::class_<KernelSchedule>(m, "KernelSchedule")
        .def_static("parse", [](const std::string& compute) { return unwrap(KernelSchedule::parse(compute)); }, nb::arg("compute"))
        .def_static("automatic", [](const std::string& compute, int threads) {
            return unwrap(KernelSchedule::automatic(compute, threads));
        }, nb::arg("compute"), nb::arg("threads"))
        .def_static("replay", [](const std::string& compute, const std::string& trace) {
            return unwrap(KernelSchedule::replay(compute, trace));
        }, nb::arg("compute"), nb::arg("trace"))
        .def("copy", [](const KernelSchedule& s) { return s; })
        .def("apply", [](KernelSchedule& s, const std::string& primitive, const std::vector<std::string>& args) {
            return unwrap(s.apply(primitive, args));
        }, nb::arg("primitive"), nb::arg("args"))
        .def("compute", &KernelSchedule::compute)
        .def("trace", &KernelSchedule::trace)
        .def("stages", &KernelSchedule::stages)
        .def("loops", [](const KernelSchedule& s, const std::string& stage) { return unwrap(s.loops(stage)); }, nb::arg("stage"))
        .def("lower", [](const KernelSchedule& s) { return unwrap(s.lower()); })
        .def("build", &build_kernel, nb::arg("threads"), nb::arg("known"));
    m.def("describe_processor", [](const std::string& target) { return unwrap(describe_processor(target)); }, nb::arg("target"));
}

void bind_data(nb::module_& m) {
    nb::class_<Tensor>(m, "Tensor", "A tensor: element type, sizes, contiguous elements.")
        .def_static("from_memory", &tensor_from_memory, nb::arg("dtype"), nb::arg("shape"), nb::arg("address"), nb::arg("owner"),
                    nb::arg("gpu") = kNoGpu)
        .def_static("from_dlpack", &tensor_from_any, nb::arg("array"), nb::arg("writable") = false,
                    nb::sig("def from_dlpack(array: object, writable: bool = False) -> Tensor"))
        .def_static("from_torch", &tensor_from_torch, nb::arg("tensor"), nb::sig("def from_torch(tensor: object) -> Tensor | None"),
                    "Over a tensor of PyTorch's; None where that cannot be used as it is.")
        .def_prop_ro("gpu", &Tensor::gpu, "The number of the GPU that owns its memory; -1: CPU memory.")
        .def_static("from_strings", [](Sizes shape, std::vector<std::string> values) {
            auto n = unwrap(element_count(shape));
            if (n != static_cast<int64_t>(values.size())) throw nb::value_error("the strings do not fill the shape");
            return Tensor::strings(std::move(shape), std::move(values));
        }, nb::arg("shape"), nb::arg("values"))
        .def_prop_ro("dtype", [](const Tensor& t) { return std::string(dtype_name(t.dtype())); })
        .def_prop_ro("shape", [](const Tensor& t) { return nb::tuple(nb::cast(t.sizes())); },
                     nb::sig("def shape(self) -> tuple[int, ...]"))
        .def("array", &numpy_of, nb::sig("def array(self) -> numpy.typing.NDArray[typing.Any] | None"), "A NumPy array over the tensor's memory; None where NumPy has no such element type.")
        .def("bytes", &bytes_of, nb::sig("def bytes(self) -> numpy.typing.NDArray[numpy.uint8]"), "The elements' bytes, shared with the tensor.")
        .def("strings", [](const Tensor& t) { return t.as_strings(); })
        .def("__repr__", [](const Tensor& t) { return fmt::format("<tessera.Tensor {}{}>", dtype_name(t.dtype()), to_string(t.sizes())); })
        .def("__dlpack__", &dlpack_of, nb::arg("kwargs"), nb::sig("def __dlpack__(self, **kwargs: object) -> object"))
        .def("__dlpack_device__", [](const Tensor& t) {
            return t.gpu() == kNoGpu ? nb::make_tuple(nb::device::cpu::value, 0) : nb::make_tuple(nb::device::cuda::value, t.gpu());
        },
             nb::sig("def __dlpack_device__(self) -> tuple[int, int]"));

    nb::class_<Datum>(m, "Datum", "What a value holds at run time: a tensor, a sequence or an optional.")
        .def_static("tensor_of", [](const Tensor& t) { return Datum(t); }, nb::arg("tensor"))
        .def_static("array_of", [](AnyArray array) { return Datum(tensor_from_dlpack(std::move(array))); }, nb::arg("array"),
                    nb::sig("def array_of(array: object) -> Datum"))
        .def_static("sequence", &Datum::sequence, nb::arg("items"))
        .def_static("some", &Datum::some, nb::arg("item"))
        .def_static("none", &Datum::none)
        .def_prop_ro("kind", [](const Datum& d) { return d.is_tensor() ? "tensor" : d.is_sequence() ? "sequence" : "optional"; })
        .def_prop_ro("tensor", [](const Datum& d) { return d.tensor(); })
        .def_prop_ro("items", [](const Datum& d) { return d.items(); });
}

nb::object shape_of(const Port& port) {
    if (!port.ranked) return nb::none();
    nb::list shape;
    for (size_t i = 0; i < port.dims.size(); ++i)
        shape.append(port.sizes[i] >= 0 ? nb::object(nb::int_(port.sizes[i])) : nb::object(nb::str(port.dims[i].c_str())));
    return nb::tuple(shape);
}

void bind_models(nb::module_& m) {
    nb::class_<Port>(m, "Port", "An input or output of a model.")
        .def_ro("name", &Port::name)
        .def_ro("type", &Port::type)
        .def_prop_ro("dtype", [](const Port& p) -> std::optional<std::string> {
            return p.dtype ? std::optional(std::string(dtype_name(*p.dtype))) : std::nullopt;
        })
        .def_ro("ranked", &Port::ranked)
        .def_ro("dims", &Port::dims)
        .def_ro("sizes", &Port::sizes)
        .def_prop_ro("shape", &shape_of, nb::sig("def shape(self) -> tuple[int | str, ...] | None"),
                     "Each size as a number, or as an expression if it is symbolic; None if the rank is unknown.")
        .def_ro("has_default", &Port::has_default)
        .def("__getstate__",
             [](const Port& p) {
                 const int dtype = p.dtype ? int(*p.dtype) : -1;
                 return std::tuple(p.name, p.type, dtype, p.ranked, p.dims, p.sizes, p.has_default);
             })
        .def("__setstate__",
             [](Port& p, const std::tuple<std::string, std::string, int, bool, std::vector<std::string>,
                                          std::vector<int64_t>, bool>& state) {
                 const auto& [name, type, dtype, ranked, dims, sizes, has_default] = state;
                 if (dtype < -1 || dtype >= kDTypeCount) throw nb::value_error("no element type has this number");
                 new (&p) Port{name,   type, dtype < 0 ? std::nullopt : std::optional(DType(dtype)),
                               ranked, dims, sizes, has_default};
             })
        .def("__repr__", [](const Port& p) { return fmt::format("<tessera.Port {}: {}>", p.name, p.type); });

    nb::class_<Warning>(m, "FoundWarning", "What a model got wrong and is used in spite of.")
        .def_prop_ro("code", [](const Warning& w) { return std::string(code_name(w.code)); })
        .def_ro("message", &Warning::message)
        .def_ro("where", &Warning::where)
        .def_ro("hint", &Warning::hint)
        .def("__str__", &Warning::to_string)
        .def("__repr__", [](const Warning& w) { return fmt::format("<{}: {}>", code_name(w.code), w.message); });

    nb::class_<OpCount>(m, "OpCount").def_ro("op", &OpCount::op).def_ro("nodes", &OpCount::nodes)
        .def_ro("flops", &OpCount::flops).def_ro("bytes", &OpCount::bytes)
        .def("__repr__", [](const OpCount& c) { return fmt::format("<{} x {}>", c.nodes, c.op); });

    nb::class_<Summary>(m, "Summary", "A summary of a model.")
        .def_ro("name", &Summary::name).def_ro("source", &Summary::source).def_ro("producer", &Summary::producer)
        .def_ro("opset", &Summary::opset).def_ro("nodes", &Summary::nodes).def_ro("parameters", &Summary::parameters)
        .def_ro("parameter_bytes", &Summary::parameter_bytes).def_ro("flops", &Summary::flops)
        .def_ro("bytes", &Summary::bytes).def_ro("symbols", &Summary::symbols).def_ro("ops", &Summary::ops)
        .def("__repr__", [](const Summary& s) {
            return fmt::format("<tessera.Summary of {}: {}, {}, FLOPs {}>", s.name, plural(s.nodes, "node"),
                               plural(s.parameters, "parameter"), shortened(s.flops));
        });

    nb::class_<Metadata>(m, "Metadata", "The metadata of a model file.")
        .def_ro("producer_name", &Metadata::producer_name).def_ro("producer_version", &Metadata::producer_version)
        .def_ro("domain", &Metadata::domain).def_ro("description", &Metadata::description)
        .def_ro("graph_name", &Metadata::graph_name).def_ro("graph_description", &Metadata::graph_description)
        .def_ro("model_version", &Metadata::model_version).def_ro("ir_version", &Metadata::ir_version)
        .def_ro("custom", &Metadata::custom)
        .def("__repr__", [](const Metadata& d) {
            return fmt::format("<tessera.Metadata of {}{}: {}>", d.graph_name,
                               d.producer_name.empty() ? "" : ", by " + d.producer_name + " " + d.producer_version,
                               plural(int64_t(d.custom.size()), "custom key"));
        });

    nb::class_<Model>(m, "Model")
        .def_static("load", [](const std::string& path, bool strict) {
            return read(Model::load(path, {.strict = strict}));
        }, nb::arg("path"), nb::arg("strict") = false)
        .def_static("from_onnx", [](nb::bytes b, bool strict) {
            return read(Model::from_onnx(std::string_view(b.c_str(), b.size()), {.strict = strict}));
        }, nb::arg("data"), nb::arg("strict") = false)
        .def_static("parse", [](const std::string& text, const std::map<std::string, Tensor>& constants) {
            return unwrap(constants.empty() ? Model::parse(text) : parse_with_constants(text, constants));
        }, nb::arg("text"), nb::arg("constants") = std::map<std::string, Tensor>{})
        .def_static("demo", [](const std::string& name, uint64_t seed) { return unwrap(Model::demo(name, seed)); },
                    nb::arg("name"), nb::arg("seed") = 0)
        .def_prop_ro("inputs", &Model::inputs)
        .def_prop_ro("outputs", &Model::outputs)
        .def_prop_ro("warnings", [](const Model& model) { return model.warnings(); })
        .def_prop_ro("strict", &Model::strict)
        .def("summary", &Model::summary)
        .def("metadata", &Model::metadata)
        .def("peak_bytes", &Model::peak_bytes, nb::arg("symbols") = std::map<std::string, int64_t>{})
        .def("run", &run<Model>, nb::arg("inputs"), nb::arg("seed") = 0, nb::arg("max_work") = int64_t{1} << 50,
             nb::arg("progress") = nb::none(), nb::arg("place") = nb::none(), nb::arg("stream") = nb::none())
        .def("run_arrays", &run_arrays, nb::arg("inputs"), nb::arg("names"), nb::arg("seed"),
             nb::sig("def run_arrays(self, inputs: dict[str, typing.Any], names: list[str], seed: int) -> dict[str, typing.Any] | None"))
        .def("random_inputs", [](const Model& model, uint64_t seed, const std::map<std::string, int64_t>& symbols) {
            return unwrap(model.random_inputs(seed, symbols));
        }, nb::arg("seed") = 0, nb::arg("symbols") = std::map<std::string, int64_t>{})
        .def("save", [](const Model& model, const std::string& path) { unwrap(model.save(path)); }, nb::arg("path"))
        .def("to_onnx", [](const Model& model) {
            std::string bytes = unwrap(model.to_onnx());
            return nb::bytes(bytes.data(), bytes.size());
        })
        .def("to_text", &Model::to_text);
}

void bind_optimizer(nb::module_& m) {
    nb::class_<NodeText>(m, "NodeText", "A node as text, with the names of values.")
        .def_ro("op", &NodeText::op).def_ro("attrs", &NodeText::attrs).def_ro("inputs", &NodeText::inputs)
        .def_ro("outputs", &NodeText::outputs).def("__str__", [](const NodeText& n) { return n.text; })
        .def("__repr__", [](const NodeText& n) { return n.text; });

    nb::class_<Rewrite>(m, "Rewrite", "One rewrite: the rule, the location, and the removed and added nodes.")
        .def_ro("pass_name", &Rewrite::pass).def_ro("rule", &Rewrite::rule).def_ro("exactness", &Rewrite::exactness)
        .def_ro("why", &Rewrite::why).def_ro("where", &Rewrite::where).def_ro("removed", &Rewrite::removed)
        .def_ro("added", &Rewrite::added).def_ro("replaced", &Rewrite::replaced)
        .def("__repr__", [](const Rewrite& r) { return fmt::format("<{} / {} at {}>", r.pass, r.rule, r.where); });

    nb::class_<PassRun>(m, "PassRun", "The effect of one pass over all of its runs.")
        .def_ro("name", &PassRun::pass).def_ro("purpose", &PassRun::purpose).def_ro("runs", &PassRun::runs)
        .def_ro("rewrites", &PassRun::rewrites).def_ro("seconds", &PassRun::seconds)
        .def("__repr__", [](const PassRun& p) {
            return fmt::format("<{}: {} in {}>", p.pass, plural(p.rewrites, "rewrite"), plural(p.runs, "run"));
        });

    nb::class_<OptimizeReport>(m, "OptimizeReport", "The report of an optimization.")
        .def_ro("before", &OptimizeReport::before).def_ro("after", &OptimizeReport::after)
        .def_ro("passes", &OptimizeReport::passes).def_ro("rewrites", &OptimizeReport::rewrites)
        .def_ro("rewrite_count", &OptimizeReport::rewrite_count).def_ro("rounds", &OptimizeReport::rounds)
        .def_ro("settled", &OptimizeReport::settled).def_ro("seconds", &OptimizeReport::seconds)
        .def("__repr__", [](const OptimizeReport& r) {
            return fmt::format("<tessera.OptimizeReport: {} became {} by {}, in {:.3g} s>", plural(r.before.nodes, "node"), r.after.nodes,
                               plural(r.rewrite_count, "rewrite"), r.seconds);
        });

    nb::class_<Optimized>(m, "Optimized").def_ro("model", &Optimized::model).def_ro("report", &Optimized::report);
    m.def("optimize", &optimize_model, nb::arg("model"), nb::arg("precision"), nb::arg("rules"), nb::arg("refute_rules"),
          nb::arg("fold_limit"), nb::arg("stop_after"), nb::arg("record"), nb::arg("cache").none());
    m.def("optimizer_passes", &optimizer_passes, "The passes of the optimizer, in order.");
}

void bind_device_profile(nb::module_& m) {
    nb::class_<DeviceProfile> device(m, "DeviceProfile", "What one part of a model takes on an accelerator, in its cycles.");
    nb::class_<DeviceProfile::Unit>(device, "Unit", "What a unit does in these cycles: it is busy, or waits.")
        .def_ro("name", &DeviceProfile::Unit::name).def_ro("instructions", &DeviceProfile::Unit::instructions)
        .def_ro("busy", &DeviceProfile::Unit::busy).def_ro("wait_fetch", &DeviceProfile::Unit::wait_fetch)
        .def_ro("wait_previous", &DeviceProfile::Unit::wait_previous).def_ro("wait_next", &DeviceProfile::Unit::wait_next)
        .def_ro("wait_room", &DeviceProfile::Unit::wait_room);
    nb::class_<DeviceProfile::Layer>(device, "Layer", "From the end of the layer before to its own.")
        .def_ro("name", &DeviceProfile::Layer::name).def_ro("op", &DeviceProfile::Layer::op)
        .def_ro("plan", &DeviceProfile::Layer::plan, "Its tiles.").def_ro("begin", &DeviceProfile::Layer::begin)
        .def_ro("end", &DeviceProfile::Layer::end).def_ro("macs", &DeviceProfile::Layer::macs)
        .def_ro("matrix_cycles", &DeviceProfile::Layer::matrix_cycles).def_ro("bytes", &DeviceProfile::Layer::bytes)
        .def_ro("least_bytes", &DeviceProfile::Layer::least_bytes)
        .def_ro("scalar_cycles", &DeviceProfile::Layer::scalar_cycles, "Of a scalar host: docs/accelerator.md.")
        .def("__repr__", [](const DeviceProfile::Layer& l) {
            return fmt::format("<{} {}: {} cycles>", l.op, l.name, l.end - l.begin);
        });
    device.def_ro("name", &DeviceProfile::name).def_ro("machine", &DeviceProfile::machine)
        .def_ro("megahertz", &DeviceProfile::megahertz).def_ro("cycles", &DeviceProfile::cycles)
        .def_ro("macs_per_cycle", &DeviceProfile::macs_per_cycle).def_ro("bytes_per_cycle", &DeviceProfile::bytes_per_cycle)
        .def_ro("matrix_cycles", &DeviceProfile::matrix_cycles).def_ro("alu_cycles", &DeviceProfile::alu_cycles)
        .def_ro("fetch_bytes", &DeviceProfile::fetch_bytes).def_ro("load_bytes", &DeviceProfile::load_bytes)
        .def_ro("store_bytes", &DeviceProfile::store_bytes).def_ro("units", &DeviceProfile::units)
        .def_ro("layers", &DeviceProfile::layers)
        .def("__repr__", [](const DeviceProfile& d) {
            return fmt::format("<{} on {}: {} cycles>", d.name, d.machine, d.cycles);
        });
}

void bind_compiler(nb::module_& m) {
    nb::class_<StepProfile>(m, "StepProfile", "One step of a compiled model: its time and its nodes.")
        .def_ro("label", &StepProfile::label).def_ro("kind", &StepProfile::kind).def_ro("nodes", &StepProfile::nodes)
        .def_ro("seconds", &StepProfile::seconds).def_ro("flops", &StepProfile::flops).def_ro("bytes", &StepProfile::bytes)
        .def_ro("launches", &StepProfile::launches).def_ro("ops", &StepProfile::ops)
        .def_ro("reads", &StepProfile::reads).def_ro("writes", &StepProfile::writes)
        .def_ro("begin", &StepProfile::begin).def_ro("end", &StepProfile::end)
        .def_prop_ro("threads", [](const StepProfile& s) {
            std::vector<std::tuple<int, double, double>> spans;
            for (const ThreadSpan& t : s.threads) spans.emplace_back(t.thread, t.begin, t.end);
            return spans;
        })
        .def("__repr__", [](const StepProfile& s) { return fmt::format("<{} {}: {:.3g} ms>", s.kind, s.label, s.seconds * 1e3); });

    nb::class_<CompileReport>(m, "CompileReport", "The report of a compilation.")
        .def_ro("kernels", &CompileReport::kernels).def_ro("steps", &CompileReport::steps)
        .def_ro("host_steps", &CompileReport::host_steps).def_ro("from_cache", &CompileReport::from_cache)
        .def_ro("tier", &CompileReport::tier)
        .def_ro("phases", &CompileReport::phases).def_ro("decisions", &CompileReport::decisions)
        .def_ro("host_reasons", &CompileReport::host_reasons)
        .def("__repr__", [](const CompileReport& r) {
            return fmt::format("<tessera.CompileReport: {} in {}, {} left to the reference{}>", plural(int64_t(r.kernels), "kernel"),
                               plural(int64_t(r.steps), "step"), r.host_steps, r.from_cache ? ", from the cache" : "");
        });

    bind_device_profile(m);
    nb::class_<Executable>(m, "Executable")
        .def_prop_ro("inputs", &Executable::inputs)
        .def_prop_ro("outputs", &Executable::outputs)
        .def_prop_ro("report", [](const Executable& e) { return e.report(); })
        .def_prop_ro("target", &Executable::target)
        .def_prop_ro("weight_bytes", &Executable::weight_bytes)
        .def_prop_ro("gpu", &Executable::gpu, "The number of the GPU that it runs on; -1: the CPU.")
        .def("arena_bytes", &Executable::arena_bytes, nb::arg("symbols") = std::map<std::string, int64_t>{})
        .def("wait", [](const Executable& e) {
            Status waited = [&] {
                nb::gil_scoped_release release;
                return e.wait();
            }();
            unwrap(std::move(waited));
        })
        .def("emit", [](const Executable& e, const std::string& what) {
            Result<std::string> text = [&] {
                nb::gil_scoped_release release;
                return e.emit(what);
            }();
            return unwrap(std::move(text));
        }, nb::arg("what"))
        .def("run", &run<Executable>, nb::arg("inputs"), nb::arg("seed") = 0, nb::arg("max_work") = int64_t{1} << 50,
             nb::arg("progress") = nb::none(), nb::arg("place") = nb::none(), nb::arg("stream") = nb::none())
        .def("profile", &profile, nb::arg("inputs"), nb::arg("runs"))
        .def("profile_devices", [](const Executable& e) {
            Result<std::vector<DeviceProfile>> found = [&] {
                nb::gil_scoped_release release;
                return e.profile_devices();
            }();
            return unwrap(std::move(found));
        })
        .def("check", &check, nb::arg("inputs"))
        .def("save", [](const Executable& e, const std::string& path) {
            Status saved = [&] {
                nb::gil_scoped_release release;
                return e.save(path);
            }();
            unwrap(std::move(saved));
        }, nb::arg("path"))
        .def_static("load", [](const std::string& path) {
            Result<Executable> loaded = [&] {
                nb::gil_scoped_release release;
                return Executable::load(path);
            }();
            return unwrap(std::move(loaded));
        }, nb::arg("path"));
    m.def("compile", &compile_model, nb::arg("model"), nb::arg("target"), nb::arg("threads"), nb::arg("precision"),
          nb::arg("optimize"), nb::arg("fuse"), nb::arg("keep_weights"), nb::arg("cache").none(), nb::arg("tier"),
          nb::arg("virtual_threads"), nb::arg("progress").none());
    m.def("compile_targets", &compile_targets, "What `target` of compile takes: this machine, and others.");
    nb::class_<DeviceInfo>(m, "Device", "A device that models can run on: the host, a GPU or an accelerator.")
        .def_ro("target", &DeviceInfo::target).def_ro("name", &DeviceInfo::name).def_ro("bytes", &DeviceInfo::bytes)
        .def_ro("capability", &DeviceInfo::capability).def_ro("processors", &DeviceInfo::processors)
        .def_ro("shared_bytes", &DeviceInfo::shared_bytes)
        .def_ro("why", &DeviceInfo::why)
        .def_prop_ro("usable", [](const DeviceInfo& d) { return d.why.empty(); })
        .def("__repr__", [](const DeviceInfo& d) {
            return fmt::format("<tessera.Device {}: {}{}{}>", d.target, d.name, d.why.empty() ? "" : "; not usable: ", d.why);
        });
    m.def("devices", [] { return list_devices(); }, "The host, all GPUs that the driver reports, then simulated accelerators. Device.target is an argument for `target`.");
    m.def("gpu_target", &gpu_target, nb::arg("major"), nb::arg("minor"),
          "The target for GPUs of a compute capability; empty where it is too old.");
    m.def("gpu_of_memory", [](uintptr_t address) { return gpu_of_memory(reinterpret_cast<const void*>(address)); },
          nb::arg("address"));
    m.def("torch_stream", [](int gpu) { return reinterpret_cast<uintptr_t>(torch_stream(gpu)); }, nb::arg("gpu"));
    m.def("set_memory_limit", &set_memory_limit, nb::arg("bytes"));
    m.def("memory_limit", &memory_limit, "In bytes, as set_memory_limit set it.");
    m.def("memory_in_use", &memory_in_use, "The bytes that all tensors of this process take together.");
}

// `again`: the words that start this command line once more; the first is the Python that runs it.
int command_line(const std::vector<std::string>& again, std::vector<std::string> words) {
    words.insert(words.begin(), "tessera");
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    nb::gil_scoped_release release;
    return cli::command_line(static_cast<int>(words.size()), pointers.data(), {.again = again, .python = again.at(0)});
}

}  // namespace

NB_MODULE(_tessera, m) {
    nb::set_leak_warnings(false);  // kernels live as long as the modules that have them
    m.doc() = "The compiled part of tessera.";
    bind_data(m);
    bind_models(m);
    bind_optimizer(m);
    bind_compiler(m);
    bind_caller(m);
    bind_search(m);
    bind_shard(m);
    bind_training(m);
    bind_quantize(m);
    bind_custom_op(m);
    bind_kernels(m);
    bind_tile(m);
    m.def("command_line", &command_line, nb::arg("again"), nb::arg("words"));
}
