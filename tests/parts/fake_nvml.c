// A stand-in for libnvidia-ml.so.1: NVIDIA's own Python binding loads it, and reads from a text file
// what GPUs there are. The file (FAKE_NVML) is read again at each call, so a test changes telemetry,
// unplugs a GPU, or makes a call fail or hang, while the daemon runs. Structs are nvml.h's. Lines:
//
//   driver 580.95.05
//   init N                    nvmlInit fails with code N (9: driver not loaded, 18: version mismatch)
//   gpu KEY=VALUE...          uuid, name (_ is a blank), pci; cc=9.0; minor; total, used, reserved (MiB);
//                             util (%); temp (C); power, limit (mW); mig=0|1; numa; -1: not supported.
//                             mem=1, 0 (not supported) or 2 (success, with zeros)
//   mig gpu=N uuid=... total= used=                              a slice of the N-th GPU
//   proc gpu=N pid=N used=MiB [kind=compute|graphics]            used=-1: not available
//   link A B LEVEL            common ancestor; nvlink A B: a link of their own
//   fail FUNCTION CODE [gpu]  e.g. 15, the GPU is lost; FUNCTION may be * for all of a GPU's
//   hang FUNCTION             never returns while the line is there
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { OK = 0, UNINITIALIZED = 1, BAD_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7,
       NOT_LOADED = 9, BAD_VERSION = 25 };
enum { GPUS = 64, LINES = 256 };

typedef unsigned int u32;
typedef unsigned long long u64;
typedef struct {
  char uuid[96], name[96], pci[32], cc[16];
  long long total, used, reserved, util, temp, power, limit, minor, mig, numa, mem;
  int parent;
} Gpu;
typedef struct { u32 pid; u64 used; u32 gpu_instance, compute_instance; } Process;  // _v2 and _v3

static Gpu gpus[GPUS];
static int count, slices, processes, faults, links, started, init_code;
static char driver[80];
static struct { int gpu, graphics; Process p; } process[LINES];
static struct { char function[64]; int code, gpu, hangs; } fault[LINES];
static struct { int a, b, level; } relation[LINES];

static long long number(const char *line, const char *key, long long otherwise) {
  char pattern[32];
  snprintf(pattern, sizeof pattern, " %s=", key);
  const char *at = strstr(line, pattern);
  return at ? atoll(at + strlen(pattern)) : otherwise;
}

static void word(const char *line, const char *key, char *out, size_t room, const char *otherwise) {
  char pattern[32];
  snprintf(pattern, sizeof pattern, " %s=", key);
  const char *at = strstr(line, pattern);
  size_t i = 0;
  for (at = at ? at + strlen(pattern) : otherwise; *at && *at != ' ' && *at != '\n' && i + 1 < room; at++)
    out[i++] = *at == '_' ? ' ' : *at;
  out[i] = 0;
}

static void read_gpu(Gpu *g, const char *line, int parent) {
  word(line, "uuid", g->uuid, sizeof g->uuid, "GPU-unnamed");
  word(line, "name", g->name, sizeof g->name, parent < 0 ? "NVIDIA Fake" : "NVIDIA Fake MIG 1g.10gb");
  word(line, "pci", g->pci, sizeof g->pci, "00000000:01:00.0");
  word(line, "cc", g->cc, sizeof g->cc, "9.0");
  g->total = number(line, "total", 81559), g->used = number(line, "used", 0);
  g->reserved = number(line, "reserved", 0), g->util = number(line, "util", parent < 0 ? 0 : -1);
  g->temp = number(line, "temp", parent < 0 ? 30 : -1), g->power = number(line, "power", parent < 0 ? 50000 : -1);
  g->limit = number(line, "limit", parent < 0 ? 700000 : -1), g->minor = number(line, "minor", count);
  g->mig = number(line, "mig", -1), g->numa = number(line, "numa", -1), g->mem = number(line, "mem", 1);
  g->parent = parent;
}

