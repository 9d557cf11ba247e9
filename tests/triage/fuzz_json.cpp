// The fuzzer's target for JSON: any bytes as text.
#include "fuzz_values.hpp"
#include "triage/values.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  oddrank::fuzz::check({reinterpret_cast<const char*>(data), size}, oddrank::read_json);
  return 0;
}
