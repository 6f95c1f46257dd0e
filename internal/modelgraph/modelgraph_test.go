package modelgraph

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDimEval(t *testing.T) {
	b := Binding{"batch": 3, "seq": 10}
	tests := []struct {
		name string
		d    Dim
		want int64
		err  string
	}{
		{name: "constant", d: Const(7), want: 7},
		{name: "sum and product", d: Batch.Mul(Seq).Add(Const(1)), want: 31},
		{name: "difference", d: Seq.Sub(Const(4)), want: 6},
		{name: "division rounds down", d: Seq.Sub(Const(11)).Div(Const(2)), want: -1},
		{name: "modulo takes the divisor's sign", d: Seq.Sub(Const(11)).Mod(Const(4)), want: 3},
		{name: "maximum", d: Batch.Max(Seq), want: 10},
		{name: "minimum", d: Batch.Min(Seq), want: 3},
		{name: "missing symbol", d: ImageH, err: "image_height is not given"},
		{name: "by zero", d: Seq.Div(Batch.Sub(Const(3))), err: "divides by zero"},
		{name: "overflow", d: Const(1 << 62).Mul(Seq), err: "too large"},
		{name: "overflow of a sum", d: Const(1<<62 - 1 + 1<<62).Add(Seq), err: "too large"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := tt.d.Eval(b)
			if tt.err != "" {
				if err == nil || !strings.Contains(err.Error(), tt.err) {
					t.Fatalf("error %v, want %q", err, tt.err)
				}
				return
			}
			if err != nil || got != tt.want {
				t.Errorf("got %d, %v, want %d", got, err, tt.want)
			}
		})
	}
}

// dropsAfter returns, for each node, the names of the operators whose results
// are dropped after it.
func dropsAfter(g *Graph) []string {
	made := map[ValueID]string{}
	for _, n := range g.Nodes {
		for _, o := range n.Out {
			made[o] = n.Op
		}
	}
	var out []string
	for _, n := range g.Nodes {
		var d []string
		for _, id := range n.Drop {
			d = append(d, made[id])
		}
		out = append(out, n.Op+":"+strings.Join(d, ","))
	}
	return out
}

func TestLifetimes(t *testing.T) {
	b := NewBuilder("test", "test")
	x := b.Input("x", Float32, Batch)
	a := b.Op("a", x)
	var r ValueID
	b.Call("inner", func() {
		p := b.Op("p", a)
		q := b.Op("q", p)
		b.Hold(q)
		s := b.Op("s", q)
		r = b.Op("r", s)
	})
	out := b.Op("out", r)
	g, err := b.Finish(out)
	if err != nil {
		t.Fatal(err)
	}
	// a is an argument of the call, so it lives until the call returns, as q
	// does, which is a local variable; p goes after its last use.
	want := []string{"a:", "p:", "q:p", "s:", "r:s,q,a", "out:r"}
	if d := cmp.Diff(want, dropsAfter(g)); d != "" {
		t.Error(d)
	}
}

func TestFinishRefuses(t *testing.T) {
	b := NewBuilder("test", "test")
	b.Param("w", 3)
	b.Param("w", 3)
	if _, err := b.Finish(); err == nil || !strings.Contains(err.Error(), "declared twice") {
		t.Errorf("error %v", err)
	}
	b = NewBuilder("test", "test")
	b.Op("a", ValueID(5))
	if _, err := b.Finish(); err == nil || !strings.Contains(err.Error(), "before it is made") {
		t.Errorf("error %v", err)
	}
}
