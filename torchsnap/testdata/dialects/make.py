"""Writes the files beside it: small snapshots in the dialects of which no recording is at hand. python3 make.py

What each version writes is taken from torch/csrc/cuda/Module.cpp, memory_snapshot.cpp and
torch/csrc/jit/serialization/pickler.cpp of its time."""
import copy, os, pickle, struct

HERE = os.path.dirname(os.path.abspath(__file__))


def frame(name, line):
    return {"name": name, "filename": "train/main.py", "line": line}


MAIN, STEP, LOSS = frame("<module>", 9), frame("step", 31), frame("loss", 47)
UNKNOWN = []  # one list for all blocks without a stack


def event(action, addr, size, frames=None, stream=0, time=1):
    e = {"action": action, "device_free" if action == "oom" else "addr": addr, "size": size, "stream": stream,
         "time_us": 1796000000000000 + time, "compile_context": "N/A", "user_metadata": ""}
    if frames is not None:
        e["frames"] = frames
    return e


def base():
    """Two devices with events of their own, the first with a live and a pending block."""
    first, second, third = [STEP, MAIN], [LOSS, STEP, MAIN], [STEP, MAIN]
    own = []  # a stack without Python
    a, b = 0x7f0000000000, 0x7f0000200000

    def block(address, size, requested, state, frames):
        return {"address": address, "size": size, "requested_size": requested, "state": state, "frames": frames}

    def segment(device, address, size, kind, blocks, frames):
        active = [x for x in blocks if x["state"] == "active_allocated"]
        return {"device": device, "address": address, "total_size": size, "allocated_size": sum(x["size"] for x in active),
                "active_size": sum(x["size"] for x in blocks if x["state"] != "inactive"),
                "requested_size": sum(x["requested_size"] for x in active), "stream": 0, "segment_type": kind,
                "segment_pool_id": (0, 0), "is_expandable": False, "frames": frames, "blocks": blocks}

    return {
        "segments": [
            segment(0, a, 2 << 20, "small", [
                block(a, 1024, 1000, "active_allocated", first),
                block(a + 1024, 512, 400, "active_pending_free", second),
                block(a + 1536, (2 << 20) - 1536, 0, "inactive", UNKNOWN)], first),
            segment(2, b, 4 << 20, "large", [block(b, 4 << 20, 4 << 20, "inactive", UNKNOWN)], UNKNOWN),
        ],
        "device_traces": [
            [event("segment_alloc", a, 2 << 20, first), event("alloc", a, 1000, first),
             event("alloc", a + 1024, 400, second, time=2), event("free_requested", a + 1024, 400, own, time=3),
             event("oom", 5 << 30, 1 << 40, third, time=4), event("snapshot", 0, 1536, time=5)],
            [],
            [event("segment_alloc", b, 4 << 20, third), event("alloc", b, 4 << 20, third), event("free_requested", b, 4 << 20, third),
             event("free_completed", b, 4 << 20, third)],
        ],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:128", "max_split_size": 128 << 20, "garbage_collection_threshold": 0.5,
            "expandable_segments": False, "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": True,
            "pinned_use_cuda_host_register": False, "roundup_power2_divisions": {"1": 0, "2": 4, "32768": 8}},
        "external_annotations": [{"stage": s, "name": "## forward ##", "device": 0, "time_us": t} for s, t in (("START", 5), ("END", 9))],
    }


def v2_15():
    d = base()
    for t in d["device_traces"]:
        for i, e in enumerate(t):
            e["pool_id"] = (7, 0) if i == 1 else (0, 0)
            e["new_key"] = [1, {"deep": None}]
    t = d["device_traces"][0]
    t[2]["forward_frames"] = ["forward main.py:3"]
    t[1]["compile_context"], t[1]["user_metadata"] = "0/1", "weights"
    t.append({"action": "annotate", "addr": 0x7f0000000000, "size": 0, "stream": 0, "time_us": 7})
    t.append({"action": "defragment", "addr": 4096, "size": 1, "stream": 0, "time_us": 8})
    d["allocator_settings"].update({"trace_alloc_max_entries": 100000, "trace_alloc_overflowed": True, "new_setting": "x"})
    d["new_part"] = {"x": [1.5]}
    return d


