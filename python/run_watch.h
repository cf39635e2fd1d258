// A run that Python asked for: Ctrl-C stops it, and whoever looks on is told how far it is.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <atomic>
#include <chrono>

#include "errors.h"
#include "tessera/model.h"

class RunWatch {
  public:
    // `progress`: a function of Python's, or None. `at_once`: a device is given all steps together, unless somebody
    // looks on.
    RunWatch(nanobind::object progress, bool at_once) : progress_(std::move(progress)) {
        options.cancel = &cancel_;
        options.warnings = &warnings_;
        if (!at_once || !progress_.is_none())
            options.progress = [this](std::string_view node, size_t done, size_t total) { look(node, done, total); };
    }
    RunWatch(const RunWatch&) = delete;

    // After the run, with the GIL: raises what stopped it, and says its warnings.
    void end() {
        if (interrupted_) throw nanobind::python_error();
        warn(warnings_);
    }

    tessera::RunOptions options;

  private:
    static constexpr auto kSignalsEvery = std::chrono::milliseconds(50);  // taking the GIL is not free
    using Clock = std::chrono::steady_clock;

    void look(std::string_view node, size_t done, size_t total) {
        if (cancel_) return;
        const auto now = Clock::now();
        const bool news = !progress_.is_none() && done != done_;  // counts repeat while nested graphs run
        if (!news && now < next_) return;
        next_ = now + kSignalsEvery;
        done_ = done;
        nanobind::gil_scoped_acquire gil;
        bool stop = PyErr_CheckSignals() != 0;
        if (!stop && news) {
            try {
                progress_(std::string(node), done, total);
            } catch (nanobind::python_error& e) {
                e.restore();
                stop = true;
            }
        }
        if (stop) interrupted_ = cancel_ = true;
    }

    nanobind::object progress_;
    std::atomic<bool> cancel_{false};
    bool interrupted_ = false;
    size_t done_ = 0;
    std::vector<tessera::Warning> warnings_;
    Clock::time_point next_ = Clock::now() + kSignalsEvery;
};
