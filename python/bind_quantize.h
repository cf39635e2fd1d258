// Calibration and quantization.
#pragma once

#include <nanobind/nanobind.h>

void bind_quantize(nanobind::module_& m);
