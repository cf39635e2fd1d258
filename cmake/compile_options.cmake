# How every file of the project is compiled.

if(NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release)
endif()

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_CXX_SCAN_FOR_MODULES OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_ARCHIVE_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

set(CMAKE_CXX_FLAGS_RELEASE "-O2 -DNDEBUG")
set(CMAKE_CXX_FLAGS_DEBUG "-O0 -g")

# A designated initialiser leaves out what keeps its default.
add_compile_options(-Wall -Wextra -Wno-missing-field-initializers)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # GCC takes an empty std::optional for one that may be read, and files that are compiled together for headers.
    add_compile_options(-Wno-maybe-uninitialized -Wno-subobject-linkage)
    # It collects its garbage at 600 MB, not at 128: that takes a tenth less time, and hardly more memory.
    add_compile_options(--param=ggc-min-heapsize=600000)
endif()
# a * b + c rounds twice on every machine, so that results do not depend on it.
add_compile_options(-ffp-contract=off)

# A place outside of a vector stops the program, in what users run too: a compiler that goes on writes wrong code.
add_compile_definitions(_GLIBCXX_ASSERTIONS)

if(TESSERA_SANITIZE)
    # -Og compiles instrumented code in two thirds of the time of -O1.
    set(CMAKE_CXX_FLAGS_RELWITHDEBINFO "-Og -g1 -fno-omit-frame-pointer")
    add_compile_options(-fsanitize=${TESSERA_SANITIZE} -fno-sanitize-recover=all)
    add_link_options(-fsanitize=${TESSERA_SANITIZE})
    if(TESSERA_SANITIZE MATCHES undefined)
        # Checks at every access that take a third of the build; what they find crashes or is found by AddressSanitizer.
        add_compile_options(-fno-sanitize=alignment,null,object-size,vptr,nonnull-attribute,returns-nonnull-attribute)
    endif()
endif()

if(TESSERA_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()

# No absolute path gets into the objects. Through ccache the source folder is seen as a path relative to the build
# folder, hence two maps; clones in different folders then share cache entries.
file(RELATIVE_PATH source_from_build ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
if(NOT CMAKE_BUILD_TYPE STREQUAL Debug)
    add_compile_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=${source_from_build}=)
endif()

find_program(CCACHE_PROGRAM ccache)
if(TESSERA_CCACHE AND CCACHE_PROGRAM)
    set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
        CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
endif()

# What nearly every file includes, precompiled. Only headers that are not ours: a file still names what it needs.
set(standard_headers <algorithm> <cstdint> <functional> <map> <memory> <optional> <set> <span> <string> <string_view>
    <unordered_map> <unordered_set> <utility> <variant> <vector> <fmt/format.h>)
