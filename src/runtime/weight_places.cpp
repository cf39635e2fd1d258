#include "runtime/weight_places.h"

#include "base/check.h"
#include "runtime/memory_plan.h"
#include "runtime/run_plan.h"

namespace tessera {

Result<WeightPlaces> place_weights(const Program& program, const ProgramLayout& layout) {
    WeightPlaces places;
    places.offsets.assign(program.buffers.size(), -1);
    places.sizes.assign(program.buffers.size(), 0);
    for (size_t b = 0; b < program.buffers.size(); ++b) {
        const bool weight = layout.home[b] == Home::Constant || layout.home[b] == Home::Prepared;
        if (layout.root[b] != static_cast<int>(b) || !weight || !layout.in_run[b]) continue;
        auto sizes = TRY(buffer_sizes(program.buffers[b], {}));
        CHECK(sizes, "weight \"{}\" has no known size", program.buffers[b].name);
        places.offsets[b] = places.bytes;
        places.sizes[b] = TRY(buffer_bytes(program.buffers[b], *sizes));
        places.bytes += aligned(places.sizes[b]);
    }
    return places;
}

}  // namespace tessera
