// A libnvidia-ml with scripted answers, for tests of the binding. The structs
// are written after the public nvml.h (API 13), field by field, so that a C
// compiler decides their layout. Built by stub_test.go; what it lacks and how
// it fails is chosen with -D.
#include <stddef.h>
#include <string.h>
#include <unistd.h>

typedef void *device;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory2;
typedef struct { unsigned int gpu, mem; } util;
typedef struct { char legacy[16]; unsigned int domain, bus, device, id, subsystem; char busId[32]; } pci;
typedef struct { unsigned int pid; unsigned long long used; } proc1;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; } proc2;
typedef struct { unsigned int pid; unsigned long long used; unsigned int gi, ci; unsigned long long prot; } procwide;
typedef struct { unsigned int pid; unsigned long long time; unsigned int sm, mem, enc, dec; } sample;
typedef struct { device dev; unsigned long long type, data; unsigned int gi, ci; } event;

static char dev[2], mig[1], set[1];
static int index_of(device d) { return (char *)d == &dev[1]; }

#ifdef MISMATCH
int nvmlInit_v2(void) { return 18; }
#else
int nvmlInit_v2(void) { return 0; }
#endif
int nvmlShutdown(void) { return 0; }
int nvmlSystemGetDriverVersion(char *s, unsigned n) { strncpy(s, "580.1", n); return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, device *d) {
#ifdef LOST
	if (i == 1) return 15;
#endif
#ifdef HANG
	if (i == 1) sleep(3600);
#endif
	*d = &dev[i]; return 0;
}
int nvmlDeviceGetUUID(device d, char *s, unsigned n) {
	strncpy(s, d == (device)mig ? "MIG-1" : index_of(d) ? "GPU-b" : "GPU-a", n); return 0;
}
int nvmlDeviceGetName(device d, char *s, unsigned n) { strncpy(s, "Stub 24GB", n); return 0; }
int nvmlDeviceGetIndex(device d, unsigned *i) { *i = index_of(d); return 0; }
int nvmlDeviceGetMinorNumber(device d, unsigned *i) { *i = 7 + index_of(d); return 0; }
int nvmlDeviceGetPciInfo_v3(device d, pci *p) { memset(p, 0, sizeof *p); strcpy(p->legacy, "0000:01:00.0"); strcpy(p->busId, "00000000:01:00.0"); return 0; }
int nvmlDeviceGetMemoryInfo(device d, memory *m) { m->total = 24000; m->used = 5000; m->free = 19000; return 0; }
#ifndef OLD
int nvmlDeviceGetMemoryInfo_v2(device d, memory2 *m) {
	if (m->version != (sizeof *m | 2 << 24)) return 25;
	if (d == (device)mig) { m->total = 1000; m->reserved = 0; m->used = 300; m->free = 700; return 0; }
	m->total = 24000; m->reserved = 600; m->used = 4400; m->free = 19000; return 0;
}
#endif
int nvmlDeviceGetUtilizationRates(device d, util *u) { u->gpu = 97; u->mem = 31; return 0; }
int nvmlDeviceGetPowerUsage(device d, unsigned *mw) { *mw = 128500; return 0; }
int nvmlDeviceGetTemperature(device d, int sensor, unsigned *t) { if (sensor != 0) return 2; *t = 55; return 0; }
int nvmlDeviceGetEccMode(device d, unsigned *c, unsigned *p) { return 3; }
int nvmlDeviceGetTotalEccErrors(device d, int type, int counter, unsigned long long *n) { *n = type == 1 ? 3 : 70; return 0; }
int nvmlDeviceGetRemappedRows(device d, unsigned *c, unsigned *u, unsigned *p, unsigned *f) { *c = 1; *u = 2; *p = 1; *f = 0; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(device d, unsigned long long *b) { *b = 0x4; return 0; }
int nvmlDeviceGetNvLinkState(device d, unsigned l, unsigned *s) { if (l > 3) return 2; *s = l != 2; return 0; }
int nvmlDeviceGetMigMode(device d, unsigned *c, unsigned *p) {
#ifdef MIG
	*c = *p = 1; return 0;
#else
	return 3;
#endif
}
int nvmlDeviceGetMaxMigDeviceCount(device d, unsigned *n) { *n = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(device d, unsigned i, device *m) { if (i != 2) return 6; *m = mig; return 0; }
int nvmlDeviceGetGpuInstanceId(device d, unsigned *n) { *n = 5; return 0; }
int nvmlDeviceGetComputeInstanceId(device d, unsigned *n) { *n = 0; return 0; }

// Three processes: the two lists share 101.
#ifdef WIDE
#define ROW procwide
#else
#define ROW proc2
#endif
#ifndef OLD
int nvmlDeviceGetComputeRunningProcesses_v3(device d, unsigned *n, ROW *rows) {
	if (*n < 2) { *n = 2; return 7; }
	memset(rows, 0, 2 * sizeof *rows);
	rows[0].pid = 100; rows[0].used = 3000; rows[0].gi = rows[0].ci = 0xffffffffu;
	rows[1].pid = 101; rows[1].used = ~0ull; rows[1].gi = rows[1].ci = 0xffffffffu;
	*n = 2; return 0;
}
#endif
int nvmlDeviceGetComputeRunningProcesses(device d, unsigned *n, proc1 *rows) {
	if (*n < 2) { *n = 2; return 7; }
	rows[0].pid = 100; rows[0].used = 3000; rows[1].pid = 101; rows[1].used = 400; *n = 2; return 0;
}
int nvmlDeviceGetGraphicsRunningProcesses(device d, unsigned *n, proc1 *rows) {
	if (*n < 2) { *n = 2; return 7; }
	rows[0].pid = 101; rows[0].used = 400; rows[1].pid = 102; rows[1].used = 100; *n = 2; return 0;
}
int nvmlSystemGetProcessName(unsigned pid, char *s, unsigned n) { if (pid != 100) return 6; strncpy(s, "python3", n); return 0; }
int nvmlDeviceGetProcessUtilization(device d, sample *s, unsigned *n, unsigned long long since) {
#ifdef IDLE
	return 6;
#endif
	if (!s || *n < 2) { *n = 2; return 7; }
	s[0] = (sample){100, 5000, 80, 10, 0, 0};
	s[1] = (sample){100, 4000, 20, 10, 0, 0};
	*n = 2; return 0;
}
int nvmlEventSetCreate(void **s) { *s = set; return 0; }
int nvmlEventSetFree(void *s) { return 0; }
int nvmlDeviceGetSupportedEventTypes(device d, unsigned long long *b) { *b = 0x8; return 0; }
int nvmlDeviceRegisterEvents(device d, unsigned long long b, void *s) { return b == 0x8 && s == (void *)set ? 0 : 2; }
int nvmlEventSetWait_v2(void *s, event *e, unsigned ms) {
	static int sent;
	if (sent++) return 10;
	memset(e, 0, sizeof *e); e->dev = &dev[1]; e->type = 8; e->data = 79; e->gi = e->ci = 0xffffffffu;
	return 0;
}
// For TestStructSizes.
int size_of(int i) {
	size_t all[] = {sizeof(memory), sizeof(memory2), sizeof(util), sizeof(pci), sizeof(proc1), sizeof(proc2), sizeof(procwide), sizeof(sample), sizeof(event)};
	return (int)all[i];
}
