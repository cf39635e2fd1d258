// A graph computed exactly, in the field of the prime 2^61 - 1: a float is a residue, integers and booleans are what
// they are. Sums, products and quotients are exact, so two sides that agree on random residues are the same rational
// function but for a chance of about 2^-50; functions like exp are random functions of a key, floats are ordered by
// representative.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tessera {

inline constexpr uint64_t kFieldPrime = (uint64_t{1} << 61) - 1;

// Numbers of the field are 0 to kFieldPrime - 1.
inline uint64_t field_add(uint64_t a, uint64_t b) {
    uint64_t sum = a + b;
    return sum >= kFieldPrime ? sum - kFieldPrime : sum;
}
inline uint64_t field_sub(uint64_t a, uint64_t b) { return a >= b ? a - b : a + kFieldPrime - b; }
inline uint64_t field_mul(uint64_t a, uint64_t b) {
    auto product = static_cast<unsigned __int128>(a) * b;
    return field_add(static_cast<uint64_t>(product & kFieldPrime), static_cast<uint64_t>(product >> 61));
}
uint64_t field_power(uint64_t base, uint64_t exponent);
uint64_t field_inverse(uint64_t a);  // of a != 0
uint64_t field_from_int(int64_t value);
std::optional<uint64_t> field_from_real(double value);  // exact: a finite double is m * 2^e. Infinities: see below
inline int64_t field_signed(uint64_t a) {               // the representative nearest 0
    return a <= kFieldPrime / 2 ? static_cast<int64_t>(a) : -static_cast<int64_t>(kFieldPrime - a);
}

// Infinities are no numbers of the field. They can be compared, chosen and loaded; arithmetic with one voids the trial.
inline constexpr uint64_t kFieldInfinity = kFieldPrime, kFieldMinusInfinity = kFieldPrime + 1;

struct FieldTensor {
    DType dtype = DType::f32;
    Sizes sizes;
    std::vector<uint64_t> elements;  // floats: residues; others: the bits of an int64
    std::optional<Tensor> tensor;    // where its elements are known as they are: integers, and constants of the graph

    static std::optional<FieldTensor> from(const Tensor& tensor);  // nothing of strings, complex numbers and NaN
    int64_t count() const { return static_cast<int64_t>(elements.size()); }
    bool operator==(const FieldTensor& other) const {
        return dtype == other.dtype && sizes == other.sizes && elements == other.elements;
    }
};

struct FieldRun {
    enum class Outcome {
        Values,
        Void,         // a division by zero, an infinity, an index out of bounds: other inputs may do
        Unsupported,  // an op without a body or expansion
    };
    Outcome outcome = Outcome::Values;
    std::string reason = {};
    std::vector<FieldTensor> outputs = {};
    // Floats were only added, multiplied and divided: then a difference in the field is one over the rationals.
    bool rational = true;
};

// The inputs in order, with sizes that are constants.
FieldRun evaluate_in_field(const Graph& graph, const std::vector<FieldTensor>& inputs, uint64_t key);

}  // namespace tessera
