// tessera.tile.
#pragma once

#include <nanobind/nanobind.h>

void bind_tile(nanobind::module_& m);
