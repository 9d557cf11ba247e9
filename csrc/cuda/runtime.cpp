// Builds the messages of CUDA errors; lists the GPUs.
#include "cuda/runtime.hpp"

#include <atomic>
#include <cstdlib>
#include <string_view>

#include "os/dynlib.hpp"
#include "os/encoding.hpp"

namespace oddrank::cuda {
namespace {

std::atomic<int> known_rank{-1};

// "cudaMalloc(&data, bytes)" -> "cudaMalloc"
std::string_view function_name(std::string_view call) { return call.substr(0, call.find('(')); }

std::string no_device_problem() {
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return "no CUDA device: the driver sees none" +
         (visible != nullptr ? " (CUDA_VISIBLE_DEVICES=" + std::string(visible) + ")"
                             : std::string()) +
         ". Check nvidia-smi -L and what the job scheduler or container was asked for";
}

// Returns the remedy if the module has no machine code for the GPU.
std::string no_kernel_problem() {
  cudaDeviceProp gpu{};
  int device = 0;
  const bool known = ::cudaGetDevice(&device) == cudaSuccess &&
                     ::cudaGetDeviceProperties(&gpu, device) == cudaSuccess;
  ::cudaGetLastError();
  const std::string number = std::to_string(10 * gpu.major + gpu.minor);
  return ". This oddrank has no code for the GPU" +
         (known ? " (" + std::string(gpu.name) + ", sm_" + number + ")" : std::string()) +
         ": `oddrank doctor` lists what it was built for. Install it again with "
         "CMAKE_ARGS=-DODDRANK_CUDA_ARCHITECTURES=" +
         (known ? number : "NUMBER") + " and an nvcc that knows that architecture";
}

std::string uuid_text(const cudaUUID_t& uuid) {
  std::string text = "GPU-";
  for (int i = 0; i < 16; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    append_hex(static_cast<unsigned char>(uuid.bytes[i]), text);
  }
  return text;
}

}  // namespace

void set_rank(int rank) noexcept { known_rank.store(rank); }

std::string place() {
  std::string text;
  int device = -1;
  if (::cudaGetDevice(&device) == cudaSuccess) text = "device " + std::to_string(device);
  ::cudaGetLastError();
  if (const int rank = known_rank.load(); rank >= 0) {
    text += (text.empty() ? "rank " : ", rank ") + std::to_string(rank);
  }
  return text;
}

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

std::string driver_problem() {
  std::string why;
  if (!DynamicLibrary::open("libcuda.so.1", &why)) {
    return "no CUDA driver: " + why +
           ". Install NVIDIA's driver, or give the container its GPUs (docker run --gpus all, "
           "apptainer --nv)";
  }
  int driver = 0;
  ::cudaDriverGetVersion(&driver);
  ::cudaGetLastError();
  if (driver == 0)
    return "no CUDA driver: libcuda.so.1 is there but does not answer. Check nvidia-smi";
  return "the CUDA driver is too old: it knows CUDA " + version_text(driver) +
         ", this oddrank was built with " + version_text(CUDART_VERSION) +
         ". Update the driver, or install oddrank with an older nvcc (CUDACXX)";
}

void throw_error(cudaError_t code, const char* call) {
  ::cudaGetLastError();
  if (code == cudaErrorInsufficientDriver) throw Error(driver_problem());
  if (code == cudaErrorNoDevice) throw Error(no_device_problem());
  const std::string where = place();
  throw Error(std::string(function_name(call)) + " failed with " + ::cudaGetErrorName(code) + " (" +
              std::to_string(static_cast<int>(code)) + "): " + ::cudaGetErrorString(code) +
              (where.empty() ? "" : "; " + where) +
              (code == cudaErrorNoKernelImageForDevice ? no_kernel_problem() : ""));
}

std::optional<int> driver_version() {
  int version = 0;
  ODDRANK_CUDA_CHECK(cudaDriverGetVersion(&version));  // no driver: success and 0
  return version == 0 ? std::nullopt : std::optional(version);
}

int runtime_version() {
  int version = 0;
  ODDRANK_CUDA_CHECK(cudaRuntimeGetVersion(&version));
  return version;
}

int device_count() {
  int count = 0;
  const cudaError_t code = cudaGetDeviceCount(&count);
  if (code == cudaErrorNoDevice) {
    cudaGetLastError();
    return 0;
  }
  check(code, "cudaGetDeviceCount");
  return count;
}

std::pair<std::size_t, std::size_t> memory_info(int device) {
  const OnDevice chosen(device);
  std::size_t free = 0, total = 0;
  ODDRANK_CUDA_CHECK(cudaMemGetInfo(&free, &total));
  return {free, total};
}

std::vector<Device> devices() {
  std::vector<Device> list;
  const int count = device_count();
  for (int i = 0; i < count; ++i) {
    cudaDeviceProp device{};
    ODDRANK_CUDA_CHECK(cudaGetDeviceProperties(&device, i));
    char pci[32] = "";
    ODDRANK_CUDA_CHECK(cudaDeviceGetPCIBusId(pci, sizeof pci, i));
    list.push_back({i,
                    device.name,
                    uuid_text(device.uuid),
                    pci,
                    device.totalGlobalMem,
                    {device.major, device.minor},
                    device.multiProcessorCount});
  }
  return list;
}

}  // namespace oddrank::cuda
