// A step of training a GPT: its blocks simulated once, composed over stages, microbatches and replicas.
#pragma once

#include "shard/simulate/mesh_roles.h"

namespace tessera::shard {

Result<Simulated> gpt_simulation(const GptShape& shape, const SimulateOptions& options);

}  // namespace tessera::shard
