// Where a model's external data lies: the files inside one folder, each mapped once. Nothing outside it is opened.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/error.h"
#include "onnx/file.h"
#include "onnx/model.h"

namespace tessera::onnx {

// Copies share the mapped files; safe to use from several threads.
class DataSource {
  public:
    DataSource() = default;  // no folder: a model from memory, which can have no external data
    explicit DataSource(std::filesystem::path folder) : folder_(std::move(folder)), has_folder_(true) {}
    static DataSource beside(const Model& model);  // the folder the model was read from, if from a file

    // E0106 when the location is absolute or leads out of the folder, also through symlinks; E0107 when it is not
    // there.
    Result<std::shared_ptr<const MappedFile>> open(std::string_view location) const;

  private:
    struct Cache {
        std::mutex mutex;
        std::map<std::string, std::shared_ptr<const MappedFile>, std::less<>> files;
    };
    std::filesystem::path folder_;
    bool has_folder_ = false;
    std::shared_ptr<Cache> cache_ = std::make_shared<Cache>();
};

// The bytes an external tensor names, not decoded. Where it gives no length: `expected` bytes, or fewer if the file
// ends. E0106, E0107, and E0206 for an entry that makes no sense.
Result<Bytes> external_bytes(const Tensor& tensor, const DataSource& source, uint64_t expected);

}  // namespace tessera::onnx
