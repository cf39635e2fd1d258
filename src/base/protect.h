// Where the public API begins: a fault of ours below it comes back as an error, and the caller's process goes on.
#pragma once

#include <new>

#include "base/check.h"
#include "base/error.h"

namespace tessera {

// What shows a fault again: a file that is there already, or a text and the name of the file to keep it in.
struct Reproducer {
    std::string file = {};
    std::string name = "model.tsr";
    std::function<std::string()> text = {};
};

// E0801 with the folder in which the reproducer, what happened and this version were kept.
Error fault_error(const std::string& what, const std::string& pass, const Reproducer& reproducer);
Error memory_error(const std::string& pass);  // E0408

// f's result; E0801 where a CHECK fails in it, on whatever thread it works. This and attempt() are where an exception
// crosses folders: what had been built is destroyed on its way here.
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

// f's result; where a CHECK fails in it, that as an error and nothing kept: for what can be done in another way.
template <typename F>
auto attempt(const std::string& what, F&& f) -> decltype(f()) {
    try {
        return f();
    } catch (const std::logic_error& e) {  // InternalError, and places outside of a container
        return Error(Code::E0801, "{}: {}", what, e.what());
    }
}

}  // namespace tessera
