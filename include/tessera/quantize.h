// Quantization: profiles the values of a model on sample data, then writes a model that computes with 8-bit integers.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tessera/compile.h"

namespace tessera {

// The range and the histogram of one value. Bin i counts the elements in [(first + i), (first + i + 1)) * 2^exponent. The
// exponent is the smallest one at which the range fits into kBins bins, so that a histogram depends on the data alone,
// not on their order, and profiles of parts of the data merge exactly.
struct ValueProfile {
    static constexpr size_t kBins = 2048;
    double min = 0, max = 0;
    int64_t count = 0;  // elements
    int exponent = 0;
    int64_t first = 0;
    std::vector<int64_t> bins;
    // The largest magnitude and the sum of each channel; only for inputs of convolutions and matrix products.
    std::vector<double> channel_max, channel_sum;

    void add(const float* data, size_t count);         // all must be finite
    void merge(const ValueProfile& other);             // drops the channels' data if the numbers of channels differ
    bool operator==(const ValueProfile&) const = default;
};

// The result of calibration. Values are those of the optimized model.
struct Profile {
    std::string model;    // a hash of the optimized model
    int64_t samples = 0;  // runs
    std::map<std::string, ValueProfile> values;

    Status merge(const Profile& other);                // E0501 for a profile of another model
    std::string to_json() const;
    static Result<Profile> parse(const std::string& json, const std::string& source = "profile");
    static Result<Profile> load(const std::string& path);  // E0101, E0110
    Status save(const std::string& path) const;            // E0105
    bool operator==(const Profile&) const = default;
};

struct CalibrateOptions {
    bool optimize = true;  // profile the optimized model; quantize() must use the same setting
    CompileOptions compile = {};
    std::function<void(size_t done, size_t total)> progress = {};
    const std::atomic<bool>* cancel = nullptr;
};

// Runs the compiled model on samples and observes the values that quantization may need.
class Calibration {
   public:
    static Result<Calibration> create(const Model& model, const CalibrateOptions& options = {});
    // E0407 if an observed value is not finite; E0401 to E0405 for inputs that do not fit the model.
    Status add(const NamedData& sample);
    const Profile& profile() const;

    struct State;
    explicit Calibration(std::shared_ptr<State> state) : state_(std::move(state)) {}

   private:
    std::shared_ptr<State> state_;
};
// The profile of all samples. E0501 if there are none.
Result<Profile> calibrate(const Model& model, const std::vector<NamedData>& samples, const CalibrateOptions& options = {});

struct QuantizeOptions {
    // How ranges are chosen: "minmax", "percentile" (of the elements, on both sides together), "entropy" (smallest KL
    // divergence) or "mse" (smallest squared error).
    std::string scheme = "minmax";
    double percentile = 99.99;
    std::string activations = "uint8";  // "uint8", "int8", "uint16" or "int16"
    bool symmetric = false;             // zero point 0, or the middle of an unsigned type
    bool power_of_two = false;          // scales are powers of two
    bool per_channel = true;            // one weight scale for each output channel
    std::string weight_scheme = "minmax";  // or "mse"
    bool bias_correction = false;       // compensates the mean error of each output channel due to rounded weights
    bool products = false;              // also quantize matrix products of two activations (attention)
    bool optimize = true;               // quantize the optimized model
    // "qdq", or "integer": convolutions as QLinearConv, products as MatMulInteger, pools and bounds on bytes, so that
    // every runtime computes the same integers. The report's errors are those of the QDQ form.
    std::string format = "qdq";
    std::vector<std::string> keep = {};  // patterns (*, ?) of nodes, or ops ("Conv"), that stay in floating point
    // Data to calibrate on if there is no profile, and to measure the error of each layer with.
    std::vector<NamedData> samples = {};
    CompileOptions compile = {};
    std::function<void(std::string_view what, size_t done, size_t total)> progress = {};
    const std::atomic<bool>* cancel = nullptr;
};

// One convolution or matrix product.
struct QuantizedLayer {
    std::string node, op, output;      // its name (or that of its output), ONNX operator, and output value
    bool quantized = false;
    std::string why = {};              // the reason if it is not quantized
    double low = 0, high = 0;          // range of its first input
    double scale = 0;
    int64_t zero_point = 0;
    double clipped = 0;                // share of the elements of its first input outside the range
    std::optional<double> weight_snr;  // in dB, of the rounded weights
    std::optional<double> snr;         // in dB, of its output, relative to the original model on the samples
    int64_t weight_bytes = 0;          // after quantization
};

struct QuantizeReport {
    std::vector<QuantizedLayer> layers;
    int64_t quantized = 0;              // layers
    int64_t bytes_before = 0, bytes_after = 0;  // of all constants
    std::vector<std::pair<std::string, double>> output_snr;  // by output, in dB on the samples; empty without samples
    double seconds = 0;
};

struct Quantized {
    Model model;
    QuantizeReport report;
};

// A model in the QDQ form of ONNX (QuantizeLinear and DequantizeLinear around each quantized op), for any runtime; or
// in integers.
// Without a profile, calibrates on options.samples. E0501 for unknown options, a profile of another model, or a model
// without an op that can be quantized.
Result<Quantized> quantize(const Model& model, const std::optional<Profile>& profile, const QuantizeOptions& options = {});

}  // namespace tessera
