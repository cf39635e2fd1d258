// From errors as values to Python's exceptions.
#pragma once

#include <fmt/format.h>
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <string>
#include <vector>

#include "tessera/error.h"

[[noreturn]] inline void raise(const tessera::Error& e) {
    namespace nb = nanobind;
    nb::object type = nb::module_::import_("tessera._errors").attr("Error");
    nb::object exception = type(std::string(tessera::code_name(e.code())), e.message(), e.where(), e.note(), e.hint());
    PyErr_SetObject(type.ptr(), exception.ptr());
    throw nb::python_error();
}

// By Python's warnings module, at the line of the user's; one that is made an error there is raised.
inline void warn(const std::vector<tessera::Warning>& warnings) {
    namespace nb = nanobind;
    if (warnings.empty()) return;
    nb::object say = nb::module_::import_("tessera._errors").attr("warn");
    for (const tessera::Warning& w : warnings) {
        std::string text = std::string(tessera::code_name(w.code)) + ": " + w.message;
        if (!w.where.empty()) text += "\n  at: " + w.where;
        say(text);
    }
}

// For what Python prints: "1 node", "2 nodes", and a long formula cut short.
inline std::string plural(int64_t n, const char* what) { return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s"); }
inline std::string shortened(const std::string& text) { return text.size() > 60 ? text.substr(0, 57) + "..." : text; }

template <typename T>
T unwrap(tessera::Result<T> result) {
    if (!result.ok()) raise(result.error());
    return std::move(result).value();
}

inline void unwrap(tessera::Status status) {
    if (!status.ok()) raise(status.error());
}
