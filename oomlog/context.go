package oomlog

import (
	"bytes"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// How far around a message its stream is read for evidence, in lines.
const (
	linesBefore = 400
	linesNear   = 40 // for phases
	linesAfter  = 200
	framesMost  = 64
)

// context gathers the evidence around a message. begin and end are the windows of
// its first and last line.
func (s *scanner) context(f *Failure, begin, end *window, lead string, st *stream) {
	f.Traceback = traceback(begin)
	step, stepFact := lastStep(begin)
	if stepFact == nil && st.step >= 0 {
		step = st.step
	}
	if why := quotation(begin, lead); why != "" {
		f.Kind = Mention
		f.Why = &Fact{Kind: QuotedFact, Name: why, Line: f.Line, Text: quote([]byte(lead + f.Text))}
		return
	}
	if f.Kind != Fatal {
		return
	}
	f.Facts = append(f.Facts, phases(f.Traceback, begin)...)
	if stepFact != nil {
		f.Facts = append(f.Facts, *stepFact)
	}
	if stepFact != nil {
		st.step, st.stepLine = step, stepFact.Line
	}
	if why := handled(f, begin, end, lead, step); why != nil {
		f.Kind, f.Why = Caught, why
	}
}

var (
	pythonFrame   = regexp.MustCompile(`^\s*File "([^"]+)", line (\d+), in (.+?)\s*$`)
	notebookFrame = regexp.MustCompile(`^\s*(?:File )?([^\s:"]+\.py)(?::(\d+))?,? in ([\w<>.]+)\(`)
	notebookCell  = regexp.MustCompile(`^(Cell In ?\[\d+\]|Input In ?\[\d+\]|<ipython-input-[^>]+>)(?:, line (\d+))?(?:,? in ([\w<>.]+).*)?$`)
	notebookArrow = regexp.MustCompile(`^-+> ?(\d+) +(.*)$`)
	gluedStart    = []byte("Traceback (most recent call last)")
)

// traceback reads the Python traceback that ends just before the window's line.
func traceback(w *window) *Traceback {
	start, strange := 0, 0
	tb := &Traceback{}
search:
	for i := -1; i >= -linesBefore; i-- {
		l := w.line(i)
		if l == nil {
			return nil
		}
		text := bytes.TrimSpace(l.text)
		switch {
		case bytes.Contains(text, gluedStart):
			start = i
			break search
		case len(text) == 0 || l.text[0] == ' ' || l.text[0] == '\t' || bytes.HasPrefix(text, []byte("File ")) || l.joins,
			bytes.HasPrefix(text, []byte("--")), notebookCell.Match(text), notebookFrame.Match(text):
		default:
			// Another program or thread may write in between.
			if strange++; strange > 3 {
				return nil
			}
		}
	}
	if start == 0 {
		return nil
	}
	tb.Line = w.line(start).number
	for i := start + 1; i < 0; i++ {
		text := w.joined(i)
		m := pythonFrame.FindStringSubmatch(text)
		if m == nil {
			m = notebookFrame.FindStringSubmatch(text)
		}
		if m == nil {
			m = notebookCell.FindStringSubmatch(text)
		}
		if m == nil {
			if a := notebookArrow.FindStringSubmatch(text); a != nil && len(tb.Frames) > 0 {
				last := &tb.Frames[len(tb.Frames)-1]
				last.Source = strings.TrimSpace(a[2])
				if last.Line == 0 {
					last.Line, _ = strconv.Atoi(a[1])
				}
			}
			continue
		}
		n, _ := strconv.Atoi(m[2])
		frame := Frame{File: m[1], Line: n, Function: m[3]}
		if next := w.line(i + 1); next != nil && i+1 < 0 && strings.HasPrefix(strings.TrimSpace(text), "File \"") && !pythonFrame.Match(next.text) {
			frame.Source = strings.TrimSpace(w.joined(i + 1))
		}
		if len(tb.Frames) == framesMost { // deep recursion: keep the innermost
			tb.Frames = tb.Frames[1:]
		}
		tb.Frames = append(tb.Frames, frame)
	}
	for i := start - 1; i >= start-3; i-- {
		if l := w.line(i); l != nil && (bytes.Contains(l.text, []byte("During handling of the above exception")) ||
			bytes.Contains(l.text, []byte("was the direct cause of the following exception"))) {
			tb.Chained = true
		}
	}
	return tb
}

// joined returns line i with the lines that it wraps into.
func (w *window) joined(i int) string {
	l := w.line(i)
	text := string(l.text)
	for n := 0; l.joins && n < 4; n++ {
		i++
		if l = w.line(i); l == nil {
			break
		}
		text += string(l.text)
	}
	return text
}

// phaseRule tells a phase from a frame of the traceback or a line of the log.
type phaseRule struct {
	phase string
	// frame is matched against "file function source".
	frame *regexp.Regexp
	line  *regexp.Regexp
}

// The frames are those of PyTorch, transformers, accelerate, Lightning, DeepSpeed
// and vLLM; the lines what their trainers print.
var phaseRules = []phaseRule{
	{PhaseOptimizer, regexp.MustCompile(`optim(?:izers?)?/\w+\.py (?:step|_init_group|_init_state|_single_tensor\w*|_multi_tensor\w*)|(?:optimizer|optim|opt)\w*\.step\(|exp_avg|_init_group|zero/stage\S+ (?:step|initialize_optimizer_states)`), nil},
	{PhaseBackward, regexp.MustCompile(`autograd/\S+ backward|\.backward\(|\bbackward\b.*_engine_run_backward|run_backward`), nil},
	{PhaseLoss, regexp.MustCompile(`cross_entropy|log_softmax|nll_loss|CrossEntropyLoss|loss_function|lm_head\(|logits\.float\(\)`), nil},
	{PhaseEvaluate, regexp.MustCompile(` (?:evaluate|evaluation_loop|prediction_step|prediction_loop|validate|validation_step|val_step|eval_epoch|test_step|evaluation_step)\b|nested_concat|all_preds|\.evaluate\(|run_evaluation`), regexp.MustCompile(`(?i)\*\*\*\*\* Running (?:Evaluation|Prediction)|^\s*(?:Evaluating|Validating|Validation|Testing)\b.*[:|]`)},
	{PhaseGenerate, regexp.MustCompile(`generation/\S+ |\.generate\(| generate | (?:_sample|greedy_search|beam_search|_beam_search|contrastive_search)\b`), regexp.MustCompile(`(?i)^\s*Generating\b`)},
	{PhaseSave, regexp.MustCompile(` (?:save_checkpoint|_save_checkpoint|save_model|save_pretrained|fsdp_save\w*|_save)\b|torch\.save\(|state_dict_utils|full_optim_state_dict|_full_post_state_dict_hook|get_model_state_dict`), regexp.MustCompile(`(?i)saving (?:model )?(?:checkpoint|snapshot)|Failed to clone\(\) tensor`)},
	{PhaseLoad, regexp.MustCompile(`torch\.load\(|serialization\.py (?:load|_load|restore_location|default_restore_location|_cuda_deserialize)|load_state_dict|resume_from_checkpoint|_load_optimizer_and_scheduler|safetensors\S* load|load_file\(`), regexp.MustCompile(`(?i)loading checkpoint shards|resuming from checkpoint|loading model from`)},
	{PhaseModel, regexp.MustCompile(`module\.py (?:to|cuda|_apply|convert)\b|from_pretrained|load_model|\.to\((?:device|"cuda|'cuda)|\.cuda\(`), regexp.MustCompile(`(?i)starting to load model|loading (?:model )?weights`)},
	{PhaseCapture, regexp.MustCompile(`capture_model|cuda/graphs\.py|cudagraph|capture_one_batch_size|capture_graph|cuda_graph_runner`), regexp.MustCompile(`(?i)captur(?:ing|e) (?:the )?(?:cuda|cudagraph|graph)`)},
	{PhaseWarmUp, regexp.MustCompile(`profile_run|_dummy_run|_dummy_sampler_run|determine_(?:num_)?available|warm_?up`), regexp.MustCompile(`(?i)warm(?:ing)?[ -]?up`)},
	{PhasePin, regexp.MustCompile(`pin_memory|cudaHostRegister`), nil},
	{PhaseContext, regexp.MustCompile(`_lazy_init|_cuda_init|cuda/__init__\.py (?:init|synchronize|set_device)`), nil},
	{PhaseCollective, regexp.MustCompile(`distributed_c10d\.py|all_gather|reduce_scatter|all_reduce|init_process_group|\bbarrier\(`), nil},
	{PhaseData, regexp.MustCompile(`utils/data/|_utils/collate|dataloader`), nil},
	{PhaseCompile, regexp.MustCompile(`_inductor/|_dynamo/|autotun`), nil},
	{PhaseForward, regexp.MustCompile(`module\.py _call_impl|module\.py _wrapped_call_impl| forward\b`), nil},
}

// phases tells what the job was doing: from the innermost frames outwards, then
// from the lines before. Each phase is named once.
func phases(tb *Traceback, w *window) []Fact {
	var out []Fact
	seen := map[string]bool{}
	if tb != nil {
		for i := len(tb.Frames) - 1; i >= 0; i-- {
			fr := tb.Frames[i]
			text := fr.File + " " + fr.Function + " " + fr.Source
			for _, r := range phaseRules {
				if !seen[r.phase] && r.frame.MatchString(text) {
					seen[r.phase] = true
					out = append(out, Fact{Kind: PhaseFact, Name: r.phase, Line: tb.Line, Text: `File "` + fr.File + `", line ` + strconv.Itoa(fr.Line) + ", in " + fr.Function + ": " + fr.Source})
				}
			}
		}
		slices.Reverse(out)
	}
	n := 0
	for i := -1; n < linesNear; i-- {
		l := w.line(i)
		if l == nil || tb != nil && i < -linesBefore {
			break
		}
		if tb != nil && l.number >= tb.Line {
			continue
		}
		n++
		for _, phase := range l.note().phases {
			if !seen[phase] {
				seen[phase] = true
				out = append([]Fact{{Kind: PhaseFact, Name: phase, Line: l.number, Text: quote(l.text)}}, out...)
			}
		}
	}
	return out
}

// counters are the ways in which trainers count, most telling first. Their needle
// must be in the line, which spares most lines the regular expression.
var counters = []struct {
	name    string
	needles []string
	form    *regexp.Regexp
}{
	{"progress", []string{"%|"}, regexp.MustCompile(`\d+%\|[^|]*\| *(\d+)/\d+ \[`)},
	{"step", []string{"step", "Step", "STEP", "iter", "Iter", "batch", "Batch"}, regexp.MustCompile(`(?i)\b(?:global[_ ]?step|train[_ ]?step|step|iteration|iter|batch)s?['"]?\s*[:=#]?\s*\[?\s*(\d+)(?:\b|\D)`)},
	{"epoch", []string{"poch"}, regexp.MustCompile(`(?i)\bepoch['"]?\s*[:=#]?\s*\[?\s*(\d+)`)},
}

// progressOf reads a line's counter.
func progressOf(text []byte) (name string, value int, ok bool) {
	if len(text) > 4096 {
		text = text[:4096]
	}
	for _, c := range counters {
		if !containsAny(text, c.needles) {
			continue
		}
		if m := c.form.FindSubmatch(text); m != nil {
			if n, err := strconv.Atoi(string(m[1])); err == nil {
				return c.name, n, true
			}
		}
	}
	return "", 0, false
}

// notes are what a line says by itself; they are read once for each line near a
// message.
type notes struct {
	counter string // name of its counter, or ""
	count   int
	died    bool
	copes   bool
	phases  []string
}

func (l *line) note() *notes {
	if l.notes != nil {
		return l.notes
	}
	n := &notes{}
	l.notes = n
	text := l.text[:min(len(l.text), 2000)]
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("File \"")) {
		n.counter, n.count, _ = progressOf(text)
	}
	n.died = died.Match(text)
	n.copes = copesWith(text)
	for _, r := range phaseRules {
		if r.line != nil && r.line.Match(text) {
			n.phases = append(n.phases, r.phase)
		}
	}
	return n
}

