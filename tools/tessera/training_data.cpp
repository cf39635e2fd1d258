#include "training_data.h"

#include <cstring>
#include <numeric>

#include "base/random.h"
#include "graph/npy.h"

namespace tessera::cli {
namespace {

std::vector<std::string> split_list(const std::string& text) {
    std::vector<std::string> parts;
    for (size_t at = 0; at <= text.size();) {
        const size_t end = std::min(text.find(',', at), text.size());
        parts.push_back(text.substr(at, end - at));
        at = end + 1;
    }
    return parts;
}

// Numbers as a port takes them, where none is lost.
Result<Tensor> as_port(Tensor t, const Port& port, const std::string& file) {
    if (!port.dtype || t.dtype() == *port.dtype) return t;
    const bool to_float =
        is_float(*port.dtype) && (is_float(t.dtype()) || is_int(t.dtype()) || t.dtype() == DType::boolean);
    if (!to_float && !(is_int(*port.dtype) && is_int(t.dtype())))
        return Error(Code::E0403, "\"{}\" has element type {}, but input \"{}\" takes {}", file, dtype_name(t.dtype()),
                     port.name, dtype_name(*port.dtype));
    Tensor made = TRY(Tensor::zeros(*port.dtype, t.sizes()));
    for (int64_t i = 0; i < t.elements(); ++i) to_float ? made.set_real(i, t.real_at(i)) : made.set_int(i, t.int_at(i));
    return made;
}

}  // namespace

Result<TrainingData> TrainingData::read(const std::string& files, const std::vector<Port>& ports) {
    TrainingData data;
    size_t next = 0;
    for (const std::string& part : split_list(files)) {
        const size_t equals = part.find('=');
        const std::string name = equals == std::string::npos ? "" : part.substr(0, equals);
        const std::string file = equals == std::string::npos ? part : part.substr(equals + 1);
        auto port = name.empty()
                        ? ports.begin() + std::ptrdiff_t(std::min(next, ports.size()))
                        : std::find_if(ports.begin(), ports.end(), [&](const Port& p) { return p.name == name; });
        if (port == ports.end()) {
            std::vector<std::string> names;
            for (const Port& p : ports) names.push_back(p.name);
            return Error(Code::E0501, "--data: there is no input {} for \"{}\"",
                         name.empty() ? fmt::format("{}", next + 1) : fmt::format("\"{}\"", name), file)
                .hint("its inputs are, in order: {}", fmt::join(names, ", "));
        }
        next = size_t(port - ports.begin()) + 1;
        Tensor t = TRY(as_port(TRY(read_npy_file(file, port->dtype)), *port, file));
        if (t.rank() == 0)
            return Error(Code::E0405, "\"{}\" is a scalar, but its first dimension must count the examples", file);
        if (!data.tensors_.empty() && t.size(0) != data.examples_)
            return Error(Code::E0405, "\"{}\" has {} examples, but the files before it have {}", file, t.size(0),
                         data.examples_);
        data.examples_ = t.size(0);
        if (port->ranked && !port->sizes.empty() && port->sizes[0] >= 0) data.fixed_ = port->sizes[0];
        data.tensors_.emplace_back(port->name, std::move(t));
    }
    if (data.examples_ == 0) return Error(Code::E0405, "--data: there are no examples");
    return data;
}

Status TrainingData::check_batch(int64_t size) const {
    if (fixed_ && *fixed_ != size)
        return Error(Code::E0405, "the model takes batches of {}, but --batch is {}", *fixed_, size)
            .hint("use --batch {}, or export the model with a symbolic batch size", *fixed_);
    if (batches(size) == 0) return Error(Code::E0405, "{} examples do not fill a batch of {}", examples_, size);
    return {};
}

std::vector<int64_t> TrainingData::order(std::optional<uint64_t> seed, int64_t epoch) const {
    std::vector<int64_t> all(static_cast<size_t>(examples_));
    std::iota(all.begin(), all.end(), 0);
    if (!seed) return all;
    const RandomStream random(*seed, uint64_t(epoch));
    for (size_t i = all.size(); i > 1; --i) std::swap(all[i - 1], all[random.bits(i) % i]);
    return all;
}

Result<NamedData> TrainingData::batch(const std::vector<int64_t>& order, int64_t number, int64_t size) const {
    const int64_t from = number * size, count = std::min(size, examples_ - from);
    NamedData batch;
    for (const auto& [name, all] : tensors_) {
        Sizes sizes = all.sizes();
        sizes[0] = count;
        Tensor rows = TRY(Tensor::zeros(all.dtype(), sizes));
        const int64_t bytes = all.bytes() / examples_;
        for (int64_t i = 0; i < count && bytes > 0; ++i)
            std::memcpy(static_cast<char*>(rows.mutable_data()) + i * bytes,
                        static_cast<const char*>(all.data()) + order[size_t(from + i)] * bytes, size_t(bytes));
        batch.emplace(name, std::move(rows));
    }
    return batch;
}

}  // namespace tessera::cli
