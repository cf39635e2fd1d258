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
    if (!forward) return false;
    for (const auto& [from, to] : into.spans)
        if (begin < to && from < begin + reach) return false;  // they share memory
    into.spans.emplace_back(begin, begin + reach);
    into.key += 'a';
    into.key += element;
    into.memory.push_back(begin);
    into.numbers.push_back(reach / size);
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
                into.key += narrow ? "si" : "sq";
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
        } else if (!PyObject_CheckBuffer(value) || !read_array(value, into)) {
            return false;
        }
    }
    for (const auto& [slot, which] : into.placed) into.memory[slot] = into.elements[which].data();
    return true;
}

std::optional<Function> TileLauncher::launch(Values values, const std::array<int64_t, 3>& grid) {
    Read arguments;
    if (!read(values, grid, arguments)) return std::nullopt;
    auto found = known_.find(arguments.key);
    if (found == known_.end()) return std::nullopt;
    const Function function = found->second;
    tessera::Status status = [&] {
        nb::gil_scoped_release release;
        return function.launch(grid, arguments.memory, arguments.numbers);
    }();
    unwrap(std::move(status));
    return function;
}

void TileLauncher::keep(Values values, const std::array<int64_t, 3>& grid, const Function& function) {
    Read arguments;
    if (!read(values, grid, arguments)) return;
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
        .def("launch", &TileLauncher::launch, nb::arg("values"), nb::arg("grid"))
        .def("keep", &TileLauncher::keep, nb::arg("values"), nb::arg("grid"), nb::arg("function"));
}