func containsAny(text []byte, needles []string) bool {
	for _, n := range needles {
		if bytes.Contains(text, []byte(n)) {
			return true
		}
	}
	return false
}

// lastStep finds the counter nearest before the window's line.
func lastStep(w *window) (int, *Fact) {
	for i := 0; i >= -linesBefore; i-- {
		l := w.line(i)
		if l == nil {
			break
		}
		if n := l.note(); n.counter != "" {
			v := float64(n.count)
			return n.count, &Fact{Kind: StepFact, Name: n.counter, Value: &v, Unit: "count", Line: l.number, Text: quote(l.text)}
		}
	}
	return -1, nil
}

// copes is what programs print when they handle a failure themselves.
var copes = regexp.MustCompile(`(?i)retry|trying again|try again with|reduc\w+ (?:the )?batch|batch size (?:reduced|halved)|halv\w+ (?:the )?batch|skip(?:ping|ped)? (?:this |the )?(?:batch|sample|step|image|example)|\bcaught\b|recover(?:ed|ing)?\b|falling back|fall back|fallback|continuing|switching to tiled|lowering|decreas\w+ (?:the )?batch`)

// advises are sentences that tell the reader what to do: the program does nothing.
var advises = regexp.MustCompile(`(?i)\b(?:please|try (?:to |setting|lowering|reducing|increasing|decreasing)|consider|you (?:can|may|might|should|could)|recommend\w*|suggest\w*|may be able to)\b`)

