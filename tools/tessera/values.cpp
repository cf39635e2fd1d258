#include "values.h"

#include <cmath>
#include <complex>

#include "graph/npy.h"
#include "graph/onnx/values.h"
#include "onnx/file.h"
#include "onnx/read.h"
#include "onnx/write.h"

namespace tessera::cli {
namespace {

constexpr int64_t kShown = 6;

onnx::Sequence sequence_to_onnx(const Datum& value, const std::string& name);

onnx::Optional optional_to_onnx(const Datum& value, const std::string& name) {
    onnx::Optional optional;
    optional.name = name;
    if (!value.has_value()) return optional;
    const Datum& item = value.items()[0];
    if (item.is_sequence()) {
        optional.elem_type = onnx::ValueKind::Sequence;
        optional.sequence_value = sequence_to_onnx(item, name);
    } else if (item.is_optional()) {
        optional.elem_type = onnx::ValueKind::Optional;
        optional.optional_value = optional_to_onnx(item, name);
    } else {
        optional.elem_type = onnx::ValueKind::Tensor;
        optional.tensor_value = tensor_to_onnx(item.tensor(), name);
    }
    return optional;
}

onnx::Sequence sequence_to_onnx(const Datum& value, const std::string& name) {
    onnx::Sequence sequence;
    sequence.name = name;
    sequence.elem_type = onnx::ValueKind::Tensor;
    for (const Datum& item : value.items()) {
        if (item.is_sequence()) {
            sequence.elem_type = onnx::ValueKind::Sequence;
            sequence.sequence_values.push_back(sequence_to_onnx(item, {}));
        } else if (item.is_optional()) {
            sequence.elem_type = onnx::ValueKind::Optional;
            sequence.optional_values.push_back(optional_to_onnx(item, {}));
        } else {
            sequence.tensor_values.push_back(tensor_to_onnx(item.tensor(), {}));
        }
    }
    return sequence;
}

Result<std::string> pb_bytes(const Datum& value, const std::string& name) {
    if (value.is_sequence()) return onnx::write_sequence(sequence_to_onnx(value, name));
    if (value.is_optional()) return onnx::write_optional(optional_to_onnx(value, name));
    return onnx::write_tensor(tensor_to_onnx(value.tensor(), name));
}

Result<Datum> read_pb(const std::filesystem::path& path, const Type& expected) {
    if (expected.is_sequence()) return datum_from_onnx(TRY(onnx::read_sequence_file(path)));
    if (expected.is_optional()) return datum_from_onnx(TRY(onnx::read_optional_file(path)));
    return Datum(TRY(tensor_from_onnx(TRY(onnx::read_tensor_file(path)))));
}

struct Statistics {
    double min = INFINITY, max = -INFINITY, mean = 0;
    int64_t finite = 0;
};

bool has_order(const Tensor& t) { return t.dtype() != DType::string && !is_complex(t.dtype()); }

Statistics statistics(const Tensor& t) {
    Statistics s;
    double sum = 0;
    for (int64_t i = 0; i < t.elements(); ++i) {
        double v = t.real_at(i);
        if (!std::isfinite(v)) continue;
        s.min = std::min(s.min, v);
        s.max = std::max(s.max, v);
        sum += v;
        ++s.finite;
    }
    s.mean = s.finite ? sum / static_cast<double>(s.finite) : 0;
    return s;
}

Json element_json(const Tensor& t, int64_t i) {
    if (t.dtype() == DType::string) return t.as_strings()[i];
    if (t.dtype() == DType::c64)
        return Json{t.as<std::complex<float>>()[i].real(), t.as<std::complex<float>>()[i].imag()};
    if (t.dtype() == DType::c128)
        return Json{t.as<std::complex<double>>()[i].real(), t.as<std::complex<double>>()[i].imag()};
    if (t.dtype() == DType::boolean) return t.int_at(i) != 0;
    if (t.dtype() == DType::u64) return static_cast<uint64_t>(t.int_at(i));
    if (is_int(t.dtype())) return t.int_at(i);
    double v = t.real_at(i);
    if (std::isfinite(v)) return v;
    return std::isnan(v) ? "nan" : v > 0 ? "inf" : "-inf";  // JSON has no number for them
}

std::string element_text(const Tensor& t, int64_t i) {
    if (is_float(t.dtype())) return fmt::format("{:.6g}", t.real_at(i));
    return element_json(t, i).dump(-1, ' ', false, Json::error_handler_t::replace);
}

double difference(const Tensor& a, const Tensor& b) {
    if (a.dtype() != b.dtype() || a.sizes() != b.sizes()) return INFINITY;
    if (!is_float(a.dtype())) return a.same_bits(b) ? 0 : INFINITY;
    double most = 0, largest = 0;
    for (int64_t i = 0; i < a.elements(); ++i) {
        double x = a.real_at(i), y = b.real_at(i);
        if (std::isnan(x) && std::isnan(y)) continue;
        if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
        if (x == y) {
            if (std::signbit(x) != std::signbit(y)) most = std::max(most, std::numeric_limits<double>::min());
            continue;
        }
        most = std::max(most, std::isfinite(x) && std::isfinite(y) ? std::abs(x - y) : INFINITY);
    }
    return largest > 0 ? most / largest : most;
}

}  // namespace

Result<Datum> read_value(const std::filesystem::path& path, const Type& expected) {
    std::string suffix = path.extension().string();
    if (suffix == ".pb") {
        auto value = read_pb(path, expected);
        if (!value.ok()) value.error().at(path.string());
        return value;
    }
    if (suffix != ".npy")
        return Error(Code::E0110, "\"{}\" is neither a .npy nor a .pb file", path.string())
            .hint("save it with numpy.save, or as an onnx.TensorProto");
    std::optional<DType> dtype;
    if (expected.is_tensor()) dtype = expected.tensor().dtype;
    return Datum(TRY(read_npy_file(path, dtype)));
}

Result<Assignment> parse_assignment(const std::string& text, const std::vector<Port>& ports, const char* option) {
    for (size_t i = 0; i < ports.size(); ++i)
        if (text.starts_with(ports[i].name + "=")) return Assignment{i, text.substr(ports[i].name.size() + 1)};
    size_t equals = text.find('=');
    if (equals == std::string::npos) {
        if (ports.size() == 1) return Assignment{0, text};
        return Error(Code::E0501, "{} {}: expected NAME=FILE", option, text);
    }
    std::vector<std::string> names;
    for (const Port& p : ports) names.push_back(p.name);
    return Error(Code::E0401, "the model has no {} \"{}\"", option + 2, text.substr(0, equals))
        .hint("it has: {}", names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
}

Status ValueFile::check_ending(const std::filesystem::path& path) {
    const std::string suffix = path.extension().string();
    if (suffix == ".npy" || suffix == ".pb") return {};
    return Error(Code::E0501, "outputs are written to .npy or .pb files, not to \"{}\"", path.string());
}

Result<ValueFile> ValueFile::create(const std::filesystem::path& path) {
    TRY(check_ending(path));
    return ValueFile(path, TRY(OutputFile::create(path)));
}

Status ValueFile::write(const Datum& value, const std::string& name) {
    if (path_.extension() == ".pb") return file_.write(TRY(pb_bytes(value, name)));
    if (!value.is_tensor())
        return Error(Code::E0105, "output \"{}\" is not a tensor and cannot be a .npy file", name)
            .hint("write it to a .pb file");
    return file_.write(TRY(npy_bytes(value.tensor())));
}

std::string file_name(const Port& port) {
    std::string name;
    for (char c : port.name)
        name += std::isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '_' || c == '.' ? c : '_';
    if (name.starts_with('.')) name[0] = '_';
    return name.substr(0, 200) + (port.dtype ? ".npy" : ".pb");
}

Json value_json(const Datum& value) {
    if (!value.is_tensor()) {
        Json j{{"kind", value.is_sequence() ? "sequence" : "optional"}, {"items", Json::array()}};
        for (const Datum& item : value.items()) j["items"].push_back(value_json(item));
        return j;
    }
    const Tensor& t = value.tensor();
    Json j{{"dtype", dtype_name(t.dtype())}, {"shape", t.sizes()}};
    if (has_order(t)) {
        Statistics s = statistics(t);
        if (s.finite) j.update({{"min", s.min}, {"max", s.max}, {"mean", s.mean}});
        j["not_finite"] = t.elements() - s.finite;
    }
    j["first"] = Json::array();
    for (int64_t i = 0; i < std::min(kShown, t.elements()); ++i) j["first"].push_back(element_json(t, i));
    return j;
}

std::string value_text(const Datum& value) {
    if (!value.is_tensor()) {
        if (value.is_optional() && !value.has_value()) return "nothing";
        std::string text = value.is_sequence() ? fmt::format("a sequence of {}", value.items().size()) : "optional";
        for (int64_t i = 0; i < std::min<int64_t>(kShown, int64_t(value.items().size())); ++i)
            text += "\n    " + value_text(value.items()[i]);
        return text;
    }
    const Tensor& t = value.tensor();
    std::string text = fmt::format("{}{}", dtype_name(t.dtype()), to_string(t.sizes()));
    if (has_order(t) && t.elements() > 1) {
        Statistics s = statistics(t);
        if (s.finite) text += fmt::format("  min {:.6g}  max {:.6g}  mean {:.6g}", s.min, s.max, s.mean);
        if (s.finite < t.elements()) text += fmt::format("  not finite: {}", t.elements() - s.finite);
    }
    std::vector<std::string> first;
    for (int64_t i = 0; i < std::min(kShown, t.elements()); ++i) first.push_back(element_text(t, i));
    if (t.elements() > kShown) first.push_back("...");
    return text + fmt::format("  [{}]", fmt::join(first, ", "));
}

double difference(const Datum& a, const Datum& b) {
    if (a.kind() != b.kind()) return INFINITY;
    if (a.is_tensor()) return difference(a.tensor(), b.tensor());
    if (a.items().size() != b.items().size()) return INFINITY;
    double most = 0;
    for (size_t i = 0; i < a.items().size(); ++i) most = std::max(most, difference(a.items()[i], b.items()[i]));
    return most;
}

}  // namespace tessera::cli
