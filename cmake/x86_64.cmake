# Toolchain: x86-64 Linux from any Debian or Ubuntu host. Libraries come from .sysroot/ (tools/sysroot.sh), libc and
# libstdc++ from the cross compiler. On an x86-64 host it is the host's own compiler and libraries.

if(NOT CMAKE_HOST_SYSTEM_PROCESSOR STREQUAL x86_64)
    set(CMAKE_SYSTEM_NAME Linux)
    set(CMAKE_SYSTEM_PROCESSOR x86_64)
    set(CMAKE_LIBRARY_ARCHITECTURE x86_64-linux-gnu)
    set(CMAKE_C_COMPILER x86_64-linux-gnu-gcc)
    set(CMAKE_CXX_COMPILER x86_64-linux-gnu-g++)

    get_filename_component(sysroot ${CMAKE_CURRENT_LIST_DIR}/../.sysroot ABSOLUTE)
    if(NOT EXISTS ${sysroot}/.ready)
        message(FATAL_ERROR "There is no ${sysroot} yet: run tools/sysroot.sh first.")
    endif()
    set(CMAKE_FIND_ROOT_PATH ${sysroot})
    set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
    set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
    set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
    set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)

    find_program(QEMU_X86_64 NAMES qemu-x86_64-static qemu-x86_64)
    if(QEMU_X86_64)
        set(CMAKE_CROSSCOMPILING_EMULATOR ${QEMU_X86_64} -L /usr/x86_64-linux-gnu)
    endif()
endif()