static int load(void) {
  const char *path = getenv("FAKE_NVML");
  FILE *file = path ? fopen(path, "r") : 0;
  char line[1024], name[80];
  int a, b, n;
  if (!file) return NOT_LOADED;
  count = slices = processes = faults = links = init_code = 0;
  strcpy(driver, "580.00.00");
  while (fgets(line, sizeof line, file)) {
    if (sscanf(line, "driver %79s", driver) == 1 || sscanf(line, "init %d", &init_code) == 1) continue;
    if (!strncmp(line, "gpu ", 4) && count < GPUS) read_gpu(&gpus[count], line, -1), count++;
    else if (!strncmp(line, "mig ", 4) && slices < GPUS / 2)
      read_gpu(&gpus[GPUS - 1 - slices], line, (int)number(line, "gpu", 0)), slices++;
    else if (!strncmp(line, "proc ", 5) && processes < LINES) {
      long long used = number(line, "used", -1);
      word(line, "kind", name, sizeof name, "compute");
      process[processes].gpu = (int)number(line, "gpu", 0);
      process[processes].graphics = !strcmp(name, "graphics");
      process[processes].p.pid = (u32)number(line, "pid", 0);
      process[processes].p.used = used < 0 ? ~0ULL : (u64)used << 20;
      process[processes].p.gpu_instance = process[processes].p.compute_instance = ~0u;
      processes++;
    } else if (sscanf(line, "link %d %d %d", &a, &b, &n) == 3 && links < LINES)
      relation[links].a = a, relation[links].b = b, relation[links++].level = n;
    else if (sscanf(line, "nvlink %d %d", &a, &b) == 2 && links < LINES)
      relation[links].a = a, relation[links].b = b, relation[links++].level = -1;
    else if ((n = sscanf(line, "fail %63s %d %d", name, &a, &b)) >= 2 && faults < LINES) {
      strcpy(fault[faults].function, name);
      fault[faults].code = a, fault[faults].gpu = n == 3 ? b : -1, fault[faults++].hangs = 0;
    } else if (sscanf(line, "hang %63s", name) == 1 && faults < LINES) {
      strcpy(fault[faults].function, name);
      fault[faults].code = 0, fault[faults].gpu = -1, fault[faults++].hangs = 1;
    }
  }
  fclose(file);
  return OK;
}

static int enter(const char *function, int gpu) {
  for (;;) {
    int code = load(), hangs = 0;
    if (!started && strcmp(function, "nvmlInit")) return UNINITIALIZED;
    for (int i = 0; !code && i < faults; i++) {
      int all = !strcmp(fault[i].function, "*") && gpu >= 0;
      if (!all && strcmp(fault[i].function, function)) continue;
      if (fault[i].gpu >= 0 && fault[i].gpu != gpu) continue;
      code = fault[i].code, hangs |= fault[i].hangs;
    }
    if (!hangs) return code ? code : gpu >= count && gpu < GPUS / 2 ? BAD_ARGUMENT : OK;
    usleep(20000);
  }
}

static int copy(char *out, u32 room, const char *value) {
  if (strlen(value) + 1 > room) return TOO_SMALL;
  strcpy(out, value);
  return OK;
}

#define ASKED(function) int code = enter(function, -1); if (code) return code
#define OF(handle, function) \
  int at = (int)(size_t)(handle) - 1, code = enter(function, at); if (code) return code; \
  Gpu *g = &gpus[at]; (void)g
#define GIVE(type, field) \
  do { *out = (type)(g->field); return g->field < 0 ? NOT_SUPPORTED : OK; } while (0)

