package pt2

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStatements(t *testing.T) {
	tests := []struct{ line, want string }{
		{"out = self.conv1(x)", "[out] simple"},
		{"out += identity", "[out]"},
		{"x = x + self.f(x)", "[x]"},
		{"a, b = rotate(q, k)", "[a b] simple"},
		{"mask: Tensor = make_mask(", "[mask]"},
		{"x = d(x); skips.append(x); x = F.max_pool2d(x, 2)", "[x] simple; [] idle; [x] simple"},
		{"x = u(x); x = b(torch.cat([skips.pop(), x], 1))", "[x] simple; [x]"},
		{"return self._conv_forward(input, self.weight)", "[]"},
		{"if x == y(z):", "[]"},
		{"self.num_batches_tracked.add_(1)  # type: ignore", "[]"},
	}
	for _, tt := range tests {
		var got []string
		for _, s := range parseStatements(tt.line) {
			text := fmt.Sprint(s.targets)
			if s.simple {
				text += " simple"
			}
			if s.idle {
				text += " idle"
			}
			got = append(got, text)
		}
		if diff := cmp.Diff(tt.want, strings.Join(got, "; ")); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.line, diff)
		}
	}
}

// TestLocals runs relu after relu, each with a stack of frames, and shows after
// which node the results are dropped: "1→3" for the result of node 1 after
// node 3. Without variables each is dropped by the node after it.
func TestLocals(t *testing.T) {
	type line struct{ module, frames string } // frames: "forward:10:a = f(x) | helper:3:b = g(a)"
	tests := []struct {
		name  string
		lines []line
		want  string
	}{
		{"a variable until it is bound anew", []line{
			{"", "forward:1:a = f(x)"}, {"", "forward:2:b = g(a)"}, {"", "forward:3:c = h(b)"}, {"", "forward:4:a = k(c)"}, {"", "forward:5:d = m(a)"}, {"", "forward:6:return n(d)"},
		}, "0→3 1→5 2→5 3→5 4→5"},
		{"a variable of a helper until it returns", []line{
			{"", "forward:1:y = h(x) | h:10:t = f(x)"}, {"", "forward:1:y = h(x) | h:11:u = g(t)"}, {"", "forward:1:y = h(x) | h:12:return k(u)"}, {"", "forward:2:z = m(y)"}, {"", "forward:3:return n(z)"},
		}, "0→2 1→2 2→4 3→4"},
		{"a loop over one line", []line{
			{"s.0", "forward:1:x = m(x) | forward:7:return f(x)"}, {"s.1", "forward:1:x = m(x) | forward:7:return f(x)"}, {"s.2", "forward:1:x = m(x) | forward:7:return f(x)"}, {"", "forward:2:return g(x)"},
		}, "0→1 1→2 2→3"},
		{"a loop over a line of two statements", []line{
			{"u.0", "forward:1:x = u(x); x = b(k([s.pop(), x])) | forward:7:return f(x)"}, {"", "forward:1:x = u(x); x = b(k([s.pop(), x]))"}, {"b.0", "forward:1:x = u(x); x = b(k([s.pop(), x])) | forward:8:return f(x)"},
			{"u.1", "forward:1:x = u(x); x = b(k([s.pop(), x])) | forward:7:return f(x)"}, {"", "forward:1:x = u(x); x = b(k([s.pop(), x]))"}, {"b.1", "forward:1:x = u(x); x = b(k([s.pop(), x])) | forward:8:return f(x)"},
			{"", "forward:2:return g(x)"},
		}, "0→2 1→2 2→3 3→5 4→5 5→6"},
		{"two names at once let go of what they held", []line{
			{"", "forward:1:q = f(x)"}, {"", "forward:2:k = f(q)"}, {"", "forward:3:q, k = rotate(q, k)"}, {"", "forward:4:y = g(q)"}, {"", "forward:5:return h(y)"},
		}, "0→2 1→2 2→3 3→4"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var nodes, tensors []string
			prev := "x"
			for i, l := range tt.lines {
				var trace []string
				for f := range strings.SplitSeq(l.frames, " | ") {
					p := strings.SplitN(f, ":", 3)
					trace = append(trace, fmt.Sprintf(`File \"%s.py\", line %s, in %s\n    %s`, p[0], p[1], p[0], p[2]))
				}
				stack := "m,,M"
				if l.module != "" {
					stack += ";m." + l.module + "," + l.module + ",C"
				}
				nodes = append(nodes, fmt.Sprintf(`{"target": "torch.ops.aten.relu.default", "name": "v%d", "inputs": [{"name": "self", "arg": {"as_tensor": {"name": "%s"}}}], "outputs": [{"as_tensor": {"name": "v%d"}}], "metadata": {"nn_module_stack": "%s", "stack_trace": "%s"}}`,
					i, prev, i, stack, strings.Join(trace, `\n`)))
				prev = fmt.Sprintf("v%d", i)
				tensors = append(tensors, fmt.Sprintf(`"%s": {"dtype": 7, "sizes": [{"as_int": 3}]}`, prev))
			}
			program := `{"graph_module": {"graph": {"nodes": [` + strings.Join(nodes, ",") + `], "tensor_values": {"x": {"dtype": 7, "sizes": [{"as_int": 3}]}, ` + strings.Join(tensors, ",") + `}},
				"signature": {"input_specs": [{"user_input": {"arg": {"as_tensor": {"name": "x"}}}}], "output_specs": [{"user_output": {"arg": {"as_tensor": {"name": "` + prev + `"}}}}]}}, "verifiers": ["TRAINING"]}`
			g, err := parse([]byte(program), "m")
			if err != nil {
				t.Fatal(err)
			}
			made, dropped := map[int]int{}, map[int]int{}
			for i, n := range g.Nodes {
				made[int(n.Out[0])] = i
				for _, v := range n.Drop {
					dropped[made[int(v)]] = i
				}
			}
			var got []string
			for i := range g.Nodes {
				if at, ok := dropped[i]; ok {
					got = append(got, fmt.Sprintf("%d→%d", i, at))
				}
			}
			if diff := cmp.Diff(tt.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("drops (-want +got):\n%s", diff)
			}
		})
	}
}
