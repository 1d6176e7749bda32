// A virtual AMD GPU: the entry points of the HIP runtime (and of hiprtc and comgr) that hipBLASLt, rocBLAS and MIOpen
// call, to be preloaded in front of libamdhip64.  So the libraries' host code runs as it is, without a GPU.
//
// Memory is the host's.  A launch computes what it knows at once, and its planted time (plan.h) is added to the device's
// virtual clock, which HIP events read.  The host has a virtual clock too: each launch and event costs it HOST_US, and a
// kernel starts when both are there.  So a device that nothing holds waits for the host, and an event is ready when the
// host's clock has reached it, as on a GPU; and yet times are exact and do not depend on the machine.
//
//   VGPU_ARCH, VGPU_CUS, VGPU_NAME   the device (default gfx90a:sramecc+:xnack-, 104, AMD Instinct MI210)
//   VGPU_LOG=FILE                    every launch is appended: name, sizes, us
//   VGPU_COMPUTE=N                   larger products are not computed (multiplications; default 2^27)
#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <hip/hip_runtime_api.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <map>
#include <mutex>

#include "convs.h"
#include "gemms.h"
#include "plan.h"

namespace {

using vgpu::Launch;

std::mutex mutex;
constexpr double HOST_US = 2, CYCLES_PER_US = 1700;
double host_us = 0, device_us = 0;  // the device's: when all that was enqueued ends
double busy_us = 0;                 // in kernels, by which drift and steps of the clock are planted
std::string launched_since, compiled_since;
std::map<void*, size_t> allocations;

struct Event {
    double us = 0;
};
struct Module {
    std::string options;  // with which its code was compiled
};
struct Function {
    std::string name;
    const Module* module;
};

// A program registers its own kernels before this library is initialised.
std::map<const void*, std::string>& registered() {
    static auto* names = new std::map<const void*, std::string>;
    return *names;
}

vgpu::Times& times() {
    static vgpu::Times all;
    return all;
}

void logged(const Launch& launch, double us) {
    static const std::string path = vgpu::setting("VGPU_LOG");
    if (path.empty()) return;
    static const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    char tail[32];
    std::snprintf(tail, sizeof tail, " %.3f us\n", us);
    const std::string line = launch.name + launch.sizes + tail;
    if (write(file, line.data(), line.size()) < 0) std::perror("virtual GPU: VGPU_LOG");
}

struct Arguments {  // as a launch passes them: one buffer, or a pointer to each
    const char* buffer = nullptr;
    size_t bytes = 0;
    void** each = nullptr;
};

Arguments arguments(void** each, void** extra) {
    Arguments found{nullptr, 0, each};
    for (void** at = extra; at && *at != HIP_LAUNCH_PARAM_END; at += 2) {
        if (*at == HIP_LAUNCH_PARAM_BUFFER_POINTER) found.buffer = static_cast<const char*>(at[1]);
        if (*at == HIP_LAUNCH_PARAM_BUFFER_SIZE) found.bytes = *static_cast<size_t*>(at[1]);
    }
    return found;
}

// The end of something that is enqueued now and takes so long.
double enqueued(double us) {
    host_us += HOST_US;
    return device_us = std::max(device_us, host_us) + us;
}

// As torch's: it spins for so many cycles.
bool spins(const Launch& launch, void** each) {
    if (launch.name != "spin_kernel") return false;
    const std::lock_guard<std::mutex> lock(mutex);
    enqueued(double(*static_cast<int64_t*>(each[0])) / CYCLES_PER_US);
    return true;
}

// Returns when it started and ended, µs.
std::pair<double, double> run(const Function& function, const Arguments& given, size_t groups) {
    static const vgpu::Kernels hanging("VGPU_HANG"), crashing("VGPU_CRASH"), wrong("VGPU_WRONG");
    static const double most = vgpu::number("VGPU_COMPUTE", 1 << 27);
    const vgpu::Gemm gemm = vgpu::read_gemm(function.name, given.buffer, given.bytes);
    const vgpu::Conv conv = vgpu::read_conv(function.name, given.buffer, given.bytes);
    const Launch launch{function.name, conv.direction ? conv.sizes() : gemm.m ? gemm.sizes() : ""};
    if (spins(launch, given.each)) return {};
    if (crashing.contain(launch)) {
        std::fprintf(stderr, "Memory access fault by GPU node-1 (virtual) in %s\n", launch.name.c_str());
        std::abort();
    }
    while (hanging.contain(launch)) pause();
    if (gemm.computed && gemm.multiplications() <= most) vgpu::compute(gemm, wrong.contain(launch));
    if (conv.direction && conv.multiplications() <= most) vgpu::compute(conv, wrong.contain(launch));
    if (given.buffer) vgpu::add_up_rows(function.name, {given.buffer, given.bytes}, wrong.contain(launch));
    if (function.module && given.buffer)
        vgpu::compute_beside(function.name, function.module->options, {given.buffer, given.bytes}, groups,
                             wrong.contain(launch));
    const std::lock_guard<std::mutex> lock(mutex);
    const double us = times().us(launch, busy_us);
    busy_us += us;
    launched_since += launch.name + launch.sizes + '\n';
    logged(launch, us);
    const double end = enqueued(us);
    return {end - us, end};
}

hipError_t allocate(void** pointer, size_t bytes) {
    *pointer = nullptr;
    if (!bytes) return hipSuccess;
    const size_t whole = (bytes + 4095) & ~size_t(4095);
    // Pages that are never written are never backed, so allocations may be as large as a GPU's.
    void* memory = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) return hipErrorOutOfMemory;
    const std::lock_guard<std::mutex> lock(mutex);
    allocations[memory] = whole;
    *pointer = memory;
    return hipSuccess;
}

