#include "onnx/read.h"

#include "onnx/file.h"
#include "onnx/message_reader.h"

namespace tessera::onnx {
namespace {

// What a person most likely did, from how the bytes begin.
std::string guess_what_it_is(std::string_view bytes) {
    if (bytes.starts_with("version https://git-lfs"))
        return "this is a Git LFS pointer, not the model: run 'git lfs pull'";
    if (bytes.size() > 8 && bytes.substr(4, 4) == "ORTM")
        return "this is ONNX Runtime's own format: export the model as .onnx";
    if (bytes.starts_with("PK\x03\x04"))
        return "this is a zip archive, perhaps a PyTorch checkpoint: export it as .onnx";
    bool printable = true;
    for (char ch : bytes.substr(0, 64))
        printable = printable && (ch == '\n' || ch == '\r' || ch == '\t' || (ch >= ' ' && ch < 127));
    if (printable) return "this looks like text; a binary protobuf is needed";
    return {};
}

struct Expected {
    const char* what;  // "an ONNX model"
    Code malformed;
};
constexpr Expected kModel{"an ONNX model", Code::E0103};
constexpr Expected kTensor{"a tensor", Code::E0110};
constexpr Expected kSequence{"a sequence", Code::E0110};
constexpr Expected kOptional{"an optional", Code::E0110};

Error to_error(const WireFailure& failure, const MessageReader& reader, const Expected& expected,
               std::string_view bytes) {
    int64_t offset = failure.at - bytes.data();
    std::string place = reader.place();
    std::string where = place.empty() ? fmt::format("byte {}", offset) : fmt::format("{}, byte {}", place, offset);
    auto error = [&]() -> Error {
        switch (failure.kind) {
            case WireFailure::Kind::TooDeep:
                return Error(Code::E0109, "{}", failure.what)
                    .hint("no exporter writes such a file; it may be malicious");
            case WireFailure::Kind::TooLarge:
                return Error(Code::E0108, "{}", failure.what)
                    .hint("no exporter writes such a file; it may be malicious");
            case WireFailure::Kind::Truncated:
                if (reader.met_known_field())
                    return Error(Code::E0104, "the file is cut short or damaged: {}", failure.what)
                        .hint("fetch or export it again; it has {} bytes", bytes.size());
                [[fallthrough]];
            case WireFailure::Kind::Malformed: break;
        }
        auto error = Error(expected.malformed, "this is not {}: {}", expected.what, failure.what);
        std::string guess = guess_what_it_is(bytes);
        return guess.empty() ? error : std::move(error).hint("{}", guess);
    }();
    return std::move(error).at(where);
}

template <typename T>
Result<T> read_message(std::string_view bytes, std::shared_ptr<const void> owner, const Expected& expected) {
    MessageReader reader(std::move(owner), max_struct_bytes(bytes.size()));
    T message;
    try {
        reader.read(message, bytes);
    } catch (const WireFailure& failure) {
        return to_error(failure, reader, expected, bytes);
    } catch (const std::bad_alloc&) {
        return Error(Code::E0108, "not enough memory to read {} of {} bytes", expected.what, bytes.size());
    }
    if constexpr (std::is_same_v<T, Model>) {
        if (bytes.empty()) return Error(Code::E0102, "there are no bytes to read {} from", expected.what);
        if (!reader.met_graph())
            return Error(Code::E0103, "this is not an ONNX model: it has no graph")
                .hint("the file may be cut short, or hold a single tensor (.pb)");
    }
    return message;
}

// Every error names the file.
template <typename T>
Result<T> read_file(const std::filesystem::path& path, Result<T> (*read)(std::string_view, std::shared_ptr<const void>),
                    bool may_be_empty) {
    auto file = TRY(MappedFile::open(path));
    if (file->bytes().empty() && !may_be_empty)
        return Error(Code::E0102, "\"{}\" is empty", path.string()).hint("fetch or export it again");
    Result<T> message = read(file->bytes(), file);
    if (message.ok()) return message;
    const Error& inner = message.error();
    std::string where = inner.where().empty() ? path.string() : fmt::format("{}: {}", path.string(), inner.where());
    Error error = Error(inner.code(), "{}", inner.message()).at(std::move(where));
    if (!inner.hint().empty()) return std::move(error).hint("{}", inner.hint());
    return error;
}

}  // namespace

Result<Model> read_model(std::string_view bytes, std::shared_ptr<const void> owner) {
    return read_message<Model>(bytes, std::move(owner), kModel);
}
Result<Tensor> read_tensor(std::string_view bytes, std::shared_ptr<const void> owner) {
    return read_message<Tensor>(bytes, std::move(owner), kTensor);
}
Result<Sequence> read_sequence(std::string_view bytes, std::shared_ptr<const void> owner) {
    return read_message<Sequence>(bytes, std::move(owner), kSequence);
}
Result<Optional> read_optional(std::string_view bytes, std::shared_ptr<const void> owner) {
    return read_message<Optional>(bytes, std::move(owner), kOptional);
}

Result<Model> read_model_file(const std::filesystem::path& path) {
    Model model = TRY(read_file<Model>(path, read_model, false));
    model.path = path;
    return model;
}
// An optional that holds nothing is encoded in no bytes, and so is an empty sequence.
Result<Tensor> read_tensor_file(const std::filesystem::path& path) {
    return read_file<Tensor>(path, read_tensor, false);
}
Result<Sequence> read_sequence_file(const std::filesystem::path& path) {
    return read_file<Sequence>(path, read_sequence, true);
}
Result<Optional> read_optional_file(const std::filesystem::path& path) {
    return read_file<Optional>(path, read_optional, true);
}

}  // namespace tessera::onnx
