// Whether whole numbers can meet a list of linear constraints. "Impossible" is certain, its opposite is not:
// constraints with large numbers are left out, work is limited, and fractions that meet all constraints can hide that
// no integers do.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace tessera {

// Coefficients by unknown, none of them 0, and a constant.
struct LinearSum {
    std::map<int, int64_t> terms;
    int64_t constant = 0;
    bool known = true;  // false: an overflow, and nothing is known

    void add(const LinearSum& other, int64_t factor = 1);
};
inline LinearSum operator-(LinearSum a, const LinearSum& b) {
    a.add(b, -1);
    return a;
}
inline LinearSum operator+(LinearSum a, const LinearSum& b) {
    a.add(b);
    return a;
}

class LinearSystem {
  public:
    LinearSum unknown(std::optional<int64_t> low, std::optional<int64_t> high);  // a new one
    void require_zero(const LinearSum& sum) { add(sum, true); }
    void require_not_negative(const LinearSum& sum) { add(sum, false); }

    // Takes equalities apart, solves them, narrows the ranges of the unknowns that are left, and eliminates those by
    // adding up inequalities (Fourier and Motzkin), all of it rounded to integers.
    bool impossible() const;

  private:
    struct Constraint {
        LinearSum sum;
        bool zero;  // or at least 0
    };
    void add(const LinearSum& sum, bool zero) {
        if (sum.known) constraints_.push_back({sum, zero});
    }
    static bool reduce(Constraint& c);
    static void split_equalities(std::vector<Constraint>& all);
    static bool solve_equalities(std::vector<Constraint>& all, int unknowns);
    static bool narrow(std::vector<Constraint>& all);
    static bool add_up(std::vector<Constraint> all);

    std::vector<Constraint> constraints_;
    int unknowns_ = 0;
};

}  // namespace tessera
