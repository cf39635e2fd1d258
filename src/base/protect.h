// Wraps the public API: an internal error below it is returned as an Error, and the process continues.
#pragma once

#include <new>

#include "base/check.h"
#include "base/error.h"

namespace tessera {

// A reproducer of an internal error: an existing file, or a text and the name of the file to write it to.
struct Reproducer {
    std::string file = {};
    std::string name = "model.tsr";
    std::function<std::string()> text = {};
};

// E0801, with the folder to which the reproducer, the failure and the version were written.
Error fault_error(const std::string& what, const std::string& pass, const Reproducer& reproducer);
Error memory_error(const std::string& pass);  // E0408

// Returns f's result, or E0801 if a CHECK fails in it, on any thread. Only here and in attempt() do exceptions cross
// component boundaries; objects are destroyed by stack unwinding.
template <typename F>
auto protect(const std::string& pass, const Reproducer& reproducer, F&& f) -> decltype(f()) {
    CheckScope scope(
        pass, reproducer.text ? reproducer.text : [&] { return reproducer.file; });
    try {
        return f();
    } catch (const InternalError& e) {
        return fault_error(e.what(), pass, reproducer);
    } catch (const std::bad_alloc&) {
        return memory_error(pass);
    } catch (const std::exception& e) {
        return fault_error(e.what(), pass, reproducer);
    }
}

// Returns f's result, or an error without a reproducer if a CHECK fails in it. For work that has a fallback.
template <typename F>
auto attempt(const std::string& what, F&& f) -> decltype(f()) {
    try {
        return f();
    } catch (const std::logic_error& e) {  // InternalError, and places outside of a container
        return Error(Code::E0801, "{}: {}", what, e.what());
    }
}

}  // namespace tessera
