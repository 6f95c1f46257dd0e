package monitor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Files is /proc, with /etc/passwd under the name etc/passwd.
type Files interface {
	ReadFile(name string) ([]byte, error)
	ReadLink(name string) (string, error)
	List(dir string) ([]string, error)
}

// HostFiles is the /proc of this machine.
type HostFiles struct{}

func hostPath(name string) string {
	if strings.HasPrefix(name, "etc/") {
		return "/" + name
	}
	return filepath.Join("/proc", name)
}

// ReadFile implements Files.
func (HostFiles) ReadFile(name string) ([]byte, error) { return os.ReadFile(hostPath(name)) }

// ReadLink implements Files.
func (HostFiles) ReadLink(name string) (string, error) { return os.Readlink(hostPath(name)) }

// List implements Files.
func (HostFiles) List(dir string) ([]string, error) {
	f, err := os.Open(hostPath(dir))
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

// Owner is who a process is. What is not known is "".
type Owner struct {
	User      string `json:"user"`
	Command   string `json:"command"`
	Container string `json:"container"` // its id, shortened
	Pod       string `json:"pod"`       // Kubernetes' UID
	Job       string `json:"slurm_job"`
	Parent    int    `json:"parent_pid"`
	State     string `json:"process_state"` // as in /proc: R, S, D, Z …
	// Start is the process' start time in clock ticks after boot: with the PID
	// it names a process for good.
	Start  uint64 `json:"start_ticks"`
	Hidden string `json:"-"` // why the process cannot be seen; "" where it can
}

// owner reads who a PID is.
func owner(files Files, users map[string]string, pid int, driverName string) Owner {
	read := func(name string) string {
		data, _ := files.ReadFile(fmt.Sprintf("%d/%s", pid, name))
		return string(data)
	}
	o := Owner{Command: driverName}
	status, err := files.ReadFile(fmt.Sprintf("%d/status", pid))
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrPermission):
			o.Hidden = "this user may not see it"
		case inNamespace(files):
			o.Hidden = "a PID of the host: run with --pid=host (Docker) or hostPID: true (Kubernetes)" // case 9
		default:
			o.Hidden = "not in /proc: a process of another PID namespace, or one that just ended"
		}
		return o
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		switch key {
		case "State":
			o.State = fields[0]
		case "PPid":
			o.Parent, _ = strconv.Atoi(fields[0])
		case "Uid":
			if o.User = users[fields[0]]; o.User == "" {
				o.User = fields[0]
			}
		}
	}
	if words := strings.FieldsFunc(read("cmdline"), func(r rune) bool { return r == 0 }); len(words) > 0 {
		o.Command = strings.Join(words, " ")
	} else if comm := strings.TrimSpace(read("comm")); comm != "" { // a zombie has no command line
		o.Command = comm
	}
	// Field 22 of stat; the name before it may hold anything, even brackets.
	if stat := read("stat"); strings.Contains(stat, ")") {
		if f := strings.Fields(stat[strings.LastIndexByte(stat, ')')+1:]); len(f) > 19 {
			o.Start, _ = strconv.ParseUint(f[19], 10, 64)
		}
	}
	o.Container, o.Pod, o.Job = cgroupOwner(read("cgroup"))
	return o
}

var (
	podPath   = regexp.MustCompile(`pod([0-9a-f]{8}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{4}[-_][0-9a-f]{12}|[0-9a-f]{32})`)
	container = regexp.MustCompile(`(?:^|[/:-])([0-9a-f]{64})(?:\.scope)?(?:/|$)`)
	slurmJob  = regexp.MustCompile(`(?:/slurm[^/]*(?:/[^/]+)*?|slurmstepd\.scope)/job_(\d+)(?:/|$)`)
)

// cgroupOwner finds the container, pod and Slurm job in /proc/PID/cgroup, of
// version 1 (one line a controller) or 2 (one line).
func cgroupOwner(text string) (id, pod, job string) {
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		if m := podPath.FindStringSubmatch(parts[2]); m != nil && pod == "" {
			pod = strings.ReplaceAll(m[1], "_", "-")
		}
		if m := container.FindStringSubmatch(parts[2]); m != nil && id == "" {
			id = m[1][:12]
		}
		if m := slurmJob.FindStringSubmatch(parts[2]); m != nil && job == "" {
			job = m[1]
		}
	}
	return id, pod, job
}

// inNamespace says whether we run in a PID namespace of our own. From inside,
// NSpid shows nothing of the outer ones, so the sign is that kthreadd, PID 2
// of every host, is not there.
func inNamespace(files Files) bool {
	comm, err := files.ReadFile("2/comm")
	return err != nil || strings.TrimSpace(string(comm)) != "kthreadd"
}

// readUsers reads the names of users.
func readUsers(files Files) map[string]string {
	users := map[string]string{}
	data, _ := files.ReadFile("etc/passwd")
	for line := range strings.Lines(string(data)) {
		if f := strings.Split(line, ":"); len(f) > 3 {
			users[f[2]] = f[0]
		}
	}
	return users
}

// Holder is a process that has a card's device file open though the driver
// does not list it.
type Holder struct {
	PID int `json:"pid"`
	Owner
}

// holders finds the processes that hold device files of cards, as fuser does,
// and how many processes would not let us look.
func holders(files Files, users map[string]string, listed map[int]bool) (byMinor map[string][]Holder, refused int) {
	byMinor = map[string][]Holder{}
	names, _ := files.List(".")
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || listed[pid] {
			continue
		}
		fds, err := files.List(name + "/fd")
		if errors.Is(err, fs.ErrPermission) {
			refused++
			continue
		}
		var seen []string
		for _, fd := range fds {
			to, _ := files.ReadLink(name + "/fd/" + fd)
			minor, ok := strings.CutPrefix(to, "/dev/nvidia")
			if _, err := strconv.Atoi(minor); ok && err == nil && !slices.Contains(seen, minor) {
				seen = append(seen, minor)
			}
		}
		for _, minor := range seen {
			byMinor[minor] = append(byMinor[minor], Holder{PID: pid, Owner: owner(files, users, pid, "")})
		}
	}
	for _, list := range byMinor {
		slices.SortFunc(list, func(a, b Holder) int { return a.PID - b.PID })
	}
	return byMinor, refused
}

// hook returns the name of a library preloaded into us that changes what the
// driver says (case 43), or "".
func hook(files Files) string {
	maps, _ := files.ReadFile("self/maps")
	for _, name := range []string{"libvgpu.so", "libnvshare.so", "libcuda-control.so"} {
		if strings.Contains(string(maps), name) {
			return name
		}
	}
	return ""
}

// hostMemory reads what the system has and could give.
func hostMemory(files Files) (total, available uint64, ok bool) {
	data, _ := files.ReadFile("meminfo")
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 2 {
			continue
		}
		kb, _ := strconv.ParseUint(f[1], 10, 64)
		switch f[0] {
		case "MemTotal:":
			total = kb << 10
		case "MemAvailable:":
			available = kb << 10
		}
	}
	return total, available, total > 0 && available > 0
}

// StartOf returns when the process of a PID started, in clock ticks after
// boot; 0 is that there is none.
func StartOf(files Files, pid int) uint64 { return owner(files, nil, pid, "").Start }
