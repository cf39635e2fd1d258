#include "tile_launcher.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <cstring>

#include "array_memory.h"
#include "errors.h"

namespace nb = nanobind;
using tessera::tile::Function;

namespace {

constexpr size_t kMostKept = 1000;

size_t bytes_of(char element) {
    switch (element) {
        case '?':
        case 'b':
        case 'B':
        case 'x':
        case 'y': return 1;
        case 'e':
        case 'w':
        case 'h':
        case 'H': return 2;
        case 'f':
        case 'i':
        case 'I': return 4;
        default: return 8;
    }
}

// Whether kernels are interpreted or debugged, which Python sees to.
bool is_watched() {
    const auto is = [](const char* name, const char* value) {
        const char* set = std::getenv(name);
        return set && !std::strcmp(set, value);
    };
    return is("TESSERA_INTERPRET", "1") || is("TESSERA_INTERPRET", "gpu") || is("TESSERA_DEBUG", "1") ||
           is("TRITON_DEBUG", "1");
}

}  // namespace

TileLauncher::TileLauncher(const std::vector<std::string>& names, Defaults defaults, const std::vector<bool>& fixed,
                           const std::vector<bool>& whole, Words options)
    : warps_(interned("num_warps")), stages_(interned("num_stages")), options_(std::move(options)) {
    for (size_t i = 0; i < names.size(); ++i) {
        nb::object name = interned(names[i].c_str());
        nb::object fallback = defaults.contains(name) ? nb::object(defaults[name]) : nb::object();
        parameters_.push_back({std::move(name), std::move(fallback), fixed[i], whole[i]});
    }
}

void TileLauncher::Read::note(const void* from, size_t count) {
    if (key_bytes + count <= kMostKeyBytes) std::memcpy(bytes.data() + key_bytes, from, count);
    key_bytes += count;
}

void TileLauncher::Read::add_element(char kind, const void* value, size_t count) {
    note('e');
    note(kind);
    int64_t& place = elements[memory_count];
    place = 0;
    std::memcpy(&place, value, count);
    memory[memory_count++] = &place;
}

bool TileLauncher::Read::add_array(char element, char* begin, int64_t count, size_t size) {
    char* end = begin + static_cast<size_t>(count) * size;
    for (size_t i = 0; i < array_count; ++i)
        if (begin < spans[i].end && spans[i].begin < end) return false;  // they share memory
    spans[array_count++] = {begin, end};
    note('a');
    note(element);
    memory[memory_count++] = begin;
    add_number(count);
    return true;
}

bool TileLauncher::read_array(PyObject* value, Read& into) {
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_STRIDED_RO | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return false;
    }
    const char element = buffer_element(view.format, view.itemsize);
    Py_ssize_t reach = view.itemsize;
    bool forward = element != 0 && view.ndim > 0;  // a number of NumPy's is a buffer too
    for (int d = 0; d < view.ndim; ++d) {
        forward &= view.shape[d] > 0 && view.strides[d] >= 0;
        reach += (view.shape[d] - 1) * view.strides[d];
    }
    char* begin = static_cast<char*>(view.buf);
    const Py_ssize_t size = view.itemsize;
    if (view.readonly) into.note('r');  // other code, which does not store there
    PyBuffer_Release(&view);
    forward &= into.device == TorchTensor::kProcessor;
    return forward && into.add_array(element, begin, reach / size, static_cast<size_t>(size));
}

bool TileLauncher::read_tensor(PyObject* value, Read& into) {
    const auto tensor = read_torch(value);
    if (!tensor || tensor->count <= 0 || (into.array_count && into.device != tensor->device)) return false;
    into.device = tensor->device;
    constexpr uintptr_t kVector = 16;  // bytes that a GPU's code takes at once
    const bool on_gpu = tensor->device != TorchTensor::kProcessor;
    if (on_gpu && reinterpret_cast<uintptr_t>(tensor->begin) % kVector) return false;
    return into.add_array(tensor->element, tensor->begin, tensor->count, bytes_of(tensor->element));
}

