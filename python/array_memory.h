// Where arrays of Python's lie, read without Python's help: NumPy's, PyTorch's, and those that say where on a GPU.
#pragma once

#include <nanobind/nanobind.h>

#include <optional>

#include "tessera/tensor.h"

// Of a buffer's format, as read_torch names elements; 0 where kernels have no such elements, or elements of the other
// byte order.
char buffer_element(const char* format, Py_ssize_t size);

// Of an element as read_torch and buffer_element name it.
tessera::DType element_type(char element);

// Whether it is an array of NumPy's; `exactly`: and of no type that was derived from those.
bool is_numpy(PyObject* value, bool exactly = false);

struct ArrayMemory {
    enum class Whose { NumPy, Torch, Other };

    tessera::Tensor tensor;  // over it, which nobody keeps alive
    Whose whose;
    std::optional<uintptr_t> stream = {};  // of a GPU's, that others compute it on
};

// Null where it is none of those, or not one piece of memory. `gpu`: that arrays lie on which do not say it, and whose
// memory the driver does not know. `writable`: null where it may not be written to.
std::optional<ArrayMemory> read_array_memory(PyObject* value, int gpu, bool writable);
