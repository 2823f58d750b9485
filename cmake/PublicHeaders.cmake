# The C++ interface of the installed libraries. docs/installing.md has a table of the same headers, and
# tests/install/headers.cmake compares the two.
set(REGROUP_PUBLIC_HEADERS
  formats/base/error.h                  # errors: one line of text, and their kind
  formats/model/model.h                 # opening a model
  formats/tensors/checkpoint.h          # its tensors: names, shapes, bytes
  formats/tensors/dtype.h               # their element types
  formats/spec/model_spec.h             # its config, in one vocabulary for all families: sizes, positions, names of tensors
  formats/spec/alibi.h                  # ALiBi slopes
  formats/model/model_summary.h         # what inspect prints of a model and of each layer
  formats/model/serving_cost.h          # bytes of the KV cache, and to serve the model by number of kv heads
  converter/convert/kv_head_request.h   # how many kv heads each layer keeps
  converter/heads/pool_method.h         # how heads are pooled
  converter/heads/calibration.h         # statistics for methods that read the weights
  converter/convert/conversion_plan.h   # planning a conversion
  converter/convert/execute_plan.h      # executing a plan
  converter/convert/verify_conversion.h # the request that made a result, and verifying it
)

# regroup_headers_to_install(<variable>)
# Public headers and the project's headers that they include, directly or not. The others are internal.
function(regroup_headers_to_install variable)
  set(found ${REGROUP_PUBLIC_HEADERS})
  set(unread ${found})
  while(unread)
    list(POP_FRONT unread header)
    file(STRINGS "${PROJECT_SOURCE_DIR}/${header}" lines REGEX "^#include")
    foreach(line IN LISTS lines)
      if(line MATCHES "<(ATen|c10|torch)/")
        message(FATAL_ERROR "${header} would be installed, but needs LibTorch: ${line}")
      elseif(line MATCHES "\"(.+)\"")
        set(included "${CMAKE_MATCH_1}")
        if(NOT included IN_LIST found)
          list(APPEND found "${included}")
          list(APPEND unread "${included}")
        endif()
      endif()
    endforeach()
  endwhile()
  # What a header includes may change, and with it this list.
  set_property(DIRECTORY "${PROJECT_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${found})
  set(${variable} ${found} PARENT_SCOPE)
endfunction()
