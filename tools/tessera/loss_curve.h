// The losses of a training run, averaged where there are many, drawn on a terminal and as a picture.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tessera::cli {

class LossCurve {
  public:
    static constexpr size_t kMostPoints = 512;

    void add(double loss);
    const std::vector<double>& points() const { return points_; }  // each the mean of steps_per_point() losses
    size_t steps_per_point() const { return each_; }

    // As a checkpoint keeps it, every bit; false where the text is none.
    std::string text() const;
    bool read(std::string_view text);

    std::string plot(size_t columns, size_t rows) const;  // lines of text, for a terminal
    std::string svg() const;

  private:
    std::vector<double> points_;
    size_t each_ = 1, open_ = 0;  // of the point that is not complete
    double sum_ = 0;
};

}  // namespace tessera::cli
