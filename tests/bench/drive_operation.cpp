// Drives csrc/bench/nccl's operations on the fake GPU: takes name=number, prints one line of JSON.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "bench/nccl/operation.hpp"
#include "cuda/runtime.hpp"
#include "fake_gpu.hpp"
#include "os/error.hpp"

using namespace oddrank;

namespace {

std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

}  // namespace

int main(int count, char** options) {
  std::map<std::string, long> given = {{"n", 100},    {"each", 1},      {"windows", 1},
                                       {"ms", 20000}, {"hangs_at", -1}, {"blocks_at", -1},
                                       {"behind", -1}};
  for (int i = 1; i < count; ++i) {
    char* const equals = std::strchr(options[i], '=');
    given[std::string(options[i], equals)] = std::stol(equals + 1);
  }
  const auto size = [&given](const char* name) { return static_cast<std::size_t>(given[name]); };
  FakeState& fake = fake_state();
  fake.hangs_at = size("hangs_at"), fake.blocks_at = size("blocks_at");
  fake.survives_abort = given["survives_abort"] != 0;
  fake.fails = given["fails"] != 0;
  fake.loses_gpu = given["loses_gpu"] != 0;
  fake.cannot_split = given["cannot_split"] != 0;
  fake.device = static_cast<int>(given["device"]);

  nccl::load("libnccl.so.2", "the test");
  const std::size_t windows = size("windows");
  const std::size_t behind = given["behind"] < 0 ? 512 * windows : size("behind");
  auto communicator = std::make_shared<nccl::Communicator>(nccl::make_unique_id(), 0, 1,
                                                           fake.device, Deadline::after_ms(50000));
  fake.no_window = given["no_window"] != 0;
  fake.window_hangs = given["window_hangs"] != 0;
  std::shared_ptr<nccl::Memory> memory;
  const std::string refused = error_of([&] {
    memory = std::make_shared<nccl::Memory>(communicator, 2 * 512 * windows,
                                            static_cast<nccl::Registration>(given["register"]),
                                            Deadline::after_ms(fake.window_hangs ? 300 : 50000));
  });
  if (memory == nullptr) {
    std::printf("{\"said\": \"%s\", \"windows\": %d}\n", refused.c_str(), fake.windows_made);
    std::fflush(stdout);
    std::_Exit(0);  // a thread may still be inside NCCL
  }
  const nccl::Plan plan{"ncclAllReduce (all_reduce, 8 bytes)",
                        {{nccl::function_of("AllReduce"), 0, 0, 2, -1}},
                        ncclFloat32,
                        ncclSum,
                        4,
                        8,
                        8};
  nccl::Times times;
  std::string said, after;
  std::shared_ptr<nccl::Operation> operation;
  said = error_of([&] {
    const nccl::Windows places{behind, 512, windows};
    operation = std::make_shared<nccl::Operation>(communicator, memory, plan, places);
  });
  if (operation == nullptr) {
    std::printf("{\"said\": \"%s\"}\n", said.c_str());
    return 0;
  }
  const float sent[2] = {3, 4};
  for (std::size_t i = 0; i < windows; ++i) {
    std::memcpy(memory->data() + 512 * i, sent, sizeof sent);
  }
  const auto began = monotonic_ns();
  said = error_of([&] {
    times = operation->block(size("n"), given["each"] != 0, Deadline::after_ms(given["ms"]));
  });
  const double took = static_cast<double>(monotonic_ns() - began) * 1e-9;
  bool right = memory->data() != nullptr;  // abandoned
  for (std::size_t i = 0; i < windows; ++i) {
    right = right && std::memcmp(memory->data() + behind + 512 * i, sent, sizeof sent) == 0;
  }
  if (!said.empty()) after = error_of([&] { operation->run(Deadline::after_ms(given["ms"])); });
  const bool direct = communicator->direct();
  operation.reset();
  memory.reset();
  if (said.empty()) communicator->close(Deadline::after_ms(50000));

  const std::set<double> each(times.each.begin(), times.each.end());
  const double low = each.empty() ? 0 : *each.begin(), high = each.empty() ? 0 : *each.rbegin();
  const std::set<std::uintptr_t> places(fake.windows.begin(), fake.windows.end());
  std::printf(
      "{\"said\": \"%s\", \"after\": \"%s\", \"took\": %.3f, \"values\": %zu, \"low\": %.4f, "
      "\"high\": %.4f, \"mean\": %.4f, \"operations\": %zu, \"places\": %zu, "
      "\"most_in_flight\": %llu, \"aborts\": %d, \"aborts_ended\": %d, \"device\": %d, "
      "\"freed_in_use\": %d, \"right\": %d, \"direct\": %d, \"wrong_device\": %d, "
      "\"windows\": %d, \"window_bytes\": %zu}\n",
      said.c_str(), after.c_str(), took, times.each.size(), low, high, times.mean,
      fake.windows.size(), places.size(), static_cast<unsigned long long>(fake.most_in_flight),
      fake.aborts, fake.aborts_ended, cuda::current_device(), fake.freed_in_use, right ? 1 : 0,
      direct ? 1 : 0, fake.wrong_device, fake.windows_made, fake.window_bytes);
  std::fflush(stdout);
  std::_Exit(0);  // a thread may still be inside NCCL
}
