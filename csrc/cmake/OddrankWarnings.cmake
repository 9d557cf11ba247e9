# Warnings and sanitizers for our own targets only: headers of others are SYSTEM.
add_library(oddrank_warnings INTERFACE)
target_compile_options(oddrank_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wswitch-enum>)

# The flags of the sanitizers.
set(instruments "")
if(ODDRANK_SANITIZE STREQUAL "thread")
  set(instruments -fsanitize=thread)
elseif(ODDRANK_SANITIZE STREQUAL "fuzzer")
  set(instruments -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-coverage=trace-cmp)
elseif(ODDRANK_SANITIZE STREQUAL "coverage")
  set(instruments -fsanitize=fuzzer-no-link -fprofile-instr-generate -fcoverage-mapping)
elseif(ODDRANK_SANITIZE)
  set(instruments -fsanitize=address,undefined)
endif()
if(instruments)
  target_compile_options(oddrank_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:${instruments} -fno-omit-frame-pointer>)
  target_link_options(oddrank_warnings INTERFACE ${instruments})
endif()
if(instruments MATCHES "undefined")
  target_compile_options(oddrank_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=undefined>)
endif()
if(ODDRANK_SANITIZE STREQUAL "fuzzer")
  target_compile_definitions(oddrank_warnings INTERFACE _GLIBCXX_ASSERTIONS)
endif()
# GCC's thread sanitizer does not know fences; the data around ours are atomic anyway.
if(ODDRANK_SANITIZE STREQUAL "thread" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(oddrank_warnings INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wno-tsan>)
endif()