// The arguments by parameter. False where there are too few or too many, or words that something depends on.
bool TileLauncher::place(PyObject* args, PyObject* kwargs, Given& values, Shape& shape) const {
    const auto given = static_cast<size_t>(PyTuple_Size(args));
    const size_t count = parameters_.size();
    if (given > count || count > kMostArguments) return false;
    for (size_t i = 0; i < given; ++i) values[i] = PyTuple_GetItem(args, static_cast<Py_ssize_t>(i));
    for (size_t i = given; i < count; ++i) values[i] = nullptr;
    PyObject *key = nullptr, *value = nullptr;
    for (Py_ssize_t at = 0; kwargs && PyDict_Next(kwargs, &at, &key, &value);) {
        // Words are mostly one object each.
        size_t i = given;
        while (i < count && parameters_[i].name.ptr() != key) ++i;
        const bool option = key == warps_.ptr() || key == stages_.ptr();
        if (i == count && !option)
            for (i = given; i < count && PyUnicode_Compare(parameters_[i].name.ptr(), key) != 0;) ++i;
        if (i < count) {
            values[i] = value;
        } else if (const bool warps = key == warps_.ptr() || PyUnicode_Compare(warps_.ptr(), key) == 0;
                   warps || PyUnicode_Compare(stages_.ptr(), key) == 0) {
            if (!PyLong_CheckExact(value)) return false;
            int overflow = 0;
            const long wide = PyLong_AsLongAndOverflow(value, &overflow);
            const auto number = static_cast<int>(wide);
            if (overflow || number != wide || number < 0 ||
                (warps && !std::has_single_bit(static_cast<unsigned>(number))))
                return false;
            (warps ? shape.warps : shape.stages) = number;
        } else if (!options_.contains(nb::handle(key))) {
            return false;
        }
    }
    for (size_t i = given; i < count; ++i) {
        if (!values[i]) values[i] = parameters_[i].fallback.ptr();
        if (!values[i]) return false;
    }
    return true;
}

std::optional<TileLauncher::Grid> TileLauncher::size_of(nb::object& grid, const Given& values) const {
    if (PyCallable_Check(grid.ptr())) {
        nb::dict named;
        for (size_t i = 0; i < parameters_.size(); ++i) named[parameters_[i].name] = nb::handle(values[i]);
        grid = grid(named);
    }
    Grid size{1, 1, 1};
    const auto number = [](PyObject* from, int64_t& to) {
        if (!PyLong_CheckExact(from)) return false;
        int overflow = 0;
        to = PyLong_AsLongLongAndOverflow(from, &overflow);
        return overflow == 0 && to > 0;  // over nothing, nothing is launched
    };
    if (number(grid.ptr(), size[0])) return size;
    if (!PyTuple_CheckExact(grid.ptr())) return std::nullopt;
    const Py_ssize_t rank = PyTuple_Size(grid.ptr());
    if (rank < 1 || rank > 3) return std::nullopt;
    for (Py_ssize_t i = 0; i < rank; ++i)
        if (!number(PyTuple_GetItem(grid.ptr(), i), size[static_cast<size_t>(i)])) return std::nullopt;
    return size;
}

bool TileLauncher::read_number(const Parameter& parameter, PyObject* value, Read& into) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow) return false;
    const bool narrow = number == static_cast<int32_t>(number);
    if (parameter.fixed || (number == 1 && !parameter.whole)) {
        into.note('=');
        into.note_value(number);
    } else if (number >= 0) {
        into.note(number % 16 ? 's' : 'S');
        into.note(narrow ? 'i' : 'q');
        into.add_number(number);
    } else {
        into.add_element(narrow ? 'i' : 'q', &number, narrow ? sizeof(int32_t) : sizeof(int64_t));
    }
    return true;
}

bool TileLauncher::read(const Given& values, const Grid& grid, Shape shape, Read& into) const {
    into.note_value(shape);
    into.note(grid[2] != 1 ? '3' : grid[1] != 1 ? '2' : '1');
    for (size_t i = 0; i < parameters_.size(); ++i) {
        const Parameter& parameter = parameters_[i];
        PyObject* value = values[i];
        if (PyLong_CheckExact(value)) {
            if (!read_number(parameter, value, into)) return false;
        } else if (parameter.fixed && PyFloat_CheckExact(value)) {
            into.note('f');
            into.note_value(PyFloat_AsDouble(value));
        } else if (parameter.fixed && PyUnicode_CheckExact(value)) {
            Py_ssize_t length = 0;
            const char* text = PyUnicode_AsUTF8AndSize(value, &length);
            if (!text) throw nb::python_error();
            into.note('t');
            into.note_value(length);
            into.note(text, static_cast<size_t>(length));
        } else if (parameter.fixed || value == Py_None) {
            into.note('o');
            into.note_value(value);  // the same object
        } else if (PyBool_Check(value)) {
            const bool is_true = value == Py_True;
            into.add_element('?', &is_true, sizeof(is_true));
        } else if (PyFloat_CheckExact(value)) {
            const auto real = static_cast<float>(PyFloat_AsDouble(value));
            into.add_element('f', &real, sizeof(real));
        } else if (!(is_numpy(value) ? read_array(value, into) : read_tensor(value, into))) {
            return false;
        }
    }
    into.note_value(into.device);
    return true;
}