func copesWith(text []byte) bool { return copes.Match(text) && !advises.Match(text) }

// handled tells whether the program went on after the message, by the lines that
// follow it in its stream.
func handled(f *Failure, begin, end *window, lead string, step int) *Fact {
	first := begin.line(0)
	if f.Traceback == nil && copesWith([]byte(lead)) {
		return &Fact{Kind: CaughtFact, Name: "says so", Line: first.number, Text: quote(first.text)}
	}
	rest := []byte(end.joined(0))
	if len(rest) > 2000 {
		rest = rest[len(rest)-2000:]
	}
	if f.Traceback == nil && copesWith(tail(rest, f.Text)) {
		return &Fact{Kind: CaughtFact, Name: "says so", Line: first.number, Text: quote(first.text)}
	}
	for i := 1; i <= linesAfter; i++ {
		l := end.line(i)
		if l == nil {
			break
		}
		n := l.note()
		if n.died {
			return nil
		}
		if i <= 3 && !end.line(i-1).joins && n.copes {
			return &Fact{Kind: CaughtFact, Name: "says so", Line: l.number, Text: quote(l.text)}
		}
		if n.counter != "" && step >= 0 && n.count > step {
			v := float64(n.count)
			return &Fact{Kind: CaughtFact, Name: "went on", Value: &v, Unit: "count", Line: l.number, Text: quote(l.text)}
		}
	}
	return nil
}

// tail returns what stands on the line after the message.
func tail(rest []byte, message string) []byte {
	if n := min(len(message), 24); n > 0 {
		if i := bytes.LastIndex(rest, []byte(message[len(message)-n:])); i >= 0 {
			return rest[i+n:]
		}
	}
	return nil
}

// died are lines after which a process does not go on.
var died = regexp.MustCompile(`ChildFailedError|exitcode *: *-?\d|exits with return code|died with <Signals|Aborted|core dumped|^Killed|srun: error|another exception occurred|direct cause of the following|terminate called`)
