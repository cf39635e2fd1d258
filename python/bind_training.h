// tessera.training: steps, parameters in place, saving and resuming.
#pragma once

#include <nanobind/nanobind.h>

void bind_training(nanobind::module_& m);