hipError_t release(void* pointer) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = allocations.find(pointer);
    if (found != allocations.end()) {
        munmap(pointer, found->second);
        allocations.erase(found);
    }
    return hipSuccess;
}

hipError_t copied(void* to, const void* from, size_t bytes) {
    if (to && from) std::memmove(to, from, bytes);
    return hipSuccess;
}

hipError_t copied_2d(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t height) {
    for (size_t row = 0; row < height; row++)
        std::memmove(static_cast<char*>(to) + row * to_pitch, static_cast<const char*>(from) + row * from_pitch, width);
    return hipSuccess;
}

hipError_t filled(void* to, int value, size_t bytes) {
    if (to) std::memset(to, value, bytes);
    return hipSuccess;
}

hipError_t recorded(hipEvent_t event) {
    const std::lock_guard<std::mutex> lock(mutex);
    reinterpret_cast<Event*>(event)->us = enqueued(0);
    return hipSuccess;
}

// The host waits until the device's clock has reached this.
hipError_t waited(double us) {
    const std::lock_guard<std::mutex> lock(mutex);
    host_us = std::max(host_us, us);
    return hipSuccess;
}
double all_us() {
    const std::lock_guard<std::mutex> lock(mutex);
    return device_us;
}
hipError_t reached(double us) {
    const std::lock_guard<std::mutex> lock(mutex);
    host_us += HOST_US;
    return us <= host_us ? hipSuccess : hipErrorNotReady;
}

hipError_t launched(hipFunction_t f, size_t groups, void** each, void** extra, hipEvent_t before, hipEvent_t after) {
    const auto [start, end] = run(*reinterpret_cast<const Function*>(f), arguments(each, extra), groups);
    if (before) reinterpret_cast<Event*>(before)->us = start;
    if (after) reinterpret_cast<Event*>(after)->us = end;
    return hipSuccess;
}

constexpr char OWN[] = "VGPU ";  // what "code" of ours begins with

bool is_elf(const char* code) { return !std::memcmp(code, "\177ELF", 4); }
// Its section headers are its end.
size_t elf_bytes(const char* code) {
    Elf64_Ehdr header;
    std::memcpy(&header, code, sizeof header);
    return header.e_shoff + size_t(header.e_shentsize) * header.e_shnum;
}
std::string opencl_options;  // of what comgr compiles next

