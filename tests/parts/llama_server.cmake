# Makes the compile short: handed to llama.cpp as CMAKE_PROJECT_INCLUDE, it changes no source.
#
# The server is built unoptimised, since tests wait for its compile and hardly for its answers. Only
# ggml, where the arithmetic is, is worth -O2. Most of the remaining time goes into parsing the same
# standard headers in a hundred files, hence precompiled headers, and unity builds where they work.

function(shorten_compile)
    foreach(target ggml-base ggml-cpu ggml)
        target_compile_options(${target} PRIVATE -O2)
    endforeach()

    foreach(target llama-common mtmd server-context llama-server-impl)
        target_precompile_headers(${target} PRIVATE
            <algorithm> <chrono> <fstream> <functional> <iostream> <map> <memory> <mutex> <regex>
            <set> <sstream> <string> <thread> <unordered_map> <unordered_set> <vector>)
    endforeach()

    set_target_properties(llama-common mtmd PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
    # These two define the same static names as each other and as the files beside them.
    foreach(file mtmd-helper.cpp mtmd-helper-gen.cpp)
        set_source_files_properties("${CMAKE_SOURCE_DIR}/tools/mtmd/${file}"
            TARGET_DIRECTORY mtmd PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endforeach()
endfunction()

# Every project() call includes this file; the targets exist only once the outermost one is read.
if(CMAKE_CURRENT_SOURCE_DIR STREQUAL CMAKE_SOURCE_DIR)
    cmake_language(DEFER DIRECTORY "${CMAKE_SOURCE_DIR}" CALL shorten_compile)
endif()
