#include "source_dir.h"

const std::string& source_dir() {
    static const std::string dir = TESSERA_SOURCE_DIR;
    return dir;
}
