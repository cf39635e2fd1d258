// From errors as values to Python's exceptions.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "tessera/error.h"

[[noreturn]] inline void raise(const tessera::Error& e) {
    namespace nb = nanobind;
    nb::object type = nb::module_::import_("tessera._errors").attr("Error");
    nb::object exception = type(std::string(tessera::code_name(e.code())), e.message(), e.where(), e.note(), e.hint());
    PyErr_SetObject(type.ptr(), exception.ptr());
    throw nb::python_error();
}

template <typename T>
T unwrap(tessera::Result<T> result) {
    if (!result.ok()) raise(result.error());
    return std::move(result).value();
}

inline void unwrap(tessera::Status status) {
    if (!status.ok()) raise(status.error());
}
