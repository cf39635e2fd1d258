// tessera.tile: the builder of tile programs, and their functions. Python's part is in python/tessera/tile/.
#include "bind_tile.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "errors.h"
#include "tessera/tile.h"
#include "tile_launcher.h"

namespace nb = nanobind;
using namespace tessera;
using namespace tessera::tile;

namespace {

DType dtype_named(const std::string& name) {
    auto t = dtype_from_name(name);
    if (!t) throw nb::value_error("no such element type");
    return *t;
}

std::optional<DType> maybe_dtype(const std::optional<std::string>& name) {
    return name ? std::optional(dtype_named(*name)) : std::nullopt;
}

std::vector<void*> addresses(const std::vector<uintptr_t>& memory) {
    std::vector<void*> all;
    for (uintptr_t address : memory) all.push_back(reinterpret_cast<void*>(address));
    return all;
}

void bind_builder(nb::module_& m) {
    using Shape = std::vector<int64_t>;
    nb::class_<Value>(m, "TileValue")
        .def_prop_ro("dtype", [](const Value& v) { return std::string(dtype_name(v.type.dtype)); })
        .def_prop_ro("pointer", [](const Value& v) { return v.type.pointer; })
        .def_prop_ro("then", [](const Value& v) -> std::optional<std::string> {
            return v.type.then ? std::optional(std::string(dtype_name(*v.type.then))) : std::nullopt;
        })
        .def_prop_ro("shape", [](const Value& v) { return v.type.shape; })
        .def_prop_ro("number", [](const Value& v) { return v.number; })
        .def("__repr__", [](const Value& v) { return v.type.to_string(); });
    nb::class_<LineWork>(m, "TileLineWork")
        .def_ro("file", &LineWork::file)
        .def_ro("line", &LineWork::line)
        .def_ro("loads", &LineWork::loads)
        .def_ro("loaded_bytes", &LineWork::loaded_bytes)
        .def_ro("stores", &LineWork::stores)
        .def_ro("stored_bytes", &LineWork::stored_bytes)
        .def_ro("flops", &LineWork::flops)
        .def_ro("unknown_trips", &LineWork::unknown_trips);
    nb::class_<Program>(m, "TileProgram")
        .def("work", &Program::work, nb::arg("numbers"), nb::arg("grid"))
        .def("__str__", &Program::to_string)
        .def_static("parse", [](const std::string& text) { return unwrap(Program::parse(text)); }, nb::arg("text"));
    nb::class_<Builder>(m, "TileBuilder")
        .def(nb::init<std::string>(), nb::arg("name"))
        .def("place", &Builder::place, nb::arg("line"), nb::arg("column"), nb::arg("file"))
        .def("parameter", [](Builder& b, std::string name, const std::string& dtype, bool pointer) {
            return b.parameter(std::move(name), {.dtype = dtype_named(dtype), .pointer = pointer});
        }, nb::arg("name"), nb::arg("dtype"), nb::arg("pointer"))
        .def("constant", [](Builder& b, const Operand& x, const std::optional<std::string>& dtype) {
            return unwrap(b.constant(x, maybe_dtype(dtype)));
        }, nb::arg("literal"), nb::arg("dtype").none() = nb::none())
        .def("full", [](Builder& b, Shape shape, const Operand& x, const std::string& dtype) {
            return unwrap(b.full(std::move(shape), x, dtype_named(dtype)));
        }, nb::arg("shape"), nb::arg("value"), nb::arg("dtype"))
        .def("arange", [](Builder& b, int64_t begin, int64_t end) { return unwrap(b.arange(begin, end)); },
             nb::arg("begin"), nb::arg("end"))
        .def("program_id", [](Builder& b, int axis) { return unwrap(b.program_id(axis)); }, nb::arg("axis"))
        .def("program_count", [](Builder& b, int axis) { return unwrap(b.program_count(axis)); }, nb::arg("axis"))
        .def("binary", [](Builder& b, const std::string& op, const Operand& x, const Operand& y) {
            return unwrap(b.binary(op, x, y));
        }, nb::arg("op"), nb::arg("a"), nb::arg("b"))
        .def("unary", [](Builder& b, const std::string& op, const Operand& x) { return unwrap(b.unary(op, x)); },
             nb::arg("op"), nb::arg("a"))
        .def("select", [](Builder& b, const Operand& c, const Operand& x, const Operand& y) {
            return unwrap(b.select(c, x, y));
        }, nb::arg("condition"), nb::arg("a"), nb::arg("b"))
        .def("fma", [](Builder& b, const Operand& x, const Operand& y, const Operand& z) {
            return unwrap(b.fma(x, y, z));
        }, nb::arg("a"), nb::arg("b"), nb::arg("c"))
        .def("cast", [](Builder& b, const Value& x, const std::string& dtype) {
            return unwrap(b.cast(x, dtype_named(dtype)));
        }, nb::arg("x"), nb::arg("dtype"))
        .def("bitcast", [](Builder& b, const Value& x, const std::string& dtype) {
            return unwrap(b.bitcast(x, dtype_named(dtype)));
        }, nb::arg("x"), nb::arg("dtype"))
        .def("address", [](Builder& b, const Value& p) { return unwrap(b.address(p)); }, nb::arg("pointer"))
        .def("pointer_at", [](Builder& b, const Value& x, const std::string& dtype, const std::optional<std::string>& then) {
            return unwrap(b.pointer_at(x, dtype_named(dtype), maybe_dtype(then)));
        }, nb::arg("address"), nb::arg("dtype"), nb::arg("then").none() = nb::none())
        .def("broadcast", [](Builder& b, const Value& x, Shape s) { return unwrap(b.broadcast(x, std::move(s))); },
             nb::arg("x"), nb::arg("shape"))
        .def("reshape", [](Builder& b, const Value& x, Shape s) { return unwrap(b.reshape(x, std::move(s))); },
             nb::arg("x"), nb::arg("shape"))
        .def("expand", [](Builder& b, const Value& x, int64_t axis) { return unwrap(b.expand(x, axis)); },
             nb::arg("x"), nb::arg("axis"))
        .def("permute", [](Builder& b, const Value& x, Shape order) { return unwrap(b.permute(x, std::move(order))); },
             nb::arg("x"), nb::arg("order"))
        .def("join", [](Builder& b, const Operand& x, const Operand& y) { return unwrap(b.join(x, y)); },
             nb::arg("a"), nb::arg("b"))
        .def("split", [](Builder& b, const Value& x) { return unwrap(b.split(x)); }, nb::arg("x"))
        .def("concatenate", [](Builder& b, const Value& x, const Value& y) { return unwrap(b.concatenate(x, y)); },
             nb::arg("a"), nb::arg("b"))
        .def("gather", [](Builder& b, const Value& x, const Value& i, int64_t axis) {
            return unwrap(b.gather(x, i, axis));
        }, nb::arg("x"), nb::arg("indices"), nb::arg("axis"))
        .def("flip", [](Builder& b, const Value& x, int64_t axis) { return unwrap(b.flip(x, axis)); }, nb::arg("x"),
             nb::arg("axis"))
        .def("load", [](Builder& b, const Value& p, const std::optional<Operand>& mask,
                        const std::optional<Operand>& other) { return unwrap(b.load(p, mask, other)); },
             nb::arg("pointer"), nb::arg("mask").none() = nb::none(), nb::arg("other").none() = nb::none())
        .def("store", [](Builder& b, const Value& p, const Operand& x, const std::optional<Operand>& mask) {
            unwrap(b.store(p, x, mask));
        }, nb::arg("pointer"), nb::arg("value"), nb::arg("mask").none() = nb::none())
        .def("atomic", [](Builder& b, const std::string& how, const Value& p, const Operand& x,
                          const std::optional<Operand>& mask, const std::optional<Operand>& expected) {
            return unwrap(b.atomic(how, p, x, mask, expected));
        }, nb::arg("how"), nb::arg("pointer"), nb::arg("value"), nb::arg("mask").none() = nb::none(),
             nb::arg("expected").none() = nb::none())
        .def("dot", [](Builder& b, const Value& x, const Value& y, const std::optional<Value>& add,
                       const std::string& out, int64_t imprecise, const std::string& precision) {
            return unwrap(b.dot(x, y, add, dtype_named(out), imprecise, precision));
        }, nb::arg("a"), nb::arg("b"), nb::arg("add").none() = nb::none(), nb::arg("out") = "f32",
             nb::arg("imprecise") = 0, nb::arg("precision") = "");
}

void bind_structure(nb::module_& m) {
    auto builder = nb::borrow<nb::class_<Builder>>(m.attr("TileBuilder"));
    using Values = std::vector<Value>;
    builder
        .def("reduce", [](Builder& b, const std::string& how, const Value& x, int64_t axis, bool keep) {
            const Reduction kind = how == "sum" ? Reduction::Sum : how == "min" ? Reduction::Min
                                   : how == "max" ? Reduction::Max : Reduction::Xor;
            return unwrap(b.reduce(kind, x, axis, keep));
        }, nb::arg("how"), nb::arg("x"), nb::arg("axis"), nb::arg("keep"))
        .def("begin_combine", [](Builder& b, const Values& xs) { return unwrap(b.begin_combine(xs)); }, nb::arg("xs"))
        .def("end_reduce", [](Builder& b, const Values& made, int64_t axis, bool keep) {
            return unwrap(b.end_reduce(made, axis, keep));
        }, nb::arg("combined"), nb::arg("axis"), nb::arg("keep"))
        .def("end_scan", [](Builder& b, const Values& made, int64_t axis, bool reverse) {
            return unwrap(b.end_scan(made, axis, reverse));
        }, nb::arg("combined"), nb::arg("axis"), nb::arg("reverse"))
        .def("begin_if", [](Builder& b, const Operand& c) { unwrap(b.begin_if(c)); }, nb::arg("condition"))
        .def("begin_else", [](Builder& b) { unwrap(b.begin_else()); })
        .def("end_if", [](Builder& b, const Values& then, const Values& otherwise) {
            return unwrap(b.end_if(then, otherwise));
        }, nb::arg("then"), nb::arg("otherwise"))
        .def("begin_for", [](Builder& b, const Operand& begin, const Operand& end, const Operand& step, const Values& carried) {
            return unwrap(b.begin_for(begin, end, step, carried));
        }, nb::arg("begin"), nb::arg("end"), nb::arg("step"), nb::arg("carried"))
        .def("end_for", [](Builder& b, const Values& carried) { return unwrap(b.end_for(carried)); }, nb::arg("carried"))
        .def("begin_while", [](Builder& b, const Values& carried) { return unwrap(b.begin_while(carried)); },
             nb::arg("carried"))
        .def("begin_do", [](Builder& b, const Operand& c) { unwrap(b.begin_do(c)); }, nb::arg("condition"))
        .def("end_while", [](Builder& b, const Values& carried) { return unwrap(b.end_while(carried)); },
             nb::arg("carried"))
        .def("print", [](Builder& b, const std::string& text, const Values& values, bool hex) {
            unwrap(b.print(text, values, hex));
        }, nb::arg("text"), nb::arg("values"), nb::arg("hex"))
        .def("check", [](Builder& b, const Operand& c, const std::string& text, const std::optional<Operand>& mask) {
            unwrap(b.check(c, text, mask));
        }, nb::arg("condition"), nb::arg("text"), nb::arg("mask").none() = nb::none())
        .def("finish", [](Builder& b) { return unwrap(b.finish()); });
}

}  // namespace

