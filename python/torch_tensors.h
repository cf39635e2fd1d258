// Tensors of PyTorch's, read without Python's help where PyTorch has a table of functions for it (DLPack 1.3).
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <vector>

// A word that Python has once.
inline nanobind::object interned(const char* name) { return nanobind::steal(PyUnicode_InternFromString(name)); }

struct TorchTensor {
    static constexpr int64_t kProcessor = -1;  // as PyTorch counts devices

    int64_t device;  // a GPU's number
    char element;    // as Python's struct has it; w: bfloat16, x: float8_e4m3fn, y: float8_e5m2
    char* begin;
    int64_t count;
};

// Null where it is no tensor of PyTorch's, or not one piece of memory on the processor or a GPU.
// `sizes`: its own are put there, unless null.
std::optional<TorchTensor> read_torch(PyObject* value, std::vector<int64_t>* sizes = nullptr);

bool is_torch(PyObject* value);  // a tensor of PyTorch's

// The stream that PyTorch works on.
void* torch_stream(int64_t device);
