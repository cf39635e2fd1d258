#pragma once

#include <string>

// Where the project's sources lie, for tests that read some of them. A function, so that one file alone is compiled with
// the path and clones in different folders share what a compiler cache keeps of the others.
const std::string& source_dir();
