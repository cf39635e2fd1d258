// tessera.custom_op: operators that are Python functions.
#pragma once

#include <nanobind/nanobind.h>

void bind_custom_op(nanobind::module_& m);
