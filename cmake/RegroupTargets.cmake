# Compile settings for all targets, and functions for the two kinds of target.

# regroup_limit_parallel_compiles()
# A file that includes LibTorch takes up to 2 GB to compile. Ninja would start one per core, which
# on a machine with many cores and little memory ends in the kernel killing compilers.
function(regroup_limit_parallel_compiles)
  set(jobs "${REGROUP_COMPILE_JOBS}")
  if(NOT jobs)
    cmake_host_system_information(RESULT memory_mib QUERY TOTAL_PHYSICAL_MEMORY)
    math(EXPR jobs "${memory_mib} / 2048")
    if(jobs LESS 1)
      set(jobs 1)
    endif()
  endif()
  set_property(GLOBAL APPEND PROPERTY JOB_POOLS regroup_compile=${jobs} regroup_link=2)
  set(CMAKE_JOB_POOL_COMPILE regroup_compile PARENT_SCOPE)
  set(CMAKE_JOB_POOL_LINK regroup_link PARENT_SCOPE)
endfunction()

# regroup_prefer_own_fmt()
# LibTorch's include folder contains fmt headers that are newer than the library we link to, and they hide fmt
# in /usr/include, which compilers search last. This puts ours first, so that all files use the same fmt.
function(regroup_prefer_own_fmt)
  get_target_property(include fmt::fmt INTERFACE_INCLUDE_DIRECTORIES)
  set(first "${PROJECT_BINARY_DIR}/generated/fmt_before_libtorch")
  file(MAKE_DIRECTORY "${first}")
  file(CREATE_LINK "${include}/fmt" "${first}/fmt" SYMBOLIC)
  target_include_directories(LibTorch::LibTorch SYSTEM BEFORE INTERFACE "${first}")
endfunction()

