#include "array_memory.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "tessera/devices.h"
#include "torch_tensors.h"

namespace nb = nanobind;
using tessera::DType;
using tessera::kNoGpu;
using tessera::Sizes;
using tessera::Tensor;

char buffer_element(const char* format, Py_ssize_t size) {
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

DType element_type(char element) {
    constexpr std::pair<char, DType> kTypes[] = {
        {'f', DType::f32}, {'d', DType::f64}, {'e', DType::f16}, {'w', DType::bf16},     {'?', DType::boolean},
        {'b', DType::i8},  {'h', DType::i16}, {'i', DType::i32}, {'q', DType::i64},      {'B', DType::u8},
        {'H', DType::u16}, {'I', DType::u32}, {'Q', DType::u64}, {'x', DType::f8e4m3fn}, {'y', DType::f8e5m2}};
    for (const auto& [name, type] : kTypes)
        if (name == element) return type;
    throw nb::type_error("no such element type");
}

bool is_numpy(PyObject* value, bool exactly) {
    static auto* const type =
        reinterpret_cast<PyTypeObject*>(nb::object(nb::module_::import_("numpy").attr("ndarray")).release().ptr());
    return Py_TYPE(value) == type || (!exactly && PyType_IsSubtype(Py_TYPE(value), type));
}

namespace {

using Whose = ArrayMemory::Whose;

std::optional<ArrayMemory> read_numpy(PyObject* value, bool writable) {
    Py_buffer view;
    if (PyObject_GetBuffer(value, &view, PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (writable ? PyBUF_WRITABLE : 0)) != 0) {
        PyErr_Clear();
        return {};
    }
    std::optional<ArrayMemory> read;
    if (const char element = buffer_element(view.format, view.itemsize))
        read = {Tensor::view(element_type(element), Sizes(view.shape, view.shape + view.ndim), view.buf, nullptr),
                Whose::NumPy};
    PyBuffer_Release(&view);
    return read;
}

// As __cuda_array_interface__ names an element: "<f4".
char interface_element(std::string_view name) {
    if (name.size() != 3 || (name[0] != '<' && name[0] != '|')) return 0;
    const int place = name[2] == '1' ? 0 : name[2] == '2' ? 1 : name[2] == '4' ? 2 : name[2] == '8' ? 3 : 4;
    switch (name[1]) {
        case 'f': return "\0efd\0"[place];
        case 'i': return "bhiq\0"[place];
        case 'u': return "BHIQ\0"[place];
        case 'b': return "?\0\0\0\0"[place];
        default: return 0;
    }
}

struct InterfaceWords {
    nb::object interface = interned("__cuda_array_interface__"), shape = interned("shape"),
               element = interned("typestr"), data = interned("data"), strides = interned("strides"),
               stream = interned("stream"), device = interned("device"), id = interned("id");
};

// Null with no error set where it has none.
nb::object attribute(nb::handle value, const nb::object& name) {
    if (!PyObject_HasAttr(value.ptr(), name.ptr())) return {};
    PyObject* found = PyObject_GetAttr(value.ptr(), name.ptr());
    if (!found) PyErr_Clear();
    return nb::steal(found);
}

// Negative where what it says is no number of one.
int gpu_named(nb::handle value, const InterfaceWords& words, const void* data, int gpu) {
    if (const nb::object device = attribute(value, words.device); device.is_valid())
        if (const nb::object id = attribute(device, words.id); id.is_valid() && PyLong_Check(id.ptr()))
            return nb::try_cast<int>(id, gpu) ? gpu : kNoGpu;
    return tessera::gpu_of_memory(data).value_or(std::max(gpu, 0));
}

std::optional<ArrayMemory> read_interface(PyObject* value, int gpu, bool writable) {
    static const auto& words = *new InterfaceWords();
    const nb::object said = attribute(value, words.interface);
    if (!said.is_valid() || !PyDict_Check(said.ptr())) return {};
    auto item = [&](const nb::object& name) { return PyDict_GetItem(said.ptr(), name.ptr()); };
    PyObject *shape = item(words.shape), *name = item(words.element), *data = item(words.data);
    PyObject *strides = item(words.strides), *stream = item(words.stream);
    if (!shape || !PyTuple_Check(shape) || !name || !PyUnicode_Check(name) || (strides && strides != Py_None))
        return {};
    if (!data || !PyTuple_Check(data) || PyTuple_Size(data) != 2) return {};
    Py_ssize_t length = 0;
    const char* text = PyUnicode_AsUTF8AndSize(name, &length);
    const char element = text ? interface_element({text, static_cast<size_t>(length)}) : '\0';
    if (!element || (writable && PyTuple_GetItem(data, 1) == Py_True)) return {};
    Sizes sizes(static_cast<size_t>(PyTuple_Size(shape)));
    int64_t bytes = 8;  // at most
    bool sound = true;
    for (size_t d = 0; d < sizes.size(); ++d) {
        sizes[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, static_cast<Py_ssize_t>(d)));
        sound &= sizes[d] >= 0 && !__builtin_mul_overflow(bytes, sizes[d], &bytes);
    }
    const void* begin = PyLong_AsVoidPtr(PyTuple_GetItem(data, 0));
    sound &= begin || bytes == 0;
    std::optional<uintptr_t> on;
    if (stream && stream != Py_None) on = reinterpret_cast<uintptr_t>(PyLong_AsVoidPtr(stream));
    if (PyErr_Occurred()) {
        PyErr_Clear();
        return {};
    }
    const int where = sound ? gpu_named(value, words, begin, gpu) : kNoGpu;
    if (where < 0) return {};
    return ArrayMemory{Tensor::view_on_gpu(where, element_type(element), std::move(sizes), begin, nullptr),
                       Whose::Other, on};
}

}  // namespace

std::optional<ArrayMemory> read_array_memory(PyObject* value, int gpu, bool writable) {
    if (is_numpy(value)) return is_numpy(value, true) ? read_numpy(value, writable) : std::nullopt;
    Sizes sizes;
    if (const auto torch = read_torch(value, &sizes)) {
        const int on = torch->device == TorchTensor::kProcessor ? kNoGpu : static_cast<int>(torch->device);
        return ArrayMemory{
            Tensor::view_on_gpu(on, element_type(torch->element), std::move(sizes), torch->begin, nullptr),
            Whose::Torch};
    }
    if (is_torch(value)) return {};
    return read_interface(value, gpu, writable);
}
