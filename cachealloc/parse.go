package cachealloc

import (
	"fmt"
	"math"
	"math/bits"
	"strconv"
	"strings"
)

// SettingsError is a settings string that PyTorch refuses.
type SettingsError struct {
	Conf    string
	Key     string // the option, "" where the syntax is wrong
	Message string // PyTorch's own words
	Nearest string // the option that was probably meant, ""
	Since   string // the version that brought the option, where the given one is older
}

func (e *SettingsError) Error() string {
	switch {
	case e.Nearest != "":
		return fmt.Sprintf("settings %q: %s (did you mean %s?)", e.Conf, e.Message, e.Nearest)
	case e.Since != "":
		return fmt.Sprintf("settings %q: %s (it exists from PyTorch %s on)", e.Conf, e.Message, e.Since)
	}
	return fmt.Sprintf("settings %q: %s", e.Conf, e.Message)
}

// ParseSettings reads a settings string as that version of PyTorch does, and
// refuses what it refuses, in its words. The zero Version means Newest.
func ParseSettings(conf string, v Version) (Settings, error) {
	rules := RulesFor(v)
	p := &parser{conf: conf, rules: rules, s: DefaultSettings()}
	p.s.Conf = conf
	switch {
	case !rules.PerSizeRoundup:
		p.tokens = splitPairs(conf)
	case rules.SharedConfigParser:
		p.tokens = lex(conf, " \t\n\r\v\f")
	default:
		p.tokens = lex(conf, " ")
	}
	if err := p.parse(); err != nil {
		err.Conf = conf
		return Settings{}, err
	}
	return p.s, nil
}

// option is one key of the settings string.
type option struct {
	key   string
	since Version
	until Version // exclusive; zero: still there
	parse func(*parser) *SettingsError
}

// options lists the keys with the version that brought each: notes in
// docs/architecture.md name the sources.
var options = []option{
	{"max_split_size_mb", Version{1, 10}, Version{}, (*parser).maxSplitSize},
	{"roundup_power2_divisions", Version{1, 12}, Version{}, (*parser).roundup},
	{"roundup_bypass_threshold_mb", Version{1, 13}, Version{2, 0}, (*parser).roundupBypass},
	{"garbage_collection_threshold", Version{1, 12}, Version{}, (*parser).garbageCollection},
	{"backend", Version{1, 13}, Version{}, (*parser).backend},
	{"expandable_segments", Version{2, 1}, Version{}, flag("expandable_segments", func(s *Settings) *bool { return &s.ExpandableSegments })},
	{"release_lock_on_cudamalloc", Version{2, 2}, Version{}, flag("release_lock_on_cudamalloc", func(s *Settings) *bool { return &s.ReleaseLockOnMalloc })},
	{"release_lock_on_hipmalloc", Version{2, 2}, Version{}, flag("release_lock_on_hipmalloc", func(s *Settings) *bool { return &s.ReleaseLockOnMalloc })},
	{"pinned_use_cuda_host_register", Version{2, 2}, Version{}, flag("pinned_use_cuda_host_register", func(s *Settings) *bool { return &s.PinnedHostRegister })},
	{"pinned_use_hip_host_register", Version{2, 2}, Version{}, flag("pinned_use_hip_host_register", func(s *Settings) *bool { return &s.PinnedHostRegister })},
	{"pinned_num_register_threads", Version{2, 2}, Version{}, (*parser).pinnedThreads},
	{"max_non_split_rounding_mb", Version{2, 6}, Version{}, (*parser).maxNonSplitRounding},
	{"pinned_use_background_threads", Version{2, 6}, Version{}, flag("pinned_use_background_threads", func(s *Settings) *bool { return &s.PinnedBackground })},
	{"graph_capture_record_stream_reuse", Version{2, 10}, Version{}, flag("graph_capture_record_stream_reuse", func(s *Settings) *bool { return &s.GraphStreamReuse })},
	{"pinned_reserve_segment_size_mb", Version{2, 10}, Version{}, ignoredNumber("pinned_reserve_segment_size_mb")},
	{"per_process_memory_fraction", Version{2, 10}, Version{}, (*parser).memoryFraction},
	{"large_segment_size_mb", Version{2, 11}, Version{}, (*parser).largeSegmentSize},
	{"throw_on_cudamalloc_oom", Version{2, 12}, Version{}, flag("throw_on_cudamalloc_oom", func(s *Settings) *bool { return &s.ThrowAtLimit })},
	{"pinned_free_catch_all", Version{2, 12}, Version{}, flag("pinned_free_catch_all", func(*Settings) *bool { return new(bool) })},
	{"pinned_max_round_threshold_mb", Version{2, 12}, Version{}, ignoredNumber("pinned_max_round_threshold_mb")},
	{"pinned_max_cached_size_mb", Version{2, 12}, Version{}, ignoredNumber("pinned_max_cached_size_mb")},
	{"expandable_segments_reserve", Version{2, 14}, Version{}, (*parser).anyValue},
	{"expandable_segments_reserve_by_class", Version{2, 14}, Version{}, (*parser).anyValue},
}