def v1_13():
    d = base()
    del d["allocator_settings"], d["external_annotations"]
    for s in d["segments"]:
        for k in ("requested_size", "segment_pool_id", "is_expandable", "frames"):
            del s[k]
        for b in s["blocks"]:
            frames, requested = b.pop("frames"), b.pop("requested_size")
            if b["state"] != "inactive":
                b["history"] = [{"addr": b["address"], "real_size": requested, "frames": frames, "cpp_frames": ["at::empty"]}]
            del b["address"]
    for t in d["device_traces"]:
        for e in t:
            del e["time_us"], e["compile_context"], e["user_metadata"]
            if "frames" in e:
                e["cpp_frames"] = ["at::empty", "c10::malloc"]
    return d


def old_list():
    keep = ("device", "address", "total_size", "allocated_size", "active_size", "segment_type")
    return [dict({k: s[k] for k in keep}, blocks=[{"size": b["size"], "state": b["state"]} for b in s["blocks"]])
            for s in base()["segments"]]


def long_stack():
    """More frames than CPython puts into a batch."""
    d = base()
    d["device_traces"][0][1]["frames"] = [STEP, MAIN] * 1100 + [LOSS]
    return d


def torchscript(value):
    """Pickles as torch::jit::Pickler does: strings by value with a PUT, containers with a PUT after their contents if
    they are shared, whole containers in one batch."""
    out, memo, count = [b"\x80\x02"], {}, {}

    def shared(x):
        if isinstance(x, (list, dict)):
            count[id(x)] = count.get(id(x), 0) + 1
            if count[id(x)] == 1:
                for y in x.values() if isinstance(x, dict) else x:
                    shared(y)

    def put(key):
        i = memo[key] = len(memo)
        out.append(b"q" + bytes([i]) if i < 256 else b"r" + struct.pack("<I", i))

    def get(key):
        i = memo[key]
        out.append(b"h" + bytes([i]) if i < 256 else b"j" + struct.pack("<I", i))

    def push(x):
        key = x if isinstance(x, str) else id(x)
        if isinstance(x, (str, list, dict)) and key in memo:
            get(key)
        elif isinstance(x, bool):
            out.append(b"\x88" if x else b"\x89")
        elif isinstance(x, int):
            if 0 <= x < 256:
                out.append(b"K" + bytes([x]))
            elif 0 <= x < 65536:
                out.append(b"M" + struct.pack("<H", x))
            elif -2**31 <= x < 2**31:
                out.append(b"J" + struct.pack("<i", x))
            else:
                out.append(b"\x8a\x08" + struct.pack("<q", x))
        elif isinstance(x, float):
            out.append(b"G" + struct.pack(">d", x))
        elif isinstance(x, str):
            out.append(b"X" + struct.pack("<I", len(x)) + x.encode())
            put(x)
        elif isinstance(x, tuple):
            push(x[0]), push(x[1])
            out.append(b"\x86")
        elif x is None:
            out.append(b"N")
        else:
            out.append(b"}(" if isinstance(x, dict) else b"](")
            for y in x.items() if isinstance(x, dict) else x:
                for z in y if isinstance(x, dict) else (y,):
                    push(z)
            out.append(b"u" if isinstance(x, dict) else b"e")
            if count[id(x)] > 1:
                put(id(x))

    shared(value)
    push(value)
    return b"".join(out) + b"."


def save(name, data):
    with open(os.path.join(HERE, name + ".pickle"), "wb") as f:
        f.write(data)


for p in range(6):
    save(f"protocol{p}", pickle.dumps(base(), p))
save("torchscript", torchscript(base()))
save("old_list", pickle.dumps(old_list(), 2))
save("v1_13", pickle.dumps(v1_13(), 4))
save("v2_15", pickle.dumps(v2_15(), 5))
save("long_stack", pickle.dumps(long_stack(), 4))
save("pure_python", pickle._dumps(base(), 2))
