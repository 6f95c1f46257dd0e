#!/usr/bin/env python
# A tour of the grammar, for TestAgainstCPython. Kept to what 3.11 reads.
from __future__ import annotations
import os.path as p, sys
from . import (a, b as c,)
from ...pkg.sub import *

@dec(1)
@other.thing
async def f(x, /, y: int = 3, *args: str, key, other=None, **kw) -> dict[str, int]:
    async with a as b, c():
        await x.y(z)
    async for i in aiter():
        yield i
    return [j async for j in z if j if k]

class C(Base, metaclass=Meta, **kw):
    x: int
    y: str = "a" "b" 'c'
    def __init__(self): pass; self.x = 1; return

with (open("a") as f1, open("b") as f2,):
    pass
with (yield_ := open("x")) as q:
    pass
with (a, b):
    pass
with (a).b as c, d:
    pass

if (n := len(x)) > 10: print(n)
elif n == 3:
    x = y = z = 1, 2, *rest
else:
    x[1:2, ::3, ...] **= -y ** -z

match command.split():
    case [a, *rest] if a:
        x = 1
    case {"k": v, **kw} | C(x=1, y=[2, 3] as q):
        pass
    case "lit" | -1 | 1+2j | None | a.b:
        pass
    case _:
        pass
match = 1
match[0] = match(1)
print(match, case, type)

try:
    pass
except* (A, B) as e:
    raise X from e
finally:
    del a, b[0]
try: x
except: raise
else: y

lam = lambda *a, k=1, **kw: (yield)
t = a if b else c if d else lambda: 0
s = {1, 2, *x}; d = {**a, 'b': 1, **c}; e = {k: v for k, v in x.items() if v}
g = f(x for x in y); g2 = f(*a, *b, k=1, **kw)
not a in b is not c not in d < e <= f != g
a = b or c and not d | e ^ f & g << h + i * j @ k // l % m
global_ = ~x
assert x, "msg"
x: list[int] = []
for a, *b in c, d: continue
for x.y[0] in z:
    break
else:
    nonlocal_ = 1
while True: pass
if 1:
    def g():
        global aa, bb
        nonlocal_
        return (yield a, b)
	
    # comment between
    x = (1,
 2)
x = \
    3
f"{a!r:>{w}} {{}} {b['k']:%Y-%m} {c = }" rb"\x" if 0 else f'''{
  x}'''
0xFF + 1_000j + 1e-5 + .5 + 5. + 0b11 + 0o17
x = 1if y else 2
