#include "torch_tensors.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string_view>
#include <unordered_map>

namespace nb = nanobind;

namespace {

// DLPack's table of functions, as its version 1 lays it out. What is not used here stands as an address.
struct ExchangeTable {
    uint32_t major, minor;
    const ExchangeTable* previous;
    void *allocate, *take, *give;
    int (*view)(void* object, nb::dlpack::dltensor* out);
    int (*current_stream)(int device_type, int32_t device, void** out);
};

constexpr int kDlProcessor = 1, kDlGpu = 2, kDlPinned = 3;

// What a tensor is asked for where there is no table. It lives as long as the process.
struct Words {
    nb::object contiguous = interned("is_contiguous"), device = interned("get_device"), dtype = interned("dtype"),
               address = interned("data_ptr"), count = interned("numel"), on_processor = interned("is_cpu"),
               on_gpu = interned("is_cuda"), negated = interned("is_neg");
};

const Words& tensor_words() {
    static const auto* words = new Words();
    return *words;
}

// Of an element type of PyTorch's, by its name; 0 where kernels have no such elements. Types live as long as the
// process.
char element_by_name(PyObject* dtype) {
    static std::unordered_map<PyObject*, char> known;
    auto [found, fresh] = known.try_emplace(dtype, 0);
    if (!fresh) return found->second;
    constexpr std::pair<std::string_view, char> kNames[] = {
        {"torch.float32", 'f'}, {"torch.float64", 'd'},       {"torch.float16", 'e'},    {"torch.bfloat16", 'w'},
        {"torch.bool", '?'},    {"torch.int8", 'b'},          {"torch.int16", 'h'},      {"torch.int32", 'i'},
        {"torch.int64", 'q'},   {"torch.uint8", 'B'},         {"torch.uint16", 'H'},     {"torch.uint32", 'I'},
        {"torch.uint64", 'Q'},  {"torch.float8_e4m3fn", 'x'}, {"torch.float8_e5m2", 'y'}};
    const std::string name = nb::cast<std::string>(nb::str(nb::handle(dtype)));
    for (const auto& [text, element] : kNames)
        if (name == text) found->second = element;
    if (found->second) Py_INCREF(dtype);
    return found->second;
}

char element_of(nb::dlpack::dtype type) {
    enum { Int = 0, Uint = 1, Float = 2, Bfloat = 4, Bool = 6, E4m3fn = 10, E5m2 = 12 };
    if (type.lanes != 1) return 0;
    const int place = type.bits == 8 ? 0 : type.bits == 16 ? 1 : type.bits == 32 ? 2 : type.bits == 64 ? 3 : 4;
    switch (type.code) {
        case Int: return "bhiq\0"[place];
        case Uint: return "BHIQ\0"[place];
        case Float: return "\0efd\0"[place];
        case Bfloat: return "\0w\0\0\0"[place];
        case Bool: return "?\0\0\0\0"[place];
        case E4m3fn: return "x\0\0\0\0"[place];
        case E5m2: return "y\0\0\0\0"[place];
        default: return 0;
    }
}

struct TensorType {
    bool known = false;  // PyTorch's
    const ExchangeTable* table = nullptr;
};

TensorType look_at(nb::handle tensor) {
    const nb::handle type = tensor.type();
    const Words& words = tensor_words();
    TensorType made;
    made.known = nb::cast<std::string>(nb::str(type.attr("__module__"))).starts_with("torch") &&
                 nb::hasattr(tensor, words.on_processor) && nb::hasattr(tensor, words.address);
    constexpr const char* kAttribute = "__dlpack_c_exchange_api__";
    if (!made.known || !nb::hasattr(type, kAttribute)) return made;
    const nb::object capsule = type.attr(kAttribute);
    const void* address = PyCapsule_GetPointer(capsule.ptr(), "dlpack_exchange_api");
    if (!address) PyErr_Clear();
    const auto* table = static_cast<const ExchangeTable*>(address);
    while (table && table->major > 1) table = table->previous;
    if (table && table->major == 1 && table->view && table->current_stream) made.table = table;
    return made;
}

// The table of any tensor that was seen: all are PyTorch's own.
const ExchangeTable* seen_table = nullptr;

const TensorType& type_of(nb::handle tensor) {
    static auto& types = *new std::unordered_map<PyObject*, TensorType>();
    static const std::pair<PyObject* const, TensorType>* last = nullptr;  // most tensors are of one type
    PyObject* const type = tensor.type().ptr();
    if (last && last->first == type) return last->second;
    auto [found, fresh] = types.try_emplace(type);
    if (fresh) {
        Py_INCREF(type);
        found->second = look_at(tensor);
        if (found->second.table) seen_table = found->second.table;
    }
    last = &*found;
    return found->second;
}

// None where the elements are not what lies there: a tensor without memory of its own, or one whose elements are to be
// negated when they are read. PyTorch makes the latter of imaginary parts, which are contiguous where there is one.
std::optional<TorchTensor> with_memory(nb::handle tensor, const TorchTensor& read) {
    if (!read.begin && read.count > 0) return std::nullopt;
    if (read.count != 1) return read;
    const nb::object negated = nb::getattr(tensor, tensor_words().negated, nb::none());
    return negated.is_none() || !nb::cast<bool>(negated()) ? std::optional(read) : std::nullopt;
}

std::optional<TorchTensor> read_by_table(PyObject* value, const ExchangeTable& table, std::vector<int64_t>* sizes) {
    nb::dlpack::dltensor view;
    if (table.view(value, &view) != 0) {
        PyErr_Clear();
        return std::nullopt;
    }
    const int where = view.device.device_type;
    const bool processor = where == kDlProcessor || where == kDlPinned;
    const char element = element_of(view.dtype);
    if (!element || (!processor && where != kDlGpu)) return std::nullopt;
    int64_t count = 1;
    for (int d = view.ndim - 1; d >= 0; --d) {
        if (view.strides && view.shape[d] != 1 && view.strides[d] != count) return std::nullopt;
        count *= view.shape[d];
    }
    if (sizes) sizes->assign(view.shape, view.shape + view.ndim);
    char* const begin = view.data ? static_cast<char*>(view.data) + view.byte_offset : nullptr;
    return with_memory(value, {processor ? TorchTensor::kProcessor : view.device.device_id, element, begin, count});
}

std::optional<TorchTensor> read_by_words(nb::handle tensor, std::vector<int64_t>* sizes) {
    const Words& words = tensor_words();
    if (!nb::cast<bool>(tensor.attr(words.contiguous)())) return std::nullopt;
    const auto device = nb::cast<int64_t>(tensor.attr(words.device)());
    const bool processor = device == TorchTensor::kProcessor;
    if (!nb::cast<bool>(tensor.attr(processor ? words.on_processor : words.on_gpu))) return std::nullopt;
    const char element = element_by_name(nb::object(tensor.attr(words.dtype)).ptr());
    if (!element) return std::nullopt;
    if (sizes) *sizes = nb::cast<std::vector<int64_t>>(nb::tuple(tensor.attr("shape")));
    char* begin = reinterpret_cast<char*>(nb::cast<uintptr_t>(tensor.attr(words.address)()));
    return with_memory(tensor, {device, element, begin, nb::cast<int64_t>(tensor.attr(words.count)())});
}

}  // namespace

std::optional<TorchTensor> read_torch(PyObject* value, std::vector<int64_t>* sizes) {
    const TensorType& type = type_of(value);
    if (!type.known) return std::nullopt;
    return type.table ? read_by_table(value, *type.table, sizes) : read_by_words(value, sizes);
}

bool is_torch(PyObject* value) { return type_of(value).known; }

void* torch_stream(int64_t device) {
    void* stream = nullptr;
    if (seen_table && seen_table->current_stream(kDlGpu, static_cast<int32_t>(device), &stream) == 0) return stream;
    if (PyErr_Occurred()) PyErr_Clear();
    static auto& stream_of = *new nb::object(nb::module_::import_("torch._C").attr("_cuda_getCurrentRawStream"));
    return reinterpret_cast<void*>(nb::cast<uintptr_t>(stream_of(device)));
}