// OptionNames returns the keys that a version accepts, in the order of their
// introduction. The zero Version means Newest.
func OptionNames(v Version) []string {
	v = RulesFor(v).Version
	var names []string
	for _, o := range options {
		if v.AtLeast(o.since) && (o.until == Version{} || !v.AtLeast(o.until)) {
			names = append(names, o.key)
		}
	}
	return names
}

type parser struct {
	conf   string
	rules  Rules
	tokens []string
	i      int
	s      Settings
}

// lex splits as CUDAAllocatorConfig::lexArgs and ConfigTokenizer do: the four
// separators are tokens of their own, spaces are dropped wherever they stand.
func lex(conf, spaces string) []string {
	var tokens []string
	var word []byte
	flush := func() {
		if len(word) > 0 {
			tokens = append(tokens, string(word))
			word = word[:0]
		}
	}
	for i := range len(conf) {
		switch c := conf[i]; {
		case strings.IndexByte(",:[]", c) >= 0:
			flush()
			tokens = append(tokens, string(c))
		case strings.IndexByte(spaces, c) < 0:
			word = append(word, c)
		}
	}
	flush()
	return tokens
}

// splitPairs splits as 1.10 to 1.13 do: at commas and spaces, then at colons.
// What has no value is ignored silently there, so it is left out here.
func splitPairs(conf string) []string {
	var tokens []string
	for _, pair := range strings.FieldsFunc(conf, func(r rune) bool { return strings.ContainsRune(", \t\n\r", r) }) {
		key, value, ok := strings.Cut(pair, ":")
		if !ok {
			continue
		}
		if len(tokens) > 0 {
			tokens = append(tokens, ",")
		}
		value, _, _ = strings.Cut(value, ":")
		tokens = append(tokens, key, ":", value)
	}
	return tokens
}

func (p *parser) parse() *SettingsError {
	for p.i < len(p.tokens) {
		key := p.tokens[p.i]
		p.i++
		o, err := p.option(key)
		if err != nil {
			return err
		}
		if err := o.parse(p); err != nil {
			err.Key = key
			return err
		}
		if p.i < len(p.tokens) {
			if err := p.expect(","); err != nil {
				return err
			}
		}
	}
	if p.rules.LargeSegmentKey && p.s.MaxSplitBytes < p.s.LargeSegmentBytes {
		return &SettingsError{Key: "max_split_size_mb", Message: fmt.Sprintf(
			"CachingAllocator option max_split_size_mb too small, must be >= %d", p.s.LargeSegmentBytes>>20)}
	}
	return nil
}

func (p *parser) option(key string) (option, *SettingsError) {
	e := &SettingsError{Key: key, Message: "Unrecognized CachingAllocator option: " + key}
	if p.rules.SharedConfigParser {
		e.Message = fmt.Sprintf("Unrecognized key '%s' in CUDA allocator config.", key)
	}
	v := p.rules.Version
	best := 3
	for _, o := range options {
		known := v.AtLeast(o.since) && (o.until == Version{} || !v.AtLeast(o.until))
		if o.key == key {
			if known {
				return o, nil
			}
			if !v.AtLeast(o.since) {
				e.Since = o.since.String()
			}
			return o, e
		}
		if d := editDistance(key, o.key); known && (d < best || d == best && e.Nearest == "") {
			best, e.Nearest = d, o.key
		}
	}
	if e.Nearest == "" {
		// A key glued to its value, or cut short, is further away.
		for _, o := range options {
			if len(key) >= 6 && (strings.HasPrefix(o.key, key) || strings.HasPrefix(key, o.key)) {
				e.Nearest = o.key
				break
			}
		}
	}
	return option{}, e
}

// expect is consumeToken().
func (p *parser) expect(token string) *SettingsError {
	if p.i < len(p.tokens) && p.tokens[p.i] == token {
		p.i++
		return nil
	}
	return &SettingsError{Message: "Error parsing CachingAllocator settings, expected " + token}
}

