#include "onnx/write.h"

#include <fmt/format.h>

#include <functional>

#include "base/check.h"
#include "base/output_file.h"
#include "onnx/data_source.h"
#include "onnx/message_writer.h"
#include "onnx/tensor_data.h"

namespace tessera::onnx {
namespace {

constexpr uint64_t kDataAlignment = 64;
constexpr int64_t kExternalFromWhenTooLarge = 1024;

using OnTensor = std::function<Status(Tensor&)>;

Status each_tensor(Graph& graph, const OnTensor& on_tensor);

Status each_tensor(SparseTensor& sparse, const OnTensor& on_tensor) {
    TRY(on_tensor(sparse.values));
    return on_tensor(sparse.indices);
}

Status each_tensor(std::vector<Attribute>& attributes, const OnTensor& on_tensor) {
    for (Attribute& attribute : attributes) {
        if (attribute.t) TRY(on_tensor(*attribute.t));
        for (Tensor& tensor : attribute.tensors) TRY(on_tensor(tensor));
        if (attribute.sparse_tensor) TRY(each_tensor(*attribute.sparse_tensor, on_tensor));
        for (SparseTensor& sparse : attribute.sparse_tensors) TRY(each_tensor(sparse, on_tensor));
        if (attribute.g) TRY(each_tensor(*attribute.g, on_tensor));
        for (Graph& graph : attribute.graphs) TRY(each_tensor(graph, on_tensor));
    }
    return {};
}

Status each_tensor(Graph& graph, const OnTensor& on_tensor) {
    for (Tensor& tensor : graph.initializers) TRY(on_tensor(tensor));
    for (SparseTensor& sparse : graph.sparse_initializers) TRY(each_tensor(sparse, on_tensor));
    for (Node& node : graph.nodes) TRY(each_tensor(node.attributes, on_tensor));
    return {};
}

Status each_tensor(Model& model, const OnTensor& on_tensor) {
    TRY(each_tensor(model.graph, on_tensor));
    for (Function& function : model.functions) {
        TRY(each_tensor(function.attribute_protos, on_tensor));
        for (Node& node : function.nodes) TRY(each_tensor(node.attributes, on_tensor));
    }
    return {};
}

uint64_t payload_bytes(const Tensor& t) {
    return t.raw_data.size() + t.float_data.size() + t.double_data.size() + t.int32_data.size() + t.int64_data.size() +
           t.uint64_data.size();
}

// Makes every external payload a view in the tensor itself.
Status take_along(Model& model) {
    DataSource source = DataSource::beside(model);
    return each_tensor(model, [&](Tensor& tensor) -> Status {
        if (tensor.data_location != Tensor::Location::External) return {};
        auto bytes = external_bytes(tensor, source, TRY(raw_data_size(tensor)));
        if (!bytes.ok()) return std::move(bytes.error().at(fmt::format("tensor \"{}\"", tensor.name)));
        tensor.raw_data = std::move(*bytes);
        tensor.data_location = Tensor::Location::Default;
        tensor.external_data.clear();
        return {};
    });
}

// Payloads in the order they lie in the data file, each starting at a multiple of kDataAlignment.
struct DataFile {
    std::string name;
    std::vector<Bytes> payloads;
    uint64_t size = 0;

    void add(Tensor& tensor) {
        Bytes payload = !tensor.raw_data.empty()     ? tensor.raw_data
                        : !tensor.float_data.empty() ? tensor.float_data
                                                     : tensor.double_data;
        if (payload.empty()) return;  // numbers encoded as varints are small; they stay
        uint64_t offset = (size + kDataAlignment - 1) / kDataAlignment * kDataAlignment;
        size = offset + payload.size();
        tensor.raw_data = tensor.float_data = tensor.double_data = Bytes();
        tensor.data_location = Tensor::Location::External;
        tensor.external_data = {
            {"location", name}, {"offset", std::to_string(offset)}, {"length", std::to_string(payload.size())}};
        payloads.push_back(std::move(payload));
    }

    Status write_to(OutputFile& file) const {
        uint64_t written = 0;
        for (const Bytes& payload : payloads) {
            std::string padding((kDataAlignment - written % kDataAlignment) % kDataAlignment, '\0');
            TRY(file.write(padding));
            TRY(file.write(payload.view()));
            written += padding.size() + payload.size();
        }
        return {};
    }
};

Result<std::string> encode(const Model& model, uint64_t max_bytes) {
    std::string bytes = MessageWriter::encode(model);
    if (bytes.size() > max_bytes)
        return Error(Code::E0214, "the model takes {} bytes, and a protobuf at most {}", bytes.size(), max_bytes)
            .hint("write it to a file, with its weights in external data");
    return bytes;
}

uint64_t total_payload(Model& model) {
    uint64_t total = 0;
    Status counted = each_tensor(model, [&](Tensor& tensor) -> Status {
        total += payload_bytes(tensor);
        return {};
    });
    CHECK(counted.ok());
    return total;
}

}  // namespace

Result<std::string> write_model(const Model& model) {
    Model whole = model;  // payloads are shared, not copied
    TRY(take_along(whole));
    uint64_t payload = total_payload(whole);
    if (payload > kMaxProtobufBytes)
        return Error(Code::E0214, "the model's weights take {} bytes, and a protobuf at most {}", payload,
                     kMaxProtobufBytes)
            .hint("write it to a file, with its weights in external data");
    return encode(whole, kMaxProtobufBytes);
}

Status write_model_file(const Model& model, const std::filesystem::path& path, const WriteOptions& options) {
    Model whole = model;
    TRY(take_along(whole));
    int64_t external_from = options.external_from;
    // What is not payload has to fit beside it: leave it an eighth.
    uint64_t room = options.max_protobuf_bytes - options.max_protobuf_bytes / 8;
    if (external_from < 0 && total_payload(whole) > room) external_from = kExternalFromWhenTooLarge;

    DataFile data;
    data.name = options.data_name.empty() ? path.filename().string() + ".data" : options.data_name;
    if (external_from >= 0)
        TRY(each_tensor(whole, [&](Tensor& tensor) -> Status {
            if (payload_bytes(tensor) >= static_cast<uint64_t>(external_from)) data.add(tensor);
            return {};
        }));
    std::string bytes = TRY(encode(whole, options.max_protobuf_bytes));

    OutputFile model_file = TRY(OutputFile::create(path));
    TRY(model_file.write(bytes));
    if (!data.payloads.empty()) {
        OutputFile data_file = TRY(OutputFile::create(path.parent_path() / data.name));
        TRY(data.write_to(data_file));
        TRY(data_file.commit());
    }
    return model_file.commit();
}

std::string write_tensor(const Tensor& tensor) { return MessageWriter::encode(tensor); }
std::string write_sequence(const Sequence& sequence) { return MessageWriter::encode(sequence); }
std::string write_optional(const Optional& optional) { return MessageWriter::encode(optional); }

}  // namespace tessera::onnx
