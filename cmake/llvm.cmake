# LLVM_INCLUDE_DIR, for src/llvm alone, and LLVM_LIBRARIES: the shared library or, where the command line is to need
# nothing but the C library, the static ones. A cross build asks the build machine's llvm-config for the names and takes
# the files from its sysroot.
set(LLVM_CONFIG llvm-config-19 CACHE STRING "llvm-config of the LLVM to build with")
set(LLVM_COMPONENTS orcjit passes irreader bitwriter x86 aarch64 webassembly nvptx CACHE STRING "What is linked of LLVM, where that is static")

function(ask_llvm result)
    execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE answer OUTPUT_STRIP_TRAILING_WHITESPACE
        COMMAND_ERROR_IS_FATAL ANY)
    set(${result} "${answer}" PARENT_SCOPE)
endfunction()

ask_llvm(include --includedir)
ask_llvm(llvm_folder --libdir)

# What to link for LLVM where it is to be inside.
function(static_llvm result)
    ask_llvm(names --link-static --libnames ${LLVM_COMPONENTS})
    separate_arguments(names)
    list(TRANSFORM names PREPEND ${CMAKE_FIND_ROOT_PATH}${llvm_folder}/)
    foreach(library z zstd)
        find_library(${library}_static lib${library}.a REQUIRED)
        list(APPEND names ${${library}_static})
    endforeach()
    set(${result} ${names} ${CMAKE_DL_LIBS} PARENT_SCOPE)
endfunction()

if(TESSERA_STATIC)
    static_llvm(libraries)
    set(LLVM_INCLUDE_DIR ${CMAKE_FIND_ROOT_PATH}${include} CACHE PATH "LLVM's headers")
    set(LLVM_LIBRARIES ${libraries} CACHE STRING "What to link for LLVM")
else()
    set(LLVM_INCLUDE_DIR ${include} CACHE PATH "LLVM's headers")
    set(LLVM_LIBRARIES -L${llvm_folder} LLVM-19 CACHE STRING "What to link for LLVM")
endif()
