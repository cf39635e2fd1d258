// A point in wall-clock time after which no new work is started. There is none by default.
#pragma once

#include <algorithm>
#include <chrono>

namespace tessera {

class Deadline {
  public:
    using Clock = std::chrono::steady_clock;
    Deadline() = default;
    static Deadline in(double seconds) { return Deadline().within(seconds); }
    // The earlier of this deadline and `seconds` from now.
    Deadline within(double seconds) const {
        Deadline out = *this;
        if (seconds < kLong)
            out.at_ = std::min(at_, Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                                       std::chrono::duration<double>(seconds)));
        return out;
    }
    bool passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }
    // Remaining seconds, at least 0; a very large number if there is no deadline.
    double left() const {
        if (at_ == Clock::time_point::max()) return kLong;
        return std::max(0.0, std::chrono::duration<double>(at_ - Clock::now()).count());
    }
    bool ever() const { return at_ != Clock::time_point::max(); }
    // A deadline after this part of the remaining time.
    Deadline share(double part) const { return within(part * left()); }

  private:
    static constexpr double kLong = 1e8;
    Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace tessera
