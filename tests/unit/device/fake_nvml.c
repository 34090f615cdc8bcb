/* A small NVML for tests: four GPUs whose answers are set by the environment.
 *
 * FAKE_NVML_FAULT  "function=code,..."   this function returns that error (nvml.h, nvmlReturn_t)
 * FAKE_NVML_ZERO   "function,..."        this function succeeds and answers 0
 * FAKE_NVML_SLEEP  "function=seconds"    this function hangs
 * FAKE_NVML_COUNT  number of GPUs (default 4);  FAKE_NVML_ORDER "2,0,3,1"  which GPU is at which index
 * FAKE_NVML_MIG    "1"                   MIG is on, with two instances on each GPU (places 0 and 2)
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, INVALID_ARGUMENT = 2, NOT_FOUND = 6, MIG = 100 };
typedef void *device;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { char legacy[16]; unsigned domain, bus, dev, id, subsystem; char bus_id[32]; } pci;
typedef struct { unsigned gpu, memory; } rates;

/* The value after "name=" (or 1 for a bare "name") in a list, -1 where the name is not in it. */
static int setting(const char *variable, const char *name) {
    const char *list = getenv(variable);
    size_t n = strlen(name);
    while (list && *list) {
        if (!strncmp(list, name, n) && (list[n] == '=' || list[n] == ',' || !list[n]))
            return list[n] == '=' ? atoi(list + n + 1) : 1;
        list = strchr(list, ',');
        if (list) list++;
    }
    return -1;
}

static int begin(const char *name) {
    int seconds = setting("FAKE_NVML_SLEEP", name), code = setting("FAKE_NVML_FAULT", name);
    if (seconds > 0) sleep((unsigned)seconds);
    return code > 0 ? code : OK;
}

static unsigned value(const char *name, unsigned usual) { return setting("FAKE_NVML_ZERO", name) > 0 ? 0 : usual; }
static unsigned number(device d) { return (unsigned)((size_t)d - 1) % MIG; }

#define BEGIN do { int code_ = begin(__func__); if (code_) return code_; } while (0)
#define ANSWER(name, type, usual) \
    int name(device d, type *out) { BEGIN; (void)d; *out = (type)value(__func__, usual); return OK; }

int nvmlInit_v2(void) { BEGIN; return OK; }
int nvmlInitWithFlags(unsigned flags) { (void)flags; return nvmlInit_v2(); }
int nvmlShutdown(void) { BEGIN; return OK; }
const char *nvmlErrorString(int code) { (void)code; return "fake error"; }
int nvmlSystemGetDriverVersion(char *out, unsigned n) { BEGIN; snprintf(out, n, "580.95.05"); return OK; }
int nvmlSystemGetCudaDriverVersion(int *out) { BEGIN; *out = (int)value(__func__, 13000); return OK; }

int nvmlDeviceGetCount_v2(unsigned *out) {
    BEGIN;
    *out = getenv("FAKE_NVML_COUNT") ? (unsigned)atoi(getenv("FAKE_NVML_COUNT")) : 4;
    return OK;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device *out) {
    const char *order = getenv("FAKE_NVML_ORDER");
    BEGIN;
    if (order && index < strlen(order)) index = (unsigned)(order[2 * index] - '0');
    *out = (device)(size_t)(index + 1);
    return OK;
}

int nvmlDeviceGetUUID(device d, char *out, unsigned n) {
    BEGIN;
    if ((size_t)d > MIG)
        snprintf(out, n, "MIG-%08x-1111-2222-3333-%012x", number(d), (unsigned)((size_t)d / MIG));
    else
        snprintf(out, n, "GPU-%08x-aaaa-bbbb-cccc-%012x", 0x10 + number(d), number(d));
    return OK;
}

int nvmlDeviceGetName(device d, char *out, unsigned n) { BEGIN; (void)d; snprintf(out, n, "Fake H200"); return OK; }

int nvmlDeviceGetPciInfo_v3(device d, pci *out) {
    BEGIN;
    memset(out, 0, sizeof *out);
    snprintf(out->bus_id, sizeof out->bus_id, "00000000:%02X:00.0", 0x18 + number(d));
    return OK;
}

int nvmlDeviceGetCudaComputeCapability(device d, int *major, int *minor) { BEGIN; (void)d; *major = 9; *minor = 0; return OK; }

int nvmlDeviceGetMemoryInfo(device d, memory *out) {
    BEGIN;
    (void)d;
    out->total = value(__func__, 1) ? 150754820096ull : 0;
    out->used = 1073741824ull;
    out->free = out->total - out->used;
    return OK;
}

int nvmlDeviceGetClockInfo(device d, int kind, unsigned *out) { BEGIN; (void)d; *out = kind == 2 ? 3201 : 345; return OK; }
int nvmlDeviceGetMaxClockInfo(device d, int kind, unsigned *out) {
    BEGIN; (void)d; *out = value(__func__, kind == 2 ? 3201 : 1980); return OK;
}
int nvmlDeviceGetTemperature(device d, int sensor, unsigned *out) { BEGIN; (void)d; (void)sensor; *out = 31; return OK; }
int nvmlDeviceGetUtilizationRates(device d, rates *out) { BEGIN; (void)d; out->gpu = 25; out->memory = 3; return OK; }

ANSWER(nvmlDeviceGetPowerUsage, unsigned, 76543)
ANSWER(nvmlDeviceGetPowerManagementLimit, unsigned, 700000)
ANSWER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned, 700000)
ANSWER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned, 1)
ANSWER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned, 5)
ANSWER(nvmlDeviceGetCurrPcieLinkWidth, unsigned, 16)
ANSWER(nvmlDeviceGetMaxPcieLinkWidth, unsigned, 16)
ANSWER(nvmlDeviceGetComputeMode, int, 3)
ANSWER(nvmlDeviceGetCurrentClocksEventReasons, unsigned long long, 0x804)
ANSWER(nvmlDeviceGetCurrentClocksThrottleReasons, unsigned long long, 0x1)

int nvmlDeviceGetMigMode(device d, unsigned *now, unsigned *pending) {
    BEGIN;
    (void)d;
    *now = *pending = getenv("FAKE_NVML_MIG") != NULL;
    return OK;
}
int nvmlDeviceGetMaxMigDeviceCount(device d, unsigned *out) { BEGIN; (void)d; *out = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned index, device *out) {
    BEGIN;
    if (index != 0 && index != 2) return NOT_FOUND;
    *out = (device)((size_t)d + (size_t)MIG * (index + 1));
    return OK;
}
