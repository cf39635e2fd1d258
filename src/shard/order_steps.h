// The order of a plan's steps: collectives start as soon as what they send is there, and what does not wait for them is
// computed meanwhile.
#pragma once

#include "shard/plan.h"

namespace tessera::shard {

// Steps in rounds: computation that needs no collective but those of earlier rounds, and then the collectives of what
// it made. Fills Plan::cuts. `operations`: computation that is worth a segment of its own beside a collective.
void order_steps(Plan& plan, double operations);

}  // namespace tessera::shard
