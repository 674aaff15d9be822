package budget

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"
)

// Memory returns the process's memory limit in bytes and its source: the tightest limit among its
// cgroup and the parents, or the machine's memory if there is none. It returns 0 if neither is
// known.
func Memory() (limit int64, source string) { return memory("/") }

func memory(root string) (limit int64, source string) {
	limit, source = machine(root), "machine"
	own, _ := os.ReadFile(path.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(own)) {
		controllers, dir, ok := groupOf(line)
		if !ok {
			continue
		}
		base, file := path.Join(root, "sys/fs/cgroup"), "memory.max"
		if controllers != "" {
			base, file = path.Join(base, "memory"), "memory.limit_in_bytes"
		}
		for {
			if n := number(path.Join(base, dir, file)); n > 0 && (limit == 0 || n < limit) {
				limit, source = n, "cgroup"
			}
			if dir == "/" || dir == "." || dir == "" {
				break
			}
			dir = path.Dir(dir)
		}
	}
	return limit, source
}

// groupOf parses a line of /proc/self/cgroup. controllers is "" for cgroup v2.
func groupOf(line string) (controllers, dir string, ok bool) {
	_, rest, ok := strings.Cut(strings.TrimSpace(line), ":")
	if !ok {
		return "", "", false
	}
	controllers, dir, ok = strings.Cut(rest, ":")
	memory := controllers == ""
	for c := range strings.SplitSeq(controllers, ",") {
		memory = memory || c == "memory"
	}
	return controllers, dir, ok && memory
}

// number reads a file with one number. It returns 0 for "max" and invalid content.
func number(file string) int64 {
	b, _ := os.ReadFile(file) // empty without the file
	n, err := strconv.ParseInt(string(bytes.TrimSpace(b)), 10, 64)
	if err != nil || n >= 1<<60 { // cgroup v1's value for no limit
		return 0
	}
	return n
}

// machine returns MemTotal, or 0 if unknown.
func machine(root string) int64 {
	b, _ := os.ReadFile(path.Join(root, "proc/meminfo")) // empty without the file
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if f := strings.Fields(s.Text()); len(f) >= 2 && f[0] == "MemTotal:" {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n << 10
		}
	}
	return 0
}

// ParseSize parses a size such as 512MiB, 2GiB, 1.5G or a plain number of bytes.
func ParseSize(s string) (int64, error) {
	units := []struct {
		suffix string
		bytes  float64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"B", 1}, {"", 1}}
	for _, u := range units {
		if text, ok := strings.CutSuffix(s, u.suffix); ok {
			n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
			if err != nil || !(n >= 0) || n*u.bytes >= 1<<60 {
				break
			}
			return int64(n * u.bytes), nil
		}
	}
	return 0, fmt.Errorf("budget: size %q: want a number with KiB, MiB or GiB", s)
}
