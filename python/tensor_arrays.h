// Tensors as arrays of NumPy's.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <optional>

#include "tessera/tensor.h"

// Nothing where DLPack has no such element type.
std::optional<nanobind::dlpack::dtype> to_dlpack(tessera::DType t);

bool has_numpy(tessera::DType t);  // such an element type, by itself

// Over the tensor's memory; None where NumPy has no such element type, or it is a GPU's.
nanobind::object numpy_of(const tessera::Tensor& t);

// The same value in memory that nobody else has, so that it can be written to.
tessera::Datum owned(tessera::Datum d);