// value consumes ":" and the token after it.
func (p *parser) value(key string) (string, *SettingsError) {
	if err := p.expect(":"); err != nil {
		return "", err
	}
	if p.i == len(p.tokens) {
		return "", &SettingsError{Message: "Error, expecting " + key + " value"}
	}
	p.i++
	return p.tokens[p.i-1], nil
}

// integer reads leading digits as std::stoi does.
func integer(text string) (int64, *SettingsError) {
	t := strings.TrimLeft(text, " \t")
	n := 0
	if n < len(t) && (t[n] == '-' || t[n] == '+') {
		n++
	}
	for n < len(t) && t[n] >= '0' && t[n] <= '9' {
		n++
	}
	v, err := strconv.ParseInt(strings.TrimPrefix(t[:n], "+"), 10, 64)
	if err != nil {
		return 0, &SettingsError{Message: fmt.Sprintf("stoi: %q is not a number", text)}
	}
	return v, nil
}

func (p *parser) integer(key string) (int64, *SettingsError) {
	text, err := p.value(key)
	if err != nil {
		return 0, err
	}
	return integer(text)
}

func (p *parser) real(key string) (float64, *SettingsError) {
	text, err := p.value(key)
	if err != nil {
		return 0, err
	}
	n := len(text)
	for n > 0 {
		if f, err := strconv.ParseFloat(text[:n], 64); err == nil {
			return f, nil
		}
		n--
	}
	return 0, &SettingsError{Message: fmt.Sprintf("stod: %q is not a number", text)}
}

// mib turns MiB into bytes as the C++ does: a negative number wraps around to
// a huge one, and huge ones are clamped.
func mib(n int64) int64 {
	if n < 0 || n > math.MaxInt64>>20 {
		return unlimited
	}
	return n << 20
}

func (p *parser) maxSplitSize() *SettingsError {
	n, err := p.integer("max_split_size_mb")
	if err != nil {
		return err
	}
	const least = LargeBuffer >> 20
	v := p.rules.Version
	switch {
	case n < 0:
	case v.AtLeast(Version{2, 11}): // compared with large_segment_size_mb at the end
	case v.AtLeast(Version{2, 9}) && n < least, !v.AtLeast(Version{2, 9}) && n <= least:
		word := "must be > "
		if v == (Version{1, 10}) {
			word = "must be >= "
		}
		return &SettingsError{Message: fmt.Sprintf("CachingAllocator option max_split_size_mb too small, %s%d", word, least)}
	}
	p.s.MaxSplitBytes = mib(n)
	return nil
}

func (p *parser) maxNonSplitRounding() *SettingsError {
	n, err := p.integer("max_non_split_rounding_mb")
	if err != nil {
		return err
	}
	if n >= 0 && n <= LargeBuffer>>20 && !p.rules.LargeSegmentKey {
		return &SettingsError{Message: fmt.Sprintf("CachingAllocator option max_non_split_rounding_mb too small, must be > %d", LargeBuffer>>20)}
	}
	p.s.MaxNonSplitRounding = mib(n)
	return nil
}

func (p *parser) largeSegmentSize() *SettingsError {
	n, err := p.integer("large_segment_size_mb")
	if err != nil {
		return err
	}
	if n <= MinLargeAlloc>>20 {
		return &SettingsError{Message: fmt.Sprintf("CachingAllocator option large_segment_size_mb too small, must be > %d", MinLargeAlloc>>20)}
	}
	p.s.LargeSegmentBytes = mib(n)
	return nil
}

func (p *parser) garbageCollection() *SettingsError {
	f, err := p.real("garbage_collection_threshold")
	if err != nil {
		return err
	}
	switch {
	case f > 0 && f < 1:
	case p.rules.SharedConfigParser:
		return &SettingsError{Message: "garbage_collect_threshold is invalid, set it in (0.0, 1.0)"}
	case f <= 0:
		return &SettingsError{Message: "garbage_collect_threshold too small, set it 0.0~1.0"}
	default:
		return &SettingsError{Message: "garbage_collect_threshold too big, set it 0.0~1.0"}
	}
	p.s.GCThreshold = f
	return nil
}

func (p *parser) memoryFraction() *SettingsError {
	f, err := p.real("per_process_memory_fraction")
	if err != nil {
		return err
	}
	if !(f >= 0 && f <= 1) {
		return &SettingsError{Message: "per_process_memory_fraction is invalid, set it in [0.0, 1.0]"}
	}
	p.s.MemoryFraction = f
	return nil
}

func (p *parser) roundupBypass() *SettingsError {
	n, err := p.integer("roundup_bypass_threshold_mb")
	if err == nil {
		p.s.RoundupBypassBytes = mib(n)
	}
	return err
}

