# `make install`: the command line, the library with its headers, and what find_package(tessera) reads.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/tessera)
install(TARGETS tessera EXPORT tessera-targets COMPONENT cpp ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp)
if(TARGET tessera-cli)
    install(TARGETS tessera-cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT cpp)
endif()
if(TARGET tessera_c)
    install(TARGETS tessera_c EXPORT tessera-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT cpp
        NAMELINK_COMPONENT cpp)
endif()
install(DIRECTORY ${CMAKE_SOURCE_DIR}/include/tessera DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT cpp)
install(EXPORT tessera-targets NAMESPACE tessera:: DESTINATION ${package_folder} COMPONENT cpp)
configure_package_config_file(${CMAKE_SOURCE_DIR}/cmake/tessera-config.cmake.in ${CMAKE_BINARY_DIR}/tessera-config.cmake
    INSTALL_DESTINATION ${package_folder})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/tessera-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/tessera-config.cmake ${CMAKE_BINARY_DIR}/tessera-config-version.cmake
    DESTINATION ${package_folder} COMPONENT cpp)

# The same for pkg-config: `tessera` for C++, `tessera_c` for C.
file(RELATIVE_PATH prefix_from_pkgconfig /prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig /prefix)
list(TRANSFORM LLVM_LIBRARIES REPLACE "^([^-/].*)$" "-l\\1" OUTPUT_VARIABLE libraries_of_tessera)
list(JOIN libraries_of_tessera " " libraries_of_tessera)
string(PREPEND libraries_of_tessera "${RE2_LIBRARY} ")
set(pkgconfig_names tessera)
if(TARGET tessera_c)
    list(APPEND pkgconfig_names tessera_c)
endif()
foreach(name IN LISTS pkgconfig_names)
    configure_file(cmake/${name}.pc.in ${CMAKE_BINARY_DIR}/${name}.pc @ONLY)
    install(FILES ${CMAKE_BINARY_DIR}/${name}.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT cpp)
endforeach()
