# verilated_machine(name description) makes a program of the RTL for one machine's description, and of rtl/main.cpp.
# Verilator's own makefile compiles what it writes: its rules follow the version.
get_filename_component(verilator_bin ${TESSERA_VERILATOR} REALPATH)
execute_process(COMMAND ${TESSERA_VERILATOR} --getenv VERILATOR_ROOT OUTPUT_VARIABLE verilator_root
                OUTPUT_STRIP_TRAILING_WHITESPACE)
file(GLOB rtl_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/hardware/tessel/*.sv)
list(REMOVE_ITEM rtl_sources ${CMAKE_SOURCE_DIR}/hardware/tessel/tessel_pkg.sv)
list(PREPEND rtl_sources ${CMAKE_SOURCE_DIR}/hardware/tessel/tessel_pkg.sv)

function(verilated_machine name description)
    file(READ ${description} json)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${description})
    set(parameters)
    foreach(pair K:array:inputs N:array:outputs INP_ROWS:scratchpads:inp_rows WGT_TILES:scratchpads:wgt_tiles
            ACC_ROWS:scratchpads:acc_rows UOPS:scratchpads:uops BEAT:memory:bytes_per_cycle
            OUTSTANDING:memory:outstanding_reads LOAD_QUEUE:queues:load COMPUTE_QUEUE:queues:compute
            STORE_QUEUE:queues:store TOKENS:queues:tokens FETCH_BURST:fetch:burst FETCH_BUFFER:fetch:buffer)
        string(REPLACE ":" ";" path ${pair})
        list(POP_FRONT path parameter)
        string(JSON value GET "${json}" ${path})
        list(APPEND parameters -G${parameter}=${value})
    endforeach()
    string(JSON alu GET "${json}" alu)
    list(APPEND parameters -GALU=$<BOOL:${alu}>)
    set(folder ${CMAKE_CURRENT_BINARY_DIR}/${name})
    add_custom_command(OUTPUT ${folder}/Vtessel_core__ALL.a ${folder}/Vtessel_core.h
        COMMAND ${TESSERA_VERILATOR} --cc -O3 --x-assign fast --x-initial fast -Wall -Wno-DECLFILENAME -Wno-UNUSEDSIGNAL
                -Wno-UNUSEDPARAM ${parameters} --top-module tessel_core --Mdir ${folder} ${rtl_sources}
        COMMAND ${CMAKE_COMMAND} -E env OBJCACHE=${CMAKE_CXX_COMPILER_LAUNCHER} make -s -C ${folder} -f Vtessel_core.mk OPT_FAST=-O1
        DEPENDS ${rtl_sources} VERBATIM COMMENT "Verilating ${name}")
    add_custom_target(${name}_verilated DEPENDS ${folder}/Vtessel_core.h)
    add_executable(${name} rtl/main.cpp rtl/compare.cpp rtl/layers.cpp accelerator/random_program.cpp
                   accelerator/random_layers.cpp ${CMAKE_SOURCE_DIR}/hardware/tessel/rtl_machine.cpp
                   ${verilator_root}/include/verilated.cpp ${verilator_root}/include/verilated_threads.cpp)
    add_dependencies(${name} ${name}_verilated)
    set_source_files_properties(${verilator_root}/include/verilated.cpp ${verilator_root}/include/verilated_threads.cpp
                                PROPERTIES COMPILE_OPTIONS -w)
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/hardware/tessel)
    target_include_directories(${name} SYSTEM PRIVATE ${folder} ${verilator_root}/include ${verilator_root}/include/vltstd)
    target_compile_definitions(${name} PRIVATE RTL_MACHINE="${description}")
    target_compile_options(${name} PRIVATE $<$<CONFIG:Release>:-O1>)
    target_link_libraries(${name} PRIVATE ${folder}/Vtessel_core__ALL.a tessera GTest::gtest)
endfunction()

verilated_machine(tessel-rtl ${CMAKE_SOURCE_DIR}/machines/tessel.json)
add_test(NAME rtl_random_programs COMMAND tessel-rtl random 1 1000)
add_test(NAME rtl_layers COMMAND tessel-rtl layers)
# Another array, without a vector ALU (docs/new_accelerator.md).
verilated_machine(tessel32x8-rtl ${CMAKE_SOURCE_DIR}/machines/tessel32x8.json)
add_test(NAME rtl_random_programs_32x8 COMMAND tessel32x8-rtl random 1 1000)
add_test(NAME rtl_layers_32x8 COMMAND tessel32x8-rtl layers)

# The sources for arrays of several shapes.
foreach(shape 16:16:1 8:8:1 32:32:1 8:16:0 32:8:0 8:32:1)
    string(REPLACE ":" ";" shape ${shape})
    list(GET shape 0 k)
    list(GET shape 1 n)
    list(GET shape 2 alu)
    add_test(NAME rtl_lint_${k}x${n} COMMAND ${TESSERA_VERILATOR} --lint-only -Wall -Wno-DECLFILENAME -Wno-UNUSEDSIGNAL
             -Wno-UNUSEDPARAM -GK=${k} -GN=${n} -GALU=${alu} --top-module tessel_core ${rtl_sources})
endforeach()
