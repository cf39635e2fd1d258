#include "tile_launcher.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <cstring>

#include "errors.h"

namespace nb = nanobind;
using tessera::tile::Function;

namespace {

constexpr size_t kMostKept = 1000;

// Of a buffer's format; 0 where kernels have no such elements, or elements of the other byte order.
char element_of(const char* format, Py_ssize_t size) {
    if (!format) return 'B';
    if (*format == '@' || *format == '=' || *format == '<') ++format;
    if (format[0] == 0 || format[1] != 0 || !std::strchr("?efdbBhHiIlLqQ", format[0])) return 0;
    const bool is_signed = std::strchr("bhilq", format[0]) != nullptr;
    if (std::strchr("?efd", format[0])) return format[0];
    constexpr const char* kSigned = "bhiq";
    constexpr const char* kUnsigned = "BHIQ";
    const int place = size == 1 ? 0 : size == 2 ? 1 : size == 4 ? 2 : 3;
    return (is_signed ? kSigned : kUnsigned)[place];
}

// Of an element type of PyTorch's, by its name; 0 where kernels have no such elements. Types live as long as the process.
char element_of_torch(PyObject* dtype) {
    static std::unordered_map<PyObject*, char> known;
    auto [found, fresh] = known.try_emplace(dtype, 0);
    if (!fresh) return found->second;
    constexpr std::pair<std::string_view, char> kNames[] = {
        {"torch.float32", 'f'}, {"torch.float64", 'd'}, {"torch.float16", 'e'}, {"torch.bfloat16", 'w'}, {"torch.bool", '?'},
        {"torch.int8", 'b'},    {"torch.int16", 'h'},   {"torch.int32", 'i'},   {"torch.int64", 'q'},    {"torch.uint8", 'B'},
        {"torch.uint16", 'H'},  {"torch.uint32", 'I'},  {"torch.uint64", 'Q'},  {"torch.float8_e4m3fn", 'x'},
        {"torch.float8_e5m2", 'y'}};
    const std::string name = nb::cast<std::string>(nb::str(nb::handle(dtype)));
    for (const auto& [text, element] : kNames)
        if (name == text) found->second = element;
    if (found->second) Py_INCREF(dtype);
    return found->second;
}

size_t bytes_of(char element) {
    return std::strchr("?bBxy", element) ? 1 : std::strchr("ewhH", element) ? 2 : std::strchr("fiI", element) ? 4 : 8;
}

template <typename T>
void append(std::string& key, const T& value) {
    key.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

bool TileLauncher::read_array(PyObject* value, Read& into) const {
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_STRIDED_RO | PyBUF_FORMAT) != 0) {
        PyErr_Clear();
        return false;
    }
    const char element = element_of(view.format, view.itemsize);
    Py_ssize_t reach = view.itemsize;
    bool forward = element != 0 && view.ndim > 0;  // a number of NumPy's is a buffer too
    for (int d = 0; d < view.ndim; ++d) {
        forward &= view.shape[d] > 0 && view.strides[d] >= 0;
        reach += (view.shape[d] - 1) * view.strides[d];
    }
    char* begin = static_cast<char*>(view.buf);
    const Py_ssize_t size = view.itemsize;
    PyBuffer_Release(&view);
    forward &= into.device == kProcessor;
    return forward && add_array(element, begin, reach / size, static_cast<size_t>(size), into);
}

// A tensor of PyTorch that lies on the processor, or on a GPU, as one piece.
bool TileLauncher::read_tensor(PyObject* value, Read& into) const {
    const nb::handle tensor(value);
    static std::unordered_map<PyObject*, bool> types;
    auto [known, fresh] = types.try_emplace(tensor.type().ptr(), false);
    if (fresh) {
        known->second = nb::cast<std::string>(nb::str(tensor.type().attr("__module__"))).starts_with("torch") &&
                        nb::hasattr(tensor, "is_cpu") && nb::hasattr(tensor, "data_ptr");
        Py_INCREF(tensor.type().ptr());
    }
    if (!known->second) return false;
    if (!nb::cast<bool>(tensor.attr("is_contiguous")())) return false;
    int64_t device = kProcessor;
    if (!nb::cast<bool>(tensor.attr("is_cpu"))) {
        if (!nb::cast<bool>(tensor.attr("is_cuda"))) return false;
        device = nb::cast<int64_t>(tensor.attr("get_device")());
    }
    if (!into.spans.empty() && into.device != device) return false;
    into.device = device;
    const char element = element_of_torch(nb::object(tensor.attr("dtype")).ptr());
    if (!element) return false;
    char* begin = reinterpret_cast<char*>(nb::cast<uintptr_t>(tensor.attr("data_ptr")()));
    constexpr uintptr_t kVector = 16;  // bytes that a GPU's code takes at once
    if (device != kProcessor && reinterpret_cast<uintptr_t>(begin) % kVector) return false;
    const auto count = nb::cast<int64_t>(tensor.attr("numel")());
    return count > 0 && add_array(element, begin, count, bytes_of(element), into);
}

