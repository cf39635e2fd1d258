#include "bind_custom_op.h"

#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <stdexcept>

#include "errors.h"
#include "tessera/custom_op.h"
#include "tessera/dtype.h"

namespace nb = nanobind;
using namespace tessera;

namespace {

using SaidType = std::pair<std::string, std::optional<std::vector<std::string>>>;

std::string said(const nb::python_error& e) {
    return nb::str(e.type().attr("__name__")).c_str() + std::string(": ") + nb::str(e.value()).c_str();
}

Result<std::vector<CustomType>> call_types(const nb::object& function, const std::vector<CustomType>& inputs,
                                           const CustomAttrs& attrs) {
    const nb::gil_scoped_acquire held;
    try {
        std::vector<SaidType> given;
        for (const CustomType& t : inputs) given.emplace_back(std::string(dtype_name(t.dtype)), t.dims);
        std::vector<CustomType> types;
        for (const auto& [dtype, dims] : nb::cast<std::vector<SaidType>>(function(given, attrs))) {
            const auto known = dtype_from_name(dtype);
            if (!known) return Error(Code::E0208, fmt::format("\"{}\" is not an element type", dtype));
            types.push_back({*known, dims});
        }
        return types;
    } catch (const nb::python_error& e) {
        return Error(Code::E0210, "its types cannot be found: " + said(e));
    } catch (const nb::cast_error&) {
        return Error(Code::E0210, "its types function did not return a list of types");
    }
}

Result<std::vector<Tensor>> call_run(const nb::object& function, const std::vector<Tensor>& inputs,
                                     const CustomAttrs& attrs) {
    const nb::gil_scoped_acquire held;
    try {
        return nb::cast<std::vector<Tensor>>(function(inputs, attrs));
    } catch (const nb::python_error& e) {
        throw std::runtime_error(said(e));
    }
}

}  // namespace

void bind_custom_op(nb::module_& m) {
    m.def(
        "register_op",
        [](const std::string& domain, const std::string& name, size_t inputs, size_t outputs, const CustomAttrs& attrs,
           nb::object types, nb::object run) {
            // Never freed: models may call them until the process ends, which may be after the interpreter does.
            auto* const held = new std::pair<nb::object, nb::object>(std::move(types), std::move(run));
            CustomOp op{.domain = domain, .name = name, .inputs = inputs, .outputs = outputs, .attrs = attrs};
            op.types = [held](const std::vector<CustomType>& given, const CustomAttrs& a) {
                return call_types(held->first, given, a);
            };
            op.run = [held](const std::vector<Tensor>& given, const CustomAttrs& a) {
                return call_run(held->second, given, a);
            };
            unwrap(register_op(std::move(op)));
        },
        nb::arg("domain"), nb::arg("name"), nb::arg("inputs"), nb::arg("outputs"), nb::arg("attrs"), nb::arg("types"),
        nb::arg("run"),
        nb::sig("def register_op(domain: str, name: str, inputs: int, outputs: int, attrs: dict[str, typing.Any], "
                "types: object, run: object) -> None"));
}