// The real comgr's function: MIOpen has loaded it.
template <class Function>
Function* comgr(const char* name) {
    return reinterpret_cast<Function*>(dlsym(dlopen("libamd_comgr.so.3", RTLD_LAZY | RTLD_NOLOAD), name));
}

struct Program {
    std::string name, code;
};

const char* taken(std::string& since, std::string& answer) {
    const std::lock_guard<std::mutex> lock(mutex);
    answer.swap(since);
    since.clear();
    return answer.c_str();
}

thread_local struct {
    dim3 grid, block;
    size_t shared;
    hipStream_t stream;
} configuration;

}  // namespace

extern "C" {

// ---- for the suite ----

// What a harness states of the device: "device", "arch" or "cu_count".
const char* vgpu_fact(const char* name) {
    static const std::string device = vgpu::setting("VGPU_NAME", "AMD Instinct MI210");
    static const std::string arch = vgpu::setting("VGPU_ARCH", "gfx90a:sramecc+:xnack-");
    static const std::string cus = vgpu::setting("VGPU_CUS", "104");
    const std::string asked = name;
    return (asked == "device" ? device : asked == "arch" ? arch : cus).c_str();
}
// The kernels launched since the last question, one per line; the text holds until the next.
const char* vgpu_launched() {
    static std::string answer;
    return taken(launched_since, answer);
}
// The same of the sources that hiprtc compiled, with their options.
const char* vgpu_compiled() {
    static std::string answer;
    return taken(compiled_since, answer);
}

// ---- the device ----

hipError_t hipInit(unsigned) { return hipSuccess; }
hipError_t hipGetDeviceCount(int* count) { return *count = 1, hipSuccess; }
hipError_t hipGetDevice(int* device) { return *device = 0, hipSuccess; }
hipError_t hipSetDevice(int) { return hipSuccess; }
hipError_t hipRuntimeGetVersion(int* version) { return *version = 70253211, hipSuccess; }
hipError_t hipDriverGetVersion(int* version) { return *version = 70253211, hipSuccess; }
hipError_t hipGetLastError() { return hipSuccess; }
hipError_t hipPeekAtLastError() { return hipSuccess; }
hipError_t hipExtGetLastError() { return hipSuccess; }
hipError_t hipDeviceTotalMem(size_t* bytes, hipDevice_t) { return *bytes = 64ull << 30, hipSuccess; }
hipError_t hipMemGetInfo(size_t* free, size_t* total) { return *free = 60ull << 30, *total = 64ull << 30, hipSuccess; }

hipError_t hipGetDevicePropertiesR0600(hipDeviceProp_tR0600* p, int) {
    std::memset(p, 0, sizeof *p);
    std::snprintf(p->name, sizeof p->name, "%s", vgpu_fact("device"));
    std::snprintf(p->gcnArchName, sizeof p->gcnArchName, "%s", vgpu_fact("arch"));
    p->multiProcessorCount = std::atoi(vgpu_fact("cu_count"));
    p->totalGlobalMem = 64ull << 30;
    p->sharedMemPerBlock = p->maxSharedMemoryPerMultiProcessor = p->sharedMemPerMultiprocessor = 65536;
    p->regsPerBlock = 65536;
    p->warpSize = 64;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->clockRate = int(CYCLES_PER_US * 1000);
    p->memoryClockRate = 1600000;
    p->memoryBusWidth = 4096;
    p->l2CacheSize = 8 << 20;
    p->major = 9;
    p->pciBusID = 1;
    p->textureAlignment = 256;
    p->concurrentKernels = p->canMapHostMemory = p->managedMemory = p->isLargeBar = p->unifiedAddressing = 1;
    for (int axis = 0; axis < 3; axis++) p->maxThreadsDim[axis] = 1024, p->maxGridSize[axis] = 2147483647;
    return hipSuccess;
}

hipError_t hipDeviceGetAttribute(int* value, hipDeviceAttribute_t attribute, int device) {
    hipDeviceProp_tR0600 p;
    (void)hipGetDevicePropertiesR0600(&p, device);
    switch (attribute) {
        case hipDeviceAttributeMultiprocessorCount: *value = p.multiProcessorCount; break;
        case hipDeviceAttributeWarpSize: *value = p.warpSize; break;
        case hipDeviceAttributeMaxSharedMemoryPerBlock: *value = int(p.sharedMemPerBlock); break;
        case hipDeviceAttributeComputeCapabilityMajor: *value = p.major; break;
        case hipDeviceAttributeClockRate: *value = p.clockRate; break;
        case hipDeviceAttributeMaxThreadsPerBlock: *value = p.maxThreadsPerBlock; break;
        case hipDeviceAttributeMaxThreadsPerMultiProcessor: *value = p.maxThreadsPerMultiProcessor; break;
        case hipDeviceAttributeL2CacheSize: *value = p.l2CacheSize; break;
        case hipDeviceAttributeMemoryPoolsSupported: *value = 1; break;
        default: *value = 0;
    }
    return hipSuccess;
}

// ---- memory ----

hipError_t hipMalloc(void** p, size_t n) { return allocate(p, n); }
hipError_t hipExtMallocWithFlags(void** p, size_t n, unsigned) { return allocate(p, n); }
hipError_t hipMallocManaged(void** p, size_t n, unsigned) { return allocate(p, n); }
hipError_t hipMallocAsync(void** p, size_t n, hipStream_t) { return allocate(p, n); }
hipError_t hipHostMalloc(void** p, size_t n, unsigned) { return allocate(p, n); }
hipError_t hipFree(void* p) { return release(p); }
hipError_t hipFreeAsync(void* p, hipStream_t) { return release(p); }
hipError_t hipHostFree(void* p) { return release(p); }
hipError_t hipMemPtrGetInfo(void* p, size_t* bytes) {
    const std::lock_guard<std::mutex> lock(mutex);
    const auto found = allocations.find(p);
    *bytes = found == allocations.end() ? 0 : found->second;
    return hipSuccess;
}
hipError_t hipMemcpy(void* to, const void* from, size_t n, hipMemcpyKind) { return copied(to, from, n); }
hipError_t hipMemcpyAsync(void* to, const void* from, size_t n, hipMemcpyKind, hipStream_t) {
    return copied(to, from, n);
}
hipError_t hipMemcpyWithStream(void* to, const void* from, size_t n, hipMemcpyKind, hipStream_t) {
    return copied(to, from, n);
}
hipError_t hipMemcpy2D(void* to, size_t tp, const void* from, size_t fp, size_t w, size_t h, hipMemcpyKind) {
    return copied_2d(to, tp, from, fp, w, h);
}
hipError_t hipMemcpy2DAsync(
    void* to, size_t tp, const void* from, size_t fp, size_t w, size_t h, hipMemcpyKind, hipStream_t) {
    return copied_2d(to, tp, from, fp, w, h);
}
hipError_t hipMemset(void* to, int value, size_t n) { return filled(to, value, n); }
hipError_t hipMemsetAsync(void* to, int value, size_t n, hipStream_t) { return filled(to, value, n); }
hipError_t hipDeviceGetDefaultMemPool(hipMemPool_t* pool, int) { return *pool = nullptr, hipSuccess; }
hipError_t hipMemPoolTrimTo(hipMemPool_t, size_t) { return hipSuccess; }
hipError_t hipPointerGetAttributes(hipPointerAttribute_t* a, const void*) {
    std::memset(a, 0, sizeof *a);
    a->type = hipMemoryTypeDevice;
    return hipSuccess;
}

// ---- streams, which are all one, and events ----

hipError_t hipDeviceSynchronize() { return waited(all_us()); }
hipError_t hipStreamCreate(hipStream_t* s) { return *s = reinterpret_cast<hipStream_t>(new char), hipSuccess; }
hipError_t hipStreamCreateWithFlags(hipStream_t* s, unsigned) { return hipStreamCreate(s); }
hipError_t hipStreamDestroy(hipStream_t s) { return delete reinterpret_cast<char*>(s), hipSuccess; }
hipError_t hipStreamSynchronize(hipStream_t) { return waited(all_us()); }
hipError_t hipStreamQuery(hipStream_t) { return reached(all_us()); }
hipError_t hipStreamWaitEvent(hipStream_t, hipEvent_t, unsigned) { return hipSuccess; }
hipError_t hipStreamIsCapturing(hipStream_t, hipStreamCaptureStatus* status) {
    return *status = hipStreamCaptureStatusNone, hipSuccess;
}
hipError_t hipEventCreate(hipEvent_t* e) { return *e = reinterpret_cast<hipEvent_t>(new Event), hipSuccess; }
hipError_t hipEventCreateWithFlags(hipEvent_t* e, unsigned) { return hipEventCreate(e); }
hipError_t hipEventDestroy(hipEvent_t e) { return delete reinterpret_cast<Event*>(e), hipSuccess; }
hipError_t hipEventSynchronize(hipEvent_t event) { return waited(reinterpret_cast<Event*>(event)->us); }
hipError_t hipEventQuery(hipEvent_t event) { return reached(reinterpret_cast<Event*>(event)->us); }
hipError_t hipEventRecord(hipEvent_t event, hipStream_t) { return recorded(event); }
hipError_t hipEventElapsedTime(float* ms, hipEvent_t from, hipEvent_t to) {
    *ms = float((reinterpret_cast<Event*>(to)->us - reinterpret_cast<Event*>(from)->us) / 1e3);
    return hipSuccess;
}

// ---- modules and launches ----

hipError_t hipModuleLoad(hipModule_t* module, const char*) {
    return *module = reinterpret_cast<hipModule_t>(new Module), hipSuccess;
}
hipError_t hipModuleLoadData(hipModule_t* module, const void* code) {
    const char* text = static_cast<const char*>(code);
    if (is_elf(text)) text += elf_bytes(text);  // comgr's, see there
    const bool own = !std::strncmp(text, OWN, sizeof OWN - 1);
    return *module = reinterpret_cast<hipModule_t>(new Module{own ? text : ""}), hipSuccess;
}
hipError_t hipModuleLoadDataEx(hipModule_t* module, const void* code, unsigned, hipJitOption*, void**) {
    return hipModuleLoadData(module, code);
}
hipError_t hipModuleUnload(hipModule_t) { return hipSuccess; }  // functions refer to it
hipError_t hipModuleGetFunction(hipFunction_t* function, hipModule_t module, const char* name) {
    *function = reinterpret_cast<hipFunction_t>(new Function{name, reinterpret_cast<Module*>(module)});
    return hipSuccess;
}
hipError_t hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, hipFunction_t, int, size_t) {
    return *blocks = 2, hipSuccess;
}
hipError_t hipModuleLaunchKernel(hipFunction_t f, unsigned groups, unsigned, unsigned, unsigned, unsigned, unsigned,
                                 unsigned, hipStream_t, void** each, void** extra) {
    return launched(f, groups, each, extra, nullptr, nullptr);
}
hipError_t hipModuleLaunchCooperativeKernel(hipFunction_t f, unsigned groups, unsigned, unsigned, unsigned, unsigned,
                                            unsigned, unsigned, hipStream_t, void** each) {
    return launched(f, groups, each, nullptr, nullptr, nullptr);
}
hipError_t hipExtModuleLaunchKernel(hipFunction_t f, unsigned items, unsigned, unsigned, unsigned block, unsigned,
                                    unsigned, size_t, hipStream_t, void** each, void** extra, hipEvent_t before,
                                    hipEvent_t after, unsigned) {
    return launched(f, items / block, each, extra, before, after);
}
hipError_t hipHccModuleLaunchKernel(hipFunction_t f, unsigned items, unsigned, unsigned, unsigned block, unsigned,
                                    unsigned, size_t, hipStream_t, void** each, void** extra, hipEvent_t before,
                                    hipEvent_t after) {
    return launched(f, items / block, each, extra, before, after);
}
hipError_t hipLaunchKernel(const void* host, dim3 grid, dim3, void** each, size_t, hipStream_t) {
    const auto found = registered().find(host);
    const Function function{found == registered().end() ? "unregistered" : found->second, nullptr};
    run(function, {nullptr, 0, each}, grid.x);
    return hipSuccess;
}
void** __hipRegisterFatBinary(const void*) {
    static void* handle = nullptr;
    return &handle;
}
void __hipRegisterFunction(void**, const void* host, char*, const char* name, unsigned, void*, void*, void*, void*,
                           int*) {
    registered()[host] = name ? name : "unnamed";
}
void __hipRegisterVar(void**, void*, char*, const char*, int, size_t, int, int) {}
void __hipUnregisterFatBinary(void**) {}
hipError_t __hipPushCallConfiguration(dim3 grid, dim3 block, size_t shared, hipStream_t stream) {
    return configuration = {grid, block, shared, stream}, hipSuccess;
}
hipError_t __hipPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, hipStream_t* stream) {
    *grid = configuration.grid;
    *block = configuration.block;
    *shared = configuration.shared;
    *stream = configuration.stream;
    return hipSuccess;
}