void bind_tile(nb::module_& m) {
    bind_builder(m);
    bind_structure(m);
    bind_launcher(m);
    using Grid = std::array<int64_t, 3>;
    nb::class_<Function>(m, "TileFunction", nb::dynamic_attr())
        .def("launch", [](const Function& f, const Grid& grid, const std::vector<uintptr_t>& memory,
                          const std::vector<int64_t>& numbers, uintptr_t stream) {
            const std::vector<void*> pointers = addresses(memory);
            Status status = [&] {
                nb::gil_scoped_release release;
                return f.launch(grid, pointers, numbers, reinterpret_cast<void*>(stream));
            }();
            unwrap(std::move(status));
        }, nb::arg("grid"), nb::arg("memory"), nb::arg("numbers"), nb::arg("stream") = 0)
        .def("interpret", [](const Function& f, const Grid& grid, const std::vector<uintptr_t>& memory,
                             const std::vector<int64_t>& numbers, bool blocks) {
            const std::vector<void*> pointers = addresses(memory);
            Status status = [&] {
                nb::gil_scoped_release release;
                return f.interpret(grid, pointers, numbers, blocks);
            }();
            unwrap(std::move(status));
        }, nb::arg("grid"), nb::arg("memory"), nb::arg("numbers"), nb::arg("blocks") = false)
        .def("emit", [](const Function& f, const std::string& what) { return unwrap(f.emit(what)); }, nb::arg("what"))
        .def("ahead_of_time", [](const Function& f, const std::string& target) {
            AheadOfTime made = unwrap(f.ahead_of_time(target));
            return std::pair(nb::bytes(made.object.data(), made.object.size()), std::move(made.header));
        }, nb::arg("target") = "host");
    // `arguments`: for each parameter how it is given, "array", "anywhere", "size", "size16" (a multiple of 16) or
    // "element", or the parameter whose memory it is in.
    m.def("compile_tile", [](const Program& program, const std::vector<std::variant<int, std::string>>& arguments,
                             int grid_rank, int threads, const std::string& target, int warps,
                             int stages) {
        std::vector<Argument> all;
        for (const auto& argument : arguments) {
            if (const int* of = std::get_if<int>(&argument)) {
                all.push_back({Argument::As::Shared, *of});
                continue;
            }
            const std::string& how = std::get<std::string>(argument);
            all.push_back({how == "array" ? Argument::As::Array : how.starts_with("size") ? Argument::As::Size
                           : how == "anywhere" ? Argument::As::Anywhere : Argument::As::Element, -1, how == "size16" ? 16 : 1});
        }
        Result<Function> made = [&] {
            nb::gil_scoped_release release;
            return Function::compile(program, all, grid_rank, threads, {target, warps, stages});
        }();
        return unwrap(std::move(made));
    }, nb::arg("program"), nb::arg("arguments"), nb::arg("grid_rank"), nb::arg("threads"), nb::arg("target") = "host",
       nb::arg("warps") = 4, nb::arg("stages") = 3);
}
