package holders

// Names returns a function that names the holder of request i as At does.
func (a *Analysis) Names(by By) func(i int) string {
	groups := a.groups(by)
	names := map[int32]string{}
	return func(i int) string {
		if by == ByCategory {
			return a.Category(i).String()
		}
		g := groups.of(a, i)
		name, ok := names[g]
		if !ok {
			name = groups.name(a, i, g)
			names[g] = name
		}
		return name
	}
}
