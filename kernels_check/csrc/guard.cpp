// Buffers between pages that are not there.
//
// Address space is reserved wider than the buffer and only its middle is backed by memory, so that one
// element read or written beyond the chosen side faults for certain, whatever the allocator around it
// does. The driver is found at run time: this file needs no CUDA header and builds where no GPU is.

#include <dlfcn.h>

#include <cstddef>
#include <cstdio>

namespace {

using DevicePointer = unsigned long long;
using Handle = unsigned long long;

struct Location {
  int type;
  int id;
};

struct Properties {
  int type;
  int handle_types;
  Location location;
  void* platform;
  unsigned char compression;
  unsigned char rdma;
  unsigned short usage;
  unsigned char reserved[4];
};

struct Access {
  Location location;
  int flags;
};

constexpr int kPinned = 1;
constexpr int kDevice = 1;
constexpr int kReadWrite = 3;

struct Driver {
  int (*granularity)(size_t*, const Properties*, int);
  int (*reserve)(DevicePointer*, size_t, size_t, DevicePointer, unsigned long long);
  int (*create)(Handle*, size_t, const Properties*, unsigned long long);
  int (*map)(DevicePointer, size_t, size_t, Handle, unsigned long long);
  int (*access)(DevicePointer, size_t, const Access*, size_t);
  int (*unmap)(DevicePointer, size_t);
  int (*release)(Handle);
  int (*give_back)(DevicePointer, size_t);
};

Driver driver;
char message[256];

int fail(const char* what, int code) {
  std::snprintf(message, sizeof message, "%s: CUDA error %d", what, code);
  return code ? code : -1;
}

template <typename Function>
bool find(void* library, Function& to, const char* name) {
  to = reinterpret_cast<Function>(dlsym(library, name));
  if (!to) std::snprintf(message, sizeof message, "the driver has no %s", name);
  return to != nullptr;
}

size_t round_up(size_t n, size_t unit) { return (n + unit - 1) / unit * unit; }

}  // namespace

extern "C" {

struct Guarded {
  DevicePointer pointer;   // where the buffer begins
  DevicePointer reserved;  // what is to be given back
  size_t reserved_bytes;
  size_t mapped_bytes;
  Handle handle;
};

const char* kc_message() { return message; }

int kc_open(const char* library_name) {
  void* library = dlopen(library_name, RTLD_NOW | RTLD_GLOBAL);
  if (!library) {
    std::snprintf(message, sizeof message, "cannot open %s", library_name);
    return -1;
  }
  bool all = find(library, driver.granularity, "cuMemGetAllocationGranularity") &&
             find(library, driver.reserve, "cuMemAddressReserve") &&
             find(library, driver.create, "cuMemCreate") &&
             find(library, driver.map, "cuMemMap") &&
             find(library, driver.access, "cuMemSetAccess") &&
             find(library, driver.unmap, "cuMemUnmap") &&
             find(library, driver.release, "cuMemRelease") &&
             find(library, driver.give_back, "cuMemAddressFree");
  return all ? 0 : -1;
}

// Where a buffer of `bytes` begins inside what is mapped, so that its guarded side touches the edge.
// side 0: left, 1: right. `align` is the element's size: a right edge is exact only for its multiples.
size_t kc_offset(size_t bytes, size_t align, size_t mapped, int side) {
  if (side == 0) return 0;
  return (mapped - bytes) / align * align;
}

int kc_allocate(size_t bytes, size_t align, int side, int device, Guarded* made) {
  Properties properties = {};
  properties.type = kPinned;
  properties.location = {kDevice, device};
  size_t unit = 0;
  if (int code = driver.granularity(&unit, &properties, 0)) return fail("granularity", code);
  size_t mapped = round_up(bytes ? bytes : 1, unit);
  *made = {};
  made->mapped_bytes = mapped;
  made->reserved_bytes = mapped + 2 * unit;
  if (int code = driver.reserve(&made->reserved, made->reserved_bytes, 0, 0, 0))
    return fail("reserve", code);
  if (int code = driver.create(&made->handle, mapped, &properties, 0)) return fail("create", code);
  DevicePointer middle = made->reserved + unit;
  if (int code = driver.map(middle, mapped, 0, made->handle, 0)) return fail("map", code);
  Access access = {{kDevice, device}, kReadWrite};
  if (int code = driver.access(middle, mapped, &access, 1)) return fail("access", code);
  made->pointer = middle + kc_offset(bytes, align, mapped, side);
  return 0;
}

int kc_release(Guarded* made) {
  size_t unit = (made->reserved_bytes - made->mapped_bytes) / 2;
  if (int code = driver.unmap(made->reserved + unit, made->mapped_bytes)) return fail("unmap", code);
  if (int code = driver.release(made->handle)) return fail("release", code);
  if (int code = driver.give_back(made->reserved, made->reserved_bytes))
    return fail("give back", code);
  return 0;
}

}  // extern "C"
