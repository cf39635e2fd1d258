// What a default schedule is made for, whatever the back end.
#pragma once

#include "base/machine.h"

namespace tessera {

struct ScheduleOptions {
    Machine machine;
    int threads = 1;
    bool strict = false;
    bool fast = false;  // operands of products may lose digits
};

}  // namespace tessera
