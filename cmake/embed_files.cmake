# embed_files(out.cpp HEADER h NAMESPACE n TYPE t FUNCTION f [STRIP suffix] FILES files...)
# Makes a C++ file in which n::f() gives a vector of t, one {name, text} for each file. Names lose the suffix.
if(NOT CMAKE_SCRIPT_MODE_FILE)
    set(embed_files_script ${CMAKE_CURRENT_LIST_FILE})
    function(embed_files out)
        cmake_parse_arguments(PARSE_ARGV 1 arg "" "HEADER;NAMESPACE;TYPE;FUNCTION;STRIP" "FILES")
        add_custom_command(OUTPUT ${out}
            COMMAND ${CMAKE_COMMAND} -DOUT=${out} -DHEADER=${arg_HEADER} -DNAMESPACE=${arg_NAMESPACE} -DTYPE=${arg_TYPE}
                -DFUNCTION=${arg_FUNCTION} -DSTRIP=${arg_STRIP} "-DFILES=${arg_FILES}" -P ${embed_files_script}
            DEPENDS ${arg_FILES} ${embed_files_script} VERBATIM)
        set_source_files_properties(${out} PROPERTIES SKIP_PRECOMPILE_HEADERS ON)
    endfunction()
    return()
endif()

set(text "#include \"${HEADER}\"\n\nnamespace ${NAMESPACE} {\n\nconst std::vector<${TYPE}>& ${FUNCTION}() {\n")
string(APPEND text "    static const std::vector<${TYPE}> files = {\n")
foreach(file IN LISTS FILES)
    cmake_path(GET file FILENAME name)
    if(STRIP)
        string(REGEX REPLACE "${STRIP}$" "" name "${name}")
    endif()
    file(READ ${file} content)
    string(APPEND text "        {\"${name}\", R\"embedded(${content})embedded\"},\n")
endforeach()
string(APPEND text "    };\n    return files;\n}\n\n}  // namespace ${NAMESPACE}\n")
file(WRITE ${OUT} "${text}")