// ---- hiprtc: "code" is the source's name and the options, which say the element type ----

int hiprtcVersion(int* major, int* minor) { return *major = 9, *minor = 0, 0; }
int hiprtcCreateProgram(Program** program, const char*, const char* name, int, const char**, const char**) {
    return *program = new Program{name ? name : "", ""}, 0;
}
int hiprtcDestroyProgram(Program** program) { return delete *program, 0; }
int hiprtcAddNameExpression(Program*, const char*) { return 0; }
int hiprtcGetLoweredName(Program*, const char* name, const char** lowered) { return *lowered = name, 0; }
int hiprtcCompileProgram(Program* program, int count, const char** options) {
    program->code = OWN + program->name;
    for (int i = 0; i < count; i++) program->code += std::string(" ") + options[i];
    const std::lock_guard<std::mutex> lock(mutex);
    compiled_since += program->code + '\n';
    return 0;
}
int hiprtcGetCodeSize(Program* program, size_t* bytes) { return *bytes = program->code.size() + 1, 0; }
int hiprtcGetCode(Program* program, char* code) {
    return std::memcpy(code, program->code.c_str(), program->code.size() + 1), 0;
}
int hiprtcGetProgramLogSize(Program*, size_t* bytes) { return *bytes = 1, 0; }
int hiprtcGetProgramLog(Program*, char* log) { return *log = 0, 0; }
const char* hiprtcGetErrorString(int) { return "ok"; }

// ---- comgr: the real one compiles OpenCL; its options are put behind the code, and are kept with it in caches ----

int amd_comgr_action_info_set_option_list(uint64_t action, const char** options, size_t count) {
    std::string all = OWN;
    for (size_t i = 0; i < count; i++) all += std::string(" ") + options[i];
    if (vgpu::has(all, " -DMIOPEN_")) opencl_options = all;
    return comgr<int(uint64_t, const char**, size_t)>("amd_comgr_action_info_set_option_list")(action, options, count);
}
int amd_comgr_get_data(uint64_t data, size_t* bytes, char* to) {
    const auto real = comgr<int(uint64_t, size_t*, char*)>("amd_comgr_get_data");
    size_t size = 0;
    if (const int error = real(data, &size, nullptr)) return error;
    std::string all(size, 0);
    if (const int error = real(data, &size, &all[0])) return error;
    if (size > sizeof(Elf64_Ehdr) && is_elf(all.data()) && elf_bytes(all.data()) == size)
        all.append(opencl_options.c_str(), opencl_options.size() + 1);
    if (to) std::memcpy(to, all.data(), std::min(*bytes, all.size()));
    return *bytes = all.size(), 0;
}

}  // extern "C"
