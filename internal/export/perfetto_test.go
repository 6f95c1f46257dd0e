package export

import (
	"bytes"
	"fmt"
	"path/filepath"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"

	"vramscope/internal/timeline"
	"vramscope/replay"
)

// wire describes a message of perfetto's definitions: the fields that may occur
// in it. Only what is listed here is accepted.
type wire map[protowire.Number]field

type field struct {
	name string
	kind protowire.Type
	sub  wire // of a message
}

var (
	varint = protowire.VarintType
	blob   = protowire.BytesType

	annotationWire = wire{10: {"name", blob, nil}, 4: {"int_value", varint, nil}, 6: {"string_value", blob, nil}}
	frameWire      = wire{1: {"function_name", blob, nil}, 2: {"source_file", blob, nil}, 3: {"line_number", varint, nil}}
	eventWire      = wire{
		4: {"debug_annotations", blob, annotationWire}, 9: {"type", varint, nil}, 11: {"track_uuid", varint, nil},
		22: {"categories", blob, nil}, 23: {"name", blob, nil}, 30: {"counter_value", varint, nil},
		55: {"callstack", blob, wire{1: {"frames", blob, frameWire}}},
	}
	descriptorWire = wire{
		1: {"uuid", varint, nil}, 2: {"name", blob, nil}, 5: {"parent_uuid", varint, nil},
		8: {"counter", blob, wire{3: {"unit", varint, nil}}},
	}
	packetWire = wire{
		8: {"timestamp", varint, nil}, 10: {"trusted_packet_sequence_id", varint, nil},
		11: {"track_event", blob, eventWire}, 60: {"track_descriptor", blob, descriptorWire},
	}
	traceWire = wire{1: {"packet", blob, packetWire}}
)

// parsed is a message: numbers are uint64, texts string, messages parsed; each
// name has a list.
type parsed map[string][]any

func parse(b []byte, w wire) (parsed, error) {
	out := parsed{}
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		b = b[size:]
		f, ok := w[n]
		if !ok || f.kind != kind {
			return nil, fmt.Errorf("field %d of type %d is not in the definition", n, kind)
		}
		if kind == protowire.VarintType {
			v, size := protowire.ConsumeVarint(b)
			if size < 0 {
				return nil, protowire.ParseError(size)
			}
			out[f.name], b = append(out[f.name], v), b[size:]
			continue
		}
		v, size := protowire.ConsumeBytes(b)
		if size < 0 {
			return nil, protowire.ParseError(size)
		}
		b = b[size:]
		if f.sub == nil {
			out[f.name] = append(out[f.name], string(v))
			continue
		}
		m, err := parse(v, f.sub)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		out[f.name] = append(out[f.name], m)
	}
	return out, nil
}

func TestPerfetto(t *testing.T) {
	for _, path := range recordings {
		t.Run(filepath.Base(path), func(t *testing.T) {
			a := open(t, path)
			s, out, err := timeline.Of(t.Context(), a.Program, replay.Scenario{})
			if err != nil {
				t.Fatal(err)
			}
			var b bytes.Buffer
			if err := Perfetto(&b, a, s, 10<<30); err != nil {
				t.Fatal(err)
			}
			tr, err := parse(b.Bytes(), traceWire)
			if err != nil {
				t.Fatal(err)
			}
			names := map[uint64]string{}
			peaks := map[string]int64{}
			begins, ends, ooms, open := 0, 0, 0, 0
			last := uint64(0)
			for _, x := range tr["packet"] {
				p := x.(parsed)
				if d := p["track_descriptor"]; d != nil {
					d := d[0].(parsed)
					names[d["uuid"][0].(uint64)] = d["name"][0].(string)
					continue
				}
				e := p["track_event"][0].(parsed)
				track, ok := names[e["track_uuid"][0].(uint64)]
				if !ok {
					t.Fatalf("an event on a track that was not described: %v", e)
				}
				at := p["timestamp"][0].(uint64)
				if track != "limit" && at < last {
					t.Fatalf("time goes back from %d to %d", last, at)
				}
				if track != "limit" {
					last = at
				}
				switch e["type"][0].(uint64) {
				case counterValue:
					peaks[track] = max(peaks[track], int64(e["counter_value"][0].(uint64)))
				case sliceBegin:
					begins++
					open++
				case sliceEnd:
					ends++
					if open--; open < 0 {
						t.Fatal("a slice ends that did not begin")
					}
				case instant:
					if e["categories"][0] == "oom" {
						ooms++
					}
				}
			}
			if peaks["reserved"] != out.PeakReserved || peaks["allocated"] != out.PeakAllocated || peaks["limit"] != 10<<30 {
				t.Errorf("peaks of the counters are %v, of the replay %d reserved, %d allocated", peaks, out.PeakReserved, out.PeakAllocated)
			}
			if begins != ends || begins != len(a.Steps)+len(a.Phases) {
				t.Errorf("%d slices begin, %d end, want %d", begins, ends, len(a.Steps)+len(a.Phases))
			}
			if ooms != len(out.Refusals) {
				t.Errorf("%d instants for refused requests, want %d", ooms, len(out.Refusals))
			}
		})
	}
}
