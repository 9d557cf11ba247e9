// Settings of the fake GPU, and counts of what it did.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

struct FakeState {
  // Settings. Operations are numbered from 0; ~0 is none.
  std::uint64_t hangs_at = ~std::uint64_t{0};   // on the GPU, until it is aborted
  std::uint64_t blocks_at = ~std::uint64_t{0};  // inside NCCL's call
  bool survives_abort = false;
  bool loses_gpu = false;  // CUDA reports an error from the operation that hangs on
  bool fails = false;      // NCCL reports an error at the operation that hangs
  bool cannot_split = false;
  int device = 0;             // of the communicator
  bool no_window = false;     // NCCL succeeds and makes none
  bool window_hangs = false;  // another rank never registers

  // Counts.
  std::uint64_t most_in_flight = 0;
  int allocations = 0, streams = 0;  // by the CUDA runtime
  int aborts = 0, aborts_ended = 0, freed_in_use = 0, events = 0, nccl_allocations = 0;
  int wrong_device = 0;  // calls of NCCL in a thread on another device
  std::vector<std::uintptr_t> windows;
  int windows_made = 0;  // registered less deregistered
  std::size_t window_bytes = 0;
};
FakeState& fake_state();
