// A model of f32 as one of f64: the reference that the errors of f32 are measured against.
#pragma once

#include "command.h"

namespace tessera::cli {

// Inputs, constants and types that attributes name become f64 where they are f32. E0208 where an op has no f64 form or
// graphs are nested.
Result<Model> in_f64(const Model& model);
Result<Datum> in_f64(const Datum& value);

Result<std::vector<Datum>> evaluate_in_f64(const Model& model, const NamedData& given);

}  // namespace tessera::cli