bool TileLauncher::ReadConstant::is_as_before() const {
    if (PyDict_Check(place.ptr())) return PyDict_GetItem(place.ptr(), name.ptr()) == value.ptr();
    static const nb::object& contents = *new nb::object(interned("cell_contents"));
    const nb::object now = nb::steal(PyObject_GetAttr(place.ptr(), contents.ptr()));
    if (!now.is_valid()) PyErr_Clear();  // it has none
    return now.is(value);
}

bool TileLauncher::Known::is_as_before() const {
    return std::all_of(read.begin(), read.end(), [](const ReadConstant& each) { return each.is_as_before(); });
}

const TileLauncher::Known* TileLauncher::find(std::string_view key) {
    if (last_ && last_->first == key) return &last_->second;
    const auto found = known_.find(key);
    if (found == known_.end()) return nullptr;
    last_ = &*found;
    return &found->second;
}

nb::object TileLauncher::call(nb::object& grid, PyObject* args, PyObject* kwargs) {
    if (is_watched()) return {};
    Shape shape;
    Given values;
    Read arguments;
    if (!place(args, kwargs, values, shape)) return {};
    const auto size = size_of(grid, values);
    if (!size || !read(values, *size, shape, arguments)) return {};
    const auto key = arguments.key();
    const Known* known = key ? find(*key) : nullptr;
    if (!known || !known->is_as_before()) return {};
    const nb::object launched = known->object;  // which has the function, whatever becomes of what is known
    const Function& function = *known->function;
    void* stream = arguments.device == TorchTensor::kProcessor ? nullptr : torch_stream(arguments.device);
    tessera::Status status = [&] {
        nb::gil_scoped_release release;
        const std::span<void* const> memory(arguments.memory.data(), arguments.memory_count);
        const std::span<const int64_t> numbers(arguments.numbers.data(), arguments.number_count);
        return function.launch(*size, memory, numbers, stream);
    }();
    if (!status.ok()) unwrap(std::move(status));
    return launched;
}

void TileLauncher::keep(Values values, const Grid& grid, int warps, int stages, nb::object function,
                        ReadConstants read_constants) {
    if (values.size() != parameters_.size() || values.size() > kMostArguments) return;
    Read arguments;
    Given given;
    for (size_t i = 0; i < values.size(); ++i) given[i] = nb::object(values[i]).ptr();
    if (!read(given, grid, {warps, stages}, arguments) || !arguments.key()) return;
    KnownByKey old;  // goes when all is in order: what its objects do then is not known
    std::vector<nb::object> old_kept;
    if (known_.size() >= kMostKept) {
        last_ = nullptr;
        std::swap(old, known_);
        std::swap(old_kept, kept_);
    }
    const Function* made = &nb::cast<const Function&>(function);
    Known known{std::move(function), made, {}};
    for (const nb::handle each : read_constants)
        known.read.push_back({nb::object(each[0]), nb::object(each[1]), nb::object(each[2])});
    auto [place, fresh] = known_.try_emplace(std::string(*arguments.key()));
    std::swap(place->second, known);
    for (size_t i = 0; i < parameters_.size(); ++i)
        if (fresh && parameters_[i].fixed) kept_.push_back(nb::borrow(given[i]));
}