func (p *parser) backend() *SettingsError {
	name, err := p.value("backend")
	if err != nil {
		return err
	}
	switch name {
	case "native":
		p.s.Backend = Native
	case "cudaMallocAsync", "hipMallocAsync":
		p.s.Backend = CUDAMallocAsync
	default:
		return &SettingsError{Message: "Unknown allocator backend, options are native and cudaMallocAsync"}
	}
	return nil
}

func (p *parser) pinnedThreads() *SettingsError {
	n, err := p.integer("pinned_num_register_threads")
	if err != nil {
		return err
	}
	if n <= 0 || n&(n-1) != 0 {
		return &SettingsError{Message: "Number of register threads has to be power of 2 "}
	}
	if n > 128 {
		return &SettingsError{Message: "Number of register threads should be less than or equal to 128"}
	}
	p.s.PinnedRegisterThreads = n
	return nil
}

// flag parses a boolean.
func flag(key string, field func(*Settings) *bool) func(*parser) *SettingsError {
	return func(p *parser) *SettingsError {
		text, err := p.value(key)
		if err != nil {
			return err
		}
		if text != "True" && text != "False" {
			if p.rules.SharedConfigParser {
				return &SettingsError{Message: fmt.Sprintf("Expected 'True' or 'False' at index %d in ConfigTokenizer but got '%s'", p.i-1, text)}
			}
			return &SettingsError{Message: "Expected a single True/False argument for " + key}
		}
		*field(&p.s) = text == "True"
		return nil
	}
}

// ignoredNumber parses a number that concerns host memory only.
func ignoredNumber(key string) func(*parser) *SettingsError {
	return func(p *parser) *SettingsError {
		_, err := p.integer(key)
		return err
	}
}

// anyValue skips the value of an option of which PyTorch ignores wrong values.
func (p *parser) anyValue() *SettingsError {
	text, err := p.value("")
	if err != nil {
		return err
	}
	if text == "[" {
		for p.i < len(p.tokens) && p.tokens[p.i] != "]" {
			p.i++
		}
		return p.expect("]")
	}
	return nil
}

// roundup parses a number, or a list [256:1,512:2,>:8]. The first key fills
// all smaller sizes too; each later one sets its own entry only; ">" fills the
// rest, up to 2.8 with the last key's own entry.
func (p *parser) roundup() *SettingsError {
	const key = "roundup_power2_divisions"
	text, err := p.value(key)
	if err != nil {
		return err
	}
	if text != "[" || !p.rules.PerSizeRoundup {
		n, err := integer(text)
		if err != nil {
			return err
		}
		if n <= 0 || n&(n-1) != 0 {
			return &SettingsError{Message: "For roundups, the divisons has to be power of 2 "}
		}
		for i := range p.s.RoundupDivisions {
			p.s.RoundupDivisions[i] = n
		}
		return nil
	}
	d := &p.s.RoundupDivisions
	last, first := 0, true
	for {
		if p.i == len(p.tokens) {
			return &SettingsError{Message: "Error parsing CachingAllocator settings, expected ]"}
		}
		name := p.tokens[p.i]
		p.i++
		if name == "]" {
			return nil
		}
		n, err := p.integer(key)
		if err != nil {
			return err
		}
		if n < 0 || n&(n-1) != 0 || n == 0 && !p.rules.Version.AtLeast(Version{2, 4}) {
			message := "For roundups, the divisons has to be power of 2 or 0 to disable roundup "
			if !p.rules.Version.AtLeast(Version{2, 4}) {
				message = "For roundups, the divisons has to be power of 2 "
			}
			return &SettingsError{Message: message}
		}
		if name == ">" {
			from := last
			if p.rules.RoundupAfterLast && !first {
				from++
			}
			for i := from; i < len(d); i++ {
				d[i] = n
			}
		} else {
			size, err := integer(name)
			if err != nil {
				return err
			}
			if size <= 0 || size&(size-1) != 0 {
				return &SettingsError{Message: "For roundups, the intervals have to be power of 2 "}
			}
			index := min(bits.Len64(uint64(size))-1, len(d)-1)
			if first {
				for i := range index {
					d[i] = n
				}
				first = false
			}
			d[index] = n
			last = index
		}
		if p.i < len(p.tokens) && p.tokens[p.i] != "]" {
			if err := p.expect(","); err != nil {
				return err
			}
		}
	}
}

// editDistance is Levenshtein's, up to what a typo makes.
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost++
			}
			diagonal = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
