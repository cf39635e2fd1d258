// Maps go into what reads them, unless that would compute costly functions again, or they are to stay. Words that bytes
// are packed into always stay.
#pragma once

#include "kernel/schedule/schedule.h"

namespace tessera {

Status inline_maps(Schedule& s, const std::function<bool(const Stage&)>& stays = {});

}  // namespace tessera
