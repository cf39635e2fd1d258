// A partitioned model as SVG: its nodes from top to bottom, coloured by the sharding of their results, with weights
// beside them and collectives on the edges.
#pragma once

#include "tessera/shard.h"

namespace tessera::cli {

std::string shard_picture(const ShardReport& report, const std::string& model);

}  // namespace tessera::cli
