// tessera.shard: models partitioned over a mesh, and their reports.
#pragma once

#include <nanobind/nanobind.h>

void bind_shard(nanobind::module_& m);
