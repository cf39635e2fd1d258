// The network between ranks as the alpha-beta model of collectives sees it: fitted to all-reduces over a transport.
#pragma once

#include "runtime/collectives/transport.h"
#include "shard/collective_time.h"

namespace tessera::shard {

// Every rank calls it. What combining terms takes is part of a byte's time. E0501 for a single rank.
Result<NetworkLevel> fit_network(Transport& transport);

// Latency and bandwidth from the seconds of rings for two sizes: 2 (n - 1) latencies, 2 (n - 1) / n of the bytes.
NetworkLevel fitted_level(int64_t ranks, double small_bytes, double small_seconds, double large_bytes,
                          double large_seconds);

}  // namespace tessera::shard
