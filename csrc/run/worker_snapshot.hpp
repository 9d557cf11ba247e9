// A guard's answer to a snapshot: values of /proc and the record on its worker at one moment.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trace/read/snapshot.hpp"

namespace oddrank::run {

constexpr std::size_t kMostWorkers = 64, kMostWorkersOfOne = 4;

struct WorkerSnapshot {
  static constexpr std::size_t kLongestText = trace::kLargestSlim;

  struct Thread {
    std::uint32_t tid = 0;
    std::string letter;        // its state in /proc/PID/stat
    std::string wchan;         // the kernel's function in which it sleeps; "": unknown
    std::uint64_t cpu_ns = 0;  // between two samples

    void fields(auto& io) { io(tid, letter, wchan, cpu_ns); }
  };

  std::int64_t realtime_ns = 0;
  std::string letter;                // state in /proc/PID/stat; "": the process is gone
  std::int32_t wait_status = -1;     // a zombie's, as waitpid() gives it; -1: unknown
  std::uint64_t start_time = 0;      // in clock ticks since boot
  std::uint64_t oom_kills = 0;       // in its cgroup, since the guard began
  std::uint64_t cpu_ns = 0;          // the process and all its descendants: see Usage
  std::uint64_t io_bytes = 0;        // read and written by them; 0: not readable
  std::vector<Thread> threads;       // the main one, and the live ones of the record
  std::string record;                // a slim record; "": there is none
  std::vector<std::string> workers;  // slim records of some processes that it has started

  void fields(auto& io) {
    io(realtime_ns, letter, wait_status, start_time, oom_kills, cpu_ns, io_bytes, threads, record,
       workers);
  }
  bool valid() const { return realtime_ns > 0 && workers.size() <= kMostWorkers; }
};

}  // namespace oddrank::run