int nvmlInitWithFlags(u32 flags) { (void)flags; ASKED("nvmlInit"); if (init_code) return init_code; started++; return OK; }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { started--; return OK; }
const char *nvmlErrorString(int code) { (void)code; return "an error that the test asked for"; }
int nvmlSystemGetDriverVersion(char *out, u32 room) { ASKED("nvmlSystemGetDriverVersion"); return copy(out, room, driver); }
int nvmlDeviceGetCount_v2(u32 *out) { ASKED("nvmlDeviceGetCount"); *out = (u32)count; return OK; }
int nvmlDeviceGetHandleByIndex_v2(u32 i, void **out) {
  int code = enter("nvmlDeviceGetHandleByIndex", (int)i);
  if (!code) *out = (void *)((size_t)i + 1);
  return code;
}
int nvmlDeviceGetUUID(void *h, char *out, u32 room) { OF(h, "nvmlDeviceGetUUID"); return copy(out, room, g->uuid); }
int nvmlDeviceGetName(void *h, char *out, u32 room) { OF(h, "nvmlDeviceGetName"); return copy(out, room, g->name); }
int nvmlDeviceGetMinorNumber(void *h, u32 *out) { OF(h, "nvmlDeviceGetMinorNumber"); GIVE(u32, minor); }
int nvmlDeviceGetNumaNodeId(void *h, int *out) { OF(h, "nvmlDeviceGetNumaNodeId"); GIVE(int, numa); }
int nvmlDeviceGetPowerUsage(void *h, u32 *out) { OF(h, "nvmlDeviceGetPowerUsage"); GIVE(u32, power); }
int nvmlDeviceGetEnforcedPowerLimit(void *h, u32 *out) { OF(h, "nvmlDeviceGetEnforcedPowerLimit"); GIVE(u32, limit); }
int nvmlDeviceGetTemperature(void *h, u32 sensor, u32 *out) { (void)sensor; OF(h, "nvmlDeviceGetTemperature"); GIVE(u32, temp); }
typedef struct { u32 version, sensor; int temperature; } Temperature;
int nvmlDeviceGetTemperatureV(void *h, Temperature *t) {
  OF(h, "nvmlDeviceGetTemperature");
  if (t->version != 0x100000C) return BAD_VERSION;
  int *out = &t->temperature;
  GIVE(int, temp);
}
typedef struct { u64 total, free, used; } Memory;
int nvmlDeviceGetMemoryInfo(void *h, Memory *m) {  // what is reserved counts as used here
  OF(h, "nvmlDeviceGetMemoryInfo");
  if (!g->mem) return NOT_SUPPORTED;
  m->total = g->mem == 2 ? 0 : (u64)g->total << 20, m->used = (u64)(g->used + g->reserved) << 20;
  m->free = m->total - m->used;
  return OK;
}
typedef struct { u32 version; u64 total, reserved, free, used; } Memory2;
int nvmlDeviceGetMemoryInfo_v2(void *h, Memory2 *m) {
  OF(h, "nvmlDeviceGetMemoryInfo");
  if (m->version != 0x02000028) return BAD_VERSION;
  if (!g->mem) return NOT_SUPPORTED;
  m->total = g->mem == 2 ? 0 : (u64)g->total << 20, m->used = g->mem == 2 ? 0 : (u64)g->used << 20;
  m->reserved = (u64)g->reserved << 20, m->free = m->total - m->used - m->reserved;
  return OK;
}
int nvmlDeviceGetUtilizationRates(void *h, u32 *out) { OF(h, "nvmlDeviceGetUtilizationRates"); out[1] = 0; GIVE(u32, util); }
int nvmlDeviceGetCudaComputeCapability(void *h, int *major, int *minor) {
  OF(h, "nvmlDeviceGetCudaComputeCapability");
  *major = *minor = 0;
  sscanf(g->cc, "%d.%d", major, minor);
  return OK;
}
typedef struct { char legacy[16]; u32 domain, bus, device, id, subsystem; char text[32]; } Pci;
int nvmlDeviceGetPciInfo_v3(void *h, Pci *p) {
  OF(h, "nvmlDeviceGetPciInfo");
  memset(p, 0, sizeof *p);
  strcpy(p->text, g->pci);
  return OK;
}
int nvmlDeviceGetMigMode(void *h, u32 *out, u32 *pending) { OF(h, "nvmlDeviceGetMigMode"); *pending = 0; GIVE(u32, mig); }
int nvmlDeviceGetMaxMigDeviceCount(void *h, u32 *out) { OF(h, "nvmlDeviceGetMaxMigDeviceCount"); *out = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *h, u32 index, void **out) {
  OF(h, "nvmlDeviceGetMigDeviceHandleByIndex");
  for (int i = 0; i < slices; i++)
    if (gpus[GPUS - 1 - i].parent == at && !index--) { *out = (void *)((size_t)(GPUS - i)); return OK; }
  return NOT_FOUND;
}
static int related(void *one, void *other) {
  int a = (int)(size_t)one - 1, b = (int)(size_t)other - 1;
  for (int i = 0; i < links; i++)
    if ((relation[i].a == a && relation[i].b == b) || (relation[i].a == b && relation[i].b == a)) return relation[i].level;
  return 50;
}
int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, u32 *out) {
  int level = related(a, b);
  *out = level < 0 ? 50u : (u32)level;
  return OK;
}
int nvmlDeviceGetP2PStatus(void *a, void *b, int kind, u32 *out) { *out = kind == 2 && related(a, b) < 0 ? 0 : 5; return OK; }
static int list(void *h, u32 *n, Process *out, int graphics, const char *function) {
  OF(h, function);
  u32 found = 0, room = *n;
  for (int i = 0; i < processes; i++)
    if (process[i].gpu == at && process[i].graphics == graphics) { if (out && found < room) out[found] = process[i].p; found++; }
  *n = found;
  return found > (out ? room : 0) ? TOO_SMALL : OK;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *h, u32 *n, Process *o) { return list(h, n, o, 0, "nvmlDeviceGetComputeRunningProcesses"); }
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, u32 *n, Process *o) { return list(h, n, o, 1, "nvmlDeviceGetGraphicsRunningProcesses"); }
