// Bindings of csrc/bench that run everywhere: translate types, release the GIL; no logic.

#include <bit>

#include "bench/verify/verify.hpp"
#include "os/cpython.hpp"
#include "os/to_python.hpp"

namespace oddrank {

void bind_bench(py::module_& m) {
  m.def("bench_fill",
        [](std::uintptr_t address, std::string_view dtype, std::string_view op, std::int64_t source,
           std::int64_t world, std::int64_t first, std::int64_t count, std::int64_t turn) {
          const auto segment = bench::make_segment(dtype, op, source, world, first, count, turn);
          const WithoutGil unlocked;
          bench::fill(std::bit_cast<void*>(address), segment);
        });
  m.def("bench_check", [](std::uintptr_t address, std::string_view dtype, std::string_view op,
                          std::int64_t source, std::int64_t world, std::int64_t first,
                          std::int64_t count, std::int64_t turn) {
    const auto segment = bench::make_segment(dtype, op, source, world, first, count, turn);
    const auto found =
        without_gil([&] { return bench::check(std::bit_cast<const void*>(address), segment); });
    return tuple_of({found.wrong, found.index, found.expected, found.got});
  });
  m.def(
      "bench_noise",
      [](std::uintptr_t address, std::size_t bytes, std::string_view dtype, std::string_view op,
         bool low) {
        const auto noise = bench::noise_of(bench::dtype_of(dtype), bench::op_of(op), low);
        const WithoutGil unlocked;
        bench::fill_with_noise(std::bit_cast<void*>(address), bytes, noise);
      },
      "address"_a, "bytes"_a, "dtype"_a, "op"_a, py::kw_only(), "low"_a);
  m.def("bench_turns", [](std::string_view dtype, std::string_view op, std::int64_t world,
                          std::int64_t count, std::uint64_t most) {
    const auto all = bench::make_segment(dtype, op, 0, world, 0, count, 0);
    const WithoutGil unlocked;
    return bench::turns(all.dtype, all.op, all.world, all.count, most);
  });
}

}  // namespace oddrank
