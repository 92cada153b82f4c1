// The functions of libnvidia-ml.so.1 that SYCL's CUDA adapter calls, for driver.c: NVML is not available.
// clang-format off
#define UNKNOWN_ERROR(name) int name(void) { return 999; }
UNKNOWN_ERROR(nvmlInit_v2)
UNKNOWN_ERROR(nvmlShutdown)
UNKNOWN_ERROR(nvmlDeviceGetHandleByIndex_v2)
UNKNOWN_ERROR(nvmlDeviceGetCurrentClocksEventReasons)
UNKNOWN_ERROR(nvmlDeviceGetFanSpeed)
UNKNOWN_ERROR(nvmlDeviceGetPowerManagementLimit)
UNKNOWN_ERROR(nvmlDeviceGetPowerManagementLimitConstraints)
const char *nvmlErrorString(int error) { return error ? "NVML is not simulated" : "no error"; }
