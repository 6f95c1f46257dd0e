"""Prints what CPython reads from pickles, for recordings_test.go: python3 facts.py NAME.pickle... > facts.json"""
import collections, json, os, pickle, sys

MASK = (1 << 64) - 1


def facts(path):
    d = pickle.load(open(path, "rb"))
    events = [e for t in d["device_traces"] for e in t]
    blocks = [b for s in d["segments"] for b in s["blocks"]]
    lists = [x["frames"] for x in d["segments"] + blocks + events if "frames" in x]
    stacks = {tuple((f["name"], f["filename"], f["line"]) for f in l) for l in lists}
    ids = [id(e["frames"]) if "frames" in e else 0 for e in events]
    return {
        "name": os.path.basename(path).removesuffix(".pickle"),
        "actions": dict(sorted(collections.Counter(e["action"] for e in events).items())),
        "sum_addr": sum(e.get("addr", e.get("device_free", 0)) for e in events) & MASK,
        "sum_size": sum(e["size"] for e in events) & MASK,
        "sum_time": sum(e["time_us"] for e in events) & MASK,
        "sum_stream": sum(e["stream"] for e in events) & MASK,
        "sum_depth": sum(len(e.get("frames", ())) for e in events),
        "stacks": len(stacks | {()}),
        "frames": len({f for s in stacks for f in s}),
        # Lists that events share, and what shares one with the event before.
        "tracebacks": len({i for i in ids if i}),
        "repeated": sum(a == b and a != 0 for a, b in zip(ids, ids[1:])),
        "with_block": len({i for i in ids if i} & {id(b["frames"]) for b in blocks}),
        "segments": len(d["segments"]),
        "blocks": len(blocks),
        "sum_blocks": sum(b["address"] + b["size"] + b["requested_size"] for b in blocks) & MASK,
        "active": sum(b["state"] == "active_allocated" for b in blocks),
        "annotations": len(d["external_annotations"]),
        "conf": d["allocator_settings"]["PYTORCH_CUDA_ALLOC_CONF"],
    }


print(json.dumps([facts(p) for p in sys.argv[1:]], indent=1))
