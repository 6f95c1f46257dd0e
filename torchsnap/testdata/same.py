"""Compares pairs of pickles: python3 same.py ORIGINAL WRITTEN... Exits 1 where they differ, in contents or in which
events share a list of frames."""
import pickle, sys


def sharing(d):
    """Events and blocks by the identity of their list of frames, numbered by first use. Empty lists of blocks apart."""
    seen, out = {}, []
    for x in [b for s in d["segments"] for b in s["blocks"]]:
        if x["frames"]:
            out.append(seen.setdefault(id(x["frames"]), len(seen)))
    for x in [e for t in d["device_traces"] for e in t]:
        if "frames" in x:
            out.append(seen.setdefault(id(x["frames"]), len(seen)))
    return out


bad = 0
for a, b in zip(sys.argv[1::2], sys.argv[2::2]):
    original, written = (pickle.load(open(p, "rb")) for p in (a, b))
    if original != written:
        bad = 1
        for k in original.keys() | written.keys():
            if original.get(k) != written.get(k):
                print(a, "differs in", k)
    elif sharing(original) != sharing(written):
        bad = 1
        print(a, "shares its lists of frames otherwise")
sys.exit(bad)