namespace {

// Slots of Python's types, called without anything between.

PyObject* over_grid(PyObject* self, PyObject* grid) {
    Launchable& kernel = *nb::inst_ptr<Launchable>(self);
    const bool by_python = !kernel.launcher.is_valid() || PyList_Size(kernel.listeners.ptr()) != 0;
    try {
        if (by_python) {
            const nb::object partial = nb::module_::import_("functools").attr("partial");
            return partial(nb::handle(self).attr("run"), nb::arg("grid") = nb::handle(grid)).release().ptr();
        }
        // What nobody else holds is taken again; it holds its grid until then, so that functions have one of their own.
        if (PyCallable_Check(grid)) return nb::cast(LaunchOver{nb::borrow(self), nb::borrow(grid)}).release().ptr();
        if (!kernel.spare.is_valid() || Py_REFCNT(kernel.spare.ptr()) != 1) kernel.spare = nb::cast(LaunchOver{});
        *nb::inst_ptr<LaunchOver>(kernel.spare) = {nb::borrow(self), nb::borrow(grid)};
        return kernel.spare.inc_ref().ptr();
    } catch (nb::python_error& e) {
        e.restore();
        return nullptr;
    }
}

PyObject* launch_over(PyObject* self, PyObject* args, PyObject* kwargs) {
    // It may be taken for another grid before this one ends.
    LaunchOver over = *nb::inst_ptr<LaunchOver>(self);
    const nb::object launcher = nb::inst_ptr<Launchable>(over.kernel)->launcher;
    try {
        nb::object launched;
        if (launcher.is_valid()) launched = nb::inst_ptr<TileLauncher>(launcher)->call(over.grid, args, kwargs);
        if (launched.is_valid()) return launched.release().ptr();
        const auto words = kwargs ? nb::borrow<nb::dict>(kwargs) : nb::dict();
        return over.kernel.attr("run")(*nb::borrow<nb::args>(args), nb::arg("grid") = over.grid, **words)
            .release()
            .ptr();
    } catch (nb::python_error& e) {
        e.restore();
    } catch (const std::exception& e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
    }
    return nullptr;
}

int traverse_launchable(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    Launchable& kernel = *nb::inst_ptr<Launchable>(self);
    Py_VISIT(kernel.launcher.ptr());
    Py_VISIT(kernel.listeners.ptr());
    Py_VISIT(kernel.spare.ptr());
    return 0;
}

int clear_launchable(PyObject* self) {
    *nb::inst_ptr<Launchable>(self) = {};
    return 0;
}

int traverse_over(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (!nb::inst_ready(self)) return 0;
    LaunchOver& over = *nb::inst_ptr<LaunchOver>(self);
    Py_VISIT(over.kernel.ptr());
    Py_VISIT(over.grid.ptr());
    return 0;
}

int clear_over(PyObject* self) {
    *nb::inst_ptr<LaunchOver>(self) = {};
    return 0;
}

template <typename F>
void* slot(F function) {
    return reinterpret_cast<void*>(function);
}

}  // namespace

void bind_launcher(nb::module_& m) {
    static const PyType_Slot kOver[] = {{Py_tp_call, slot(launch_over)},
                                        {Py_tp_traverse, slot(traverse_over)},
                                        {Py_tp_clear, slot(clear_over)},
                                        {0, nullptr}};
    nb::class_<LaunchOver>(m, "LaunchOver", nb::type_slots(kOver));
    static const PyType_Slot kLaunchable[] = {{Py_mp_subscript, slot(over_grid)},
                                              {Py_tp_traverse, slot(traverse_launchable)},
                                              {Py_tp_clear, slot(clear_launchable)},
                                              {0, nullptr}};
    nb::class_<TileLauncher>(m, "TileLauncher")
        .def(nb::init<const std::vector<std::string>&, TileLauncher::Defaults, const std::vector<bool>&,
                      const std::vector<bool>&, TileLauncher::Words>(),
             nb::arg("names"), nb::arg("defaults"), nb::arg("fixed"), nb::arg("whole"), nb::arg("options"))
        .def("keep", &TileLauncher::keep, nb::arg("values"), nb::arg("grid"), nb::arg("warps"), nb::arg("stages"),
             nb::arg("function"), nb::arg("read"));
    nb::class_<Launchable>(m, "Launchable", nb::type_slots(kLaunchable))
        .def(nb::init<>())
        .def(
            "launch_by",
            [](Launchable& self, nb::object launcher, nb::typed<nb::list, nb::object> listeners) {
                self.launcher = launcher.is_none() ? nb::object() : std::move(launcher);
                self.listeners = std::move(listeners);
            },
            nb::arg("launcher").none(), nb::arg("listeners"),
            nb::sig("def launch_by(self, launcher: TileLauncher | None, listeners: list[collections.abc.Callable[..., "
                    "None]]) -> None"),
            "Launches by a launcher, or by Python alone; and by Python where `listeners` has any.");
}
