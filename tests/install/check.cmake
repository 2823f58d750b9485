# Common steps of the tests in this folder.

# check_output(<what> <pattern> <command>...): runs the command without the build's environment. It must
# succeed, and its output must match the pattern.
function(check_output what pattern)
  execute_process(COMMAND env -u LD_LIBRARY_PATH ${ARGN}
    OUTPUT_VARIABLE output ERROR_VARIABLE output RESULT_VARIABLE code)
  if(NOT code EQUAL 0 OR NOT output MATCHES "${pattern}")
    message(FATAL_ERROR "${what}: exit code ${code}, \"${pattern}\" was expected in:\n${output}")
  endif()
endfunction()

# check_programs(<prefix>): checks the programs of a prefix, with LibTorch if they were built with it.
function(check_programs prefix)
  set(model "${SOURCE}/tests/golden/llama")
  check_output("inspect" "LlamaForCausalLM" "${prefix}/bin/regroup" inspect "${model}")
  if(LIBTORCH)
    check_output("eval's help" "--context" env "LibTorch_ROOT=${LIBTORCH}" "${prefix}/bin/regroup" eval --help)
    file(REMOVE "${prefix}/lib/regroup/torch")
    file(CREATE_LINK "${LIBTORCH}" "${prefix}/lib/regroup/torch" SYMBOLIC)
    check_output("convert's help" "--kv-heads" "${prefix}/bin/regroup" convert --help)
  else()
    check_output("convert" "kv heads" "${prefix}/bin/regroup" convert "${model}" "${prefix}/none" --kv-heads 1 --dry-run)
  endif()
  foreach(file IN ITEMS share/man/man1/regroup.1 share/bash-completion/completions/regroup
      share/zsh/site-functions/_regroup share/fish/vendor_completions.d/regroup.fish
      share/regroup/recipes/t5-pretraining.toml)
    if(NOT EXISTS "${prefix}/${file}")
      message(FATAL_ERROR "${file} is not installed")
    endif()
  endforeach()
endfunction()

# install_into(<prefix>)
function(install_into prefix)
  execute_process(COMMAND "${CMAKE_COMMAND}" --install "${BUILD}" --prefix "${prefix}" OUTPUT_QUIET
    COMMAND_ERROR_IS_FATAL ANY)
endfunction()

# build_user(<source> <build> <prefix> <option>...): builds a project that finds regroup in the prefix. Sets `output`
# to what its configuration printed.
function(build_user source build prefix)
  # Not ${ARGN}, which would split the lists in options.
  cmake_parse_arguments(PARSE_ARGV 3 arg "" "" "")
  execute_process(
    COMMAND "${CMAKE_COMMAND}" -S "${source}" -B "${build}" -G "${GENERATOR}" "-DCMAKE_MAKE_PROGRAM=${MAKE_PROGRAM}"
      "-DCMAKE_CXX_COMPILER=${COMPILER}" "-DCMAKE_PREFIX_PATH=${prefix};${SOURCE}/.deps/usr" ${arg_UNPARSED_ARGUMENTS}
    OUTPUT_VARIABLE output COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND "${CMAKE_COMMAND}" --build "${build}" OUTPUT_VARIABLE errors ERROR_VARIABLE errors
    RESULT_VARIABLE code)
  if(NOT code EQUAL 0)
    message(FATAL_ERROR "${source} does not build with ${prefix}:\n${errors}")
  endif()
  set(output "${output}" PARENT_SCOPE)
endfunction()
