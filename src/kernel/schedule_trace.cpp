// The trace of a schedule: printed, read, and applied again.
#include "kernel/schedule.h"

namespace tessera {

std::string Schedule::print_trace() const {
    std::string text;
    for (const TraceStep& step : trace_) {
        for (size_t i = 0; i < step.results.size(); ++i) text += (i ? ", " : "") + step.results[i];
        if (!step.results.empty()) text += " = ";
        text += step.primitive + "(";
        for (size_t i = 0; i < step.args.size(); ++i) text += (i ? ", " : "") + step.args[i];
        text += ")\n";
    }
    return text;
}

}  // namespace tessera
