package pt2

import "vramscope/internal/modelgraph"

type locals struct{}

func newLocals() *locals { return &locals{} }

func (l *locals) ran(s *step, ids []modelgraph.ValueID) {}

func (l *locals) extend(g *modelgraph.Graph) {}