bool TileLauncher::add_array(char element, char* begin, int64_t count, size_t size, Read& into) {
    char* end = begin + static_cast<size_t>(count) * size;
    for (const auto& [from, to] : into.spans)
        if (begin < to && from < end) return false;  // they share memory
    into.spans.emplace_back(begin, end);
    into.key += 'a';
    into.key += element;
    into.memory.push_back(begin);
    into.numbers.push_back(count);
    return true;
}

bool TileLauncher::read(Values values, const std::array<int64_t, 3>& grid, Read& into) const {
    into.key += grid[2] != 1 ? '3' : grid[1] != 1 ? '2' : '1';
    const auto element = [&](char kind, const auto& value) {
        std::array<char, 8> bytes{};
        std::memcpy(bytes.data(), &value, sizeof(value));
        into.key += 'e';
        into.key += kind;
        into.placed.emplace_back(into.memory.size(), into.elements.size());
        into.elements.push_back(bytes);
        into.memory.push_back(nullptr);
    };
    for (size_t i = 0; i < fixed_.size(); ++i) {
        nb::handle h = values[i];
        PyObject* value = h.ptr();
        if (PyLong_CheckExact(value)) {
            int overflow = 0;
            const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
            if (overflow) return false;
            const bool narrow = number == static_cast<int32_t>(number);
            if (fixed_[i] || (number == 1 && !whole_[i])) {
                into.key += '=';
                append(into.key, number);
            } else if (number >= 0) {
                into.key += number % 16 ? 's' : 'S';
                into.key += narrow ? 'i' : 'q';
                into.numbers.push_back(number);
            } else if (narrow) {
                element('i', static_cast<int32_t>(number));
            } else {
                element('q', static_cast<int64_t>(number));
            }
        } else if (fixed_[i] && PyFloat_CheckExact(value)) {
            into.key += 'f';
            append(into.key, PyFloat_AsDouble(value));
        } else if (fixed_[i] && PyUnicode_Check(value)) {
            Py_ssize_t length = 0;
            const char* text = PyUnicode_AsUTF8AndSize(value, &length);
            if (!text) throw nb::python_error();
            into.key += 't';
            append(into.key, length);
            into.key.append(text, static_cast<size_t>(length));
        } else if (fixed_[i] || value == Py_None) {
            into.key += 'o';
            append(into.key, value);  // the same object
        } else if (PyBool_Check(value)) {
            element('?', value == Py_True);
        } else if (PyFloat_CheckExact(value)) {
            element('f', static_cast<float>(PyFloat_AsDouble(value)));
        } else if (!(PyObject_CheckBuffer(value) ? read_array(value, into) : read_tensor(value, into))) {
            return false;
        }
    }
    for (const auto& [slot, which] : into.placed) into.memory[slot] = into.elements[which].data();
    return true;
}

void* TileLauncher::current_stream(int64_t device) {
    if (!stream_of_.is_valid())
        stream_of_ = nb::module_::import_("torch._C").attr("_cuda_getCurrentRawStream");
    return reinterpret_cast<void*>(nb::cast<uintptr_t>(stream_of_(device)));
}

std::optional<Function> TileLauncher::launch(Values values, const std::array<int64_t, 3>& grid, int warps) {
    Read arguments;
    append(arguments.key, warps);
    if (!read(values, grid, arguments)) return std::nullopt;
    append(arguments.key, arguments.device);
    auto found = known_.find(arguments.key);
    if (found == known_.end()) return std::nullopt;
    const Function function = found->second;
    void* stream = arguments.device == kProcessor ? nullptr : current_stream(arguments.device);
    tessera::Status status = [&] {
        nb::gil_scoped_release release;
        return function.launch(grid, arguments.memory, arguments.numbers, stream);
    }();
    unwrap(std::move(status));
    return function;
}

void TileLauncher::keep(Values values, const std::array<int64_t, 3>& grid, int warps, const Function& function) {
    Read arguments;
    append(arguments.key, warps);
    if (!read(values, grid, arguments)) return;
    append(arguments.key, arguments.device);
    if (known_.size() >= kMostKept) {
        known_.clear();
        kept_.clear();
    }
    for (size_t i = 0; i < fixed_.size(); ++i)
        if (fixed_[i]) kept_.push_back(nb::borrow(values[i]));
    known_.insert_or_assign(arguments.key, function);
}

void bind_launcher(nb::module_& m) {
    nb::class_<TileLauncher>(m, "TileLauncher")
        .def(nb::init<std::vector<bool>, std::vector<bool>>(), nb::arg("fixed"), nb::arg("whole"))
        .def("launch", &TileLauncher::launch, nb::arg("values"), nb::arg("grid"), nb::arg("warps"))
        .def("keep", &TileLauncher::keep, nb::arg("values"), nb::arg("grid"), nb::arg("warps"), nb::arg("function"));
}
