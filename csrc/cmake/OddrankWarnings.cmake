# Warnings and sanitizers for our own targets only: headers of others are SYSTEM.
add_library(oddrank_warnings INTERFACE)
target_compile_options(oddrank_warnings INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wswitch-enum>)

if(ODDRANK_SANITIZE)
  target_compile_options(oddrank_warnings INTERFACE
    $<$<COMPILE_LANGUAGE:CXX>:-fsanitize=address,undefined -fno-sanitize-recover=undefined
    -fno-omit-frame-pointer>)
  target_link_options(oddrank_warnings INTERFACE -fsanitize=address,undefined)
endif()