# regroup_compile_settings(<target>)
# Warnings, sanitizers and include paths. Includes are written from the source root.
function(regroup_compile_settings target)
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC
    "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>"
    "$<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/generated>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/regroup>")
  target_compile_options(${target} PRIVATE
    -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wno-sign-conversion $<$<BOOL:${REGROUP_WERROR}>:-Werror>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # False positives on plain std::string code: GCC bugs 105651 (restrict) and 109642 (dangling).
    target_compile_options(${target} PRIVATE
      -Wno-restrict $<$<VERSION_GREATER_EQUAL:$<CXX_COMPILER_VERSION>,13>:-Wno-dangling-reference>)
  endif()
  if(REGROUP_SANITIZE)
    target_compile_options(${target} PRIVATE
      -fsanitize=${REGROUP_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    target_link_options(${target} PUBLIC -fsanitize=${REGROUP_SANITIZE})
    if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
      # The instrumentation hides initialisations from the optimiser's flow analysis.
      target_compile_options(${target} PRIVATE -Wno-maybe-uninitialized)
    else()
      # clang's check of a vptr opens a pipe, and takes a process without a free file for a fault.
      target_compile_options(${target} PRIVATE -fno-sanitize=vptr)
    endif()
  endif()
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Release")
    target_compile_definitions(${target} PRIVATE _GLIBCXX_ASSERTIONS)
  endif()
endfunction()

# regroup_precompiled_headers(<name> HEADERS <header>... [LINK <target>...])
# Headers that many files include, compiled once: regroup_precompile(<target> <name>) gives them to a
# target whose files are compiled with the same settings. Files still include what they use: with
# -DCMAKE_DISABLE_PRECOMPILE_HEADERS=ON all of it builds as well, more slowly.
function(regroup_precompiled_headers name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "HEADERS;LINK")
  # A separate target, so that users of the headers do not wait for other objects.
  set(source "${PROJECT_BINARY_DIR}/precompiled/${name}.cpp")
  file(CONFIGURE OUTPUT "${source}" CONTENT "// Empty: the headers are what is compiled.\n" @ONLY)
  set(target regroup_precompiled_${name})
  add_library(${target} OBJECT "${source}")
  regroup_compile_settings(${target})
  target_link_libraries(${target} PRIVATE fmt::fmt nlohmann_json::nlohmann_json Threads::Threads ${arg_LINK})
  target_precompile_headers(${target} PRIVATE ${arg_HEADERS})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(${target} PRIVATE -fpch-preprocess)  # what ccache asks for
  endif()
endfunction()

function(regroup_precompile target name)
  target_precompile_headers(${target} REUSE_FROM regroup_precompiled_${name})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # GCC forgets that what it inlines out of precompiled headers is the system's, and then warns of
    # what it always gets wrong in std::string (GCC bug 105329).
    target_compile_options(${target} PRIVATE -fpch-preprocess -Wno-array-bounds
      -Wno-stringop-overflow -Wno-stringop-overread)
  endif()
endfunction()

# regroup_optimise_lightly(<target>)
# For code that calls the libraries and loops over little: compiling it takes two thirds of the time.
function(regroup_optimise_lightly target)
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
endfunction()

# regroup_sources(<variable> <folder>... [EXCEPT <regular expression>])
# The source files below folders of the current one, by name.
function(regroup_sources variable)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "EXCEPT" "")
  list(TRANSFORM arg_UNPARSED_ARGUMENTS APPEND "/*.cpp")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS RELATIVE "${CMAKE_CURRENT_SOURCE_DIR}" ${arg_UNPARSED_ARGUMENTS})
  if(arg_EXCEPT)
    list(FILTER sources EXCLUDE REGEX "${arg_EXCEPT}")
  endif()
  set(${variable} ${sources} PARENT_SCOPE)
endfunction()

# regroup_library(<folder> SOURCES <file>... [LINK <target>...])
# The library of one top folder: target regroup_<folder>, to be linked as regroup::<folder>.
function(regroup_library folder)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;LINK")
  add_library(regroup_${folder} STATIC ${arg_SOURCES})
  add_library(regroup::${folder} ALIAS regroup_${folder})
  regroup_compile_settings(regroup_${folder})
  target_link_libraries(regroup_${folder} PUBLIC ${arg_LINK})
endfunction()

# regroup_test_suite(<name> SOURCES <file>... [LINK <target>...] [LABELS <label>...] [PRECOMPILED <name>])
# One Catch2 program, test_<name>. ctest sees each of its cases as "<name>: <case>", labelled <name>
# and LABELS. Tests run in the source root and know REGROUP_TESTS_DIR and REGROUP_PROGRAM (paths).
function(regroup_test_suite name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "PRECOMPILED" "SOURCES;LINK;LABELS")
  set(target test_${name})
  add_executable(${target} ${arg_SOURCES})
  regroup_compile_settings(${target})
  if(NOT arg_PRECOMPILED)
    set(arg_PRECOMPILED tests)
  endif()
  regroup_precompile(${target} ${arg_PRECOMPILED})
  regroup_optimise_lightly(${target})
  target_compile_definitions(${target} PRIVATE
    "REGROUP_TESTS_DIR=\"${PROJECT_SOURCE_DIR}/tests\""
    "REGROUP_PROGRAM=\"$<TARGET_FILE:regroup>\"")
  target_link_libraries(${target} PRIVATE ${arg_LINK} Catch2::Catch2WithMain)
  add_dependencies(${target} regroup)
  # A list would fall apart on its way through Catch2's scripts. `ctest -L` matches parts of a label,
  # so that "uptrain slow" serves as two.
  list(JOIN arg_LABELS " " labels)
  string(PREPEND labels "${name} ")
  string(STRIP "${labels}" labels)
  catch_discover_tests(${target}
    TEST_PREFIX "${name}: "
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    DISCOVERY_MODE PRE_TEST
    PROPERTIES LABELS "${labels}" TIMEOUT 600)
endfunction()
