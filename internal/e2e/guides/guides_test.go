package guides

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

// Commands of the tutorials use fixed ports.
func TestMain(m *testing.M) { os.Exit(testkit.RunApart(m)) }

const root = "../../.."

// block is one shell block of a page.
type block struct {
	line   int
	script string
	until  string // output to wait for, of a block that runs in the background
	skip   string // reason why it is not run
	output string // the text block after it; "": none
}

var fence = regexp.MustCompile("(?ms)^(?:<!-- (not run|background until): (.*?) -->\n)?```(\\w+)\n(.*?)^```$")

// parse returns the shell blocks of a page. It returns an error for a control comment that is not
// directly before a shell block.
func parse(page string) ([]block, error) {
	var list []block
	controls := 0
	for _, m := range fence.FindAllStringSubmatchIndex(page, -1) {
		text := func(i int) string {
			if m[2*i] < 0 {
				return ""
			}
			return page[m[2*i]:m[2*i+1]]
		}
		switch text(3) {
		case "sh":
			b := block{line: 1 + strings.Count(page[:m[0]], "\n"), script: text(4)}
			switch text(1) {
			case "not run":
				b.skip = text(2)
				controls++
			case "background until":
				b.until = text(2)
				controls++
			}
			list = append(list, b)
		case "text":
			if len(list) == 0 {
				return nil, fmt.Errorf("output %q has no shell block before it", text(4))
			}
			list[len(list)-1].output = text(4)
		}
	}
	if all := strings.Count(page, "<!-- not run:") + strings.Count(page, "<!-- background until:"); all != controls {
		return nil, fmt.Errorf("%d of %d control comments are not directly before a shell block", all-controls, all)
	}
	return list, nil
}

var digits = regexp.MustCompile(`[0-9a-f]*[0-9][0-9a-f.]*`)

// blur replaces all numbers other than 0 and all identifiers, which differ from run to run.
func blur(s string) string {
	return digits.ReplaceAllStringFunc(s, func(n string) string {
		if n == "0" {
			return n
		}
		return "#"
	})
}

// missing returns the first line of want that does not appear in got, in order; "" if all do.
func missing(want, got string) string {
	at := strings.Split(blur(got), "\n")
	for line := range strings.Lines(want) {
		line = strings.TrimRight(line, "\n ")
		if strings.TrimSpace(line) == "" || strings.TrimSpace(line) == "..." {
			continue
		}
		parts := strings.Split(blur(strings.ReplaceAll(line, "...", "\x00")), "\x00")
		for i := range parts {
			parts[i] = spaces.ReplaceAllString(regexp.QuoteMeta(parts[i]), `\s+`)
		}
		pattern := regexp.MustCompile("^" + strings.Join(parts, ".*") + `\s*$`)
		for len(at) > 0 && !pattern.MatchString(at[0]) {
			at = at[1:]
		}
		if len(at) == 0 {
			return line
		}
		at = at[1:]
	}
	return ""
}

var spaces = regexp.MustCompile(` +`)

// output is what a background block has printed. It is safe for concurrent use.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// checkout copies the files of the repository into a new folder, as a clone has them.
func checkout(t *testing.T) string {
	t.Helper()
	list := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	list.Dir = root
	names, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	tar := exec.Command("bash", "-c", `tar --null -T - -c | tar -x -C "$0"`, dir)
	tar.Dir, tar.Stdin = root, bytes.NewReader(names)
	if out, err := tar.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return dir
}

func run(t *testing.T, path string) {
	page, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parse(string(page))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	dir, ran := checkout(t), 0
	for _, b := range blocks {
		if b.skip != "" {
			t.Logf("%s:%d: not run: %s", path, b.line, b.skip)
			continue
		}
		ran++
		var out output
		c := exec.Command("bash", "-euo", "pipefail", "-c", b.script)
		c.Dir, c.Stdout, c.Stderr = dir, &out, &out
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		if b.until == "" {
			err = c.Wait()
		} else {
			ended := make(chan error, 1)
			go func() { ended <- c.Wait() }()
			t.Cleanup(func() {
				_ = syscall.Kill(-c.Process.Pid, syscall.SIGTERM)
				<-ended
			})
			testkit.Await(t, fmt.Sprintf("%s:%d: output %q", path, b.line, b.until), func() bool {
				select {
				case err := <-ended:
					ended <- err
					t.Fatalf("%s:%d: ended early: %v\n%s", path, b.line, err, out.String())
				default:
				}
				return strings.Contains(out.String(), b.until)
			})
		}
		if err != nil {
			t.Fatalf("%s:%d: %v\n%s%s", path, b.line, err, b.script, out.String())
		}
		if line := missing(b.output, out.String()); line != "" {
			t.Errorf("%s:%d: the output has no line %q:\n%s", path, b.line, line, out.String())
		}
	}
	if ran < 3 {
		t.Errorf("%s: %d blocks were run, want 3 or more", path, ran)
	}
}

func TestLaptopTutorial(t *testing.T) { run(t, "docs/get-started/laptop.md") }

func TestMissingLine(t *testing.T) {
	got := "a 12 b\nready after 0.5s: x\nlast  column 7\n"
	for _, want := range []string{"a 3 b", "ready after 12.7s: x\nlast column 1", "...ready after...\n", "a 1 b\n...\nlast column 2"} {
		if line := missing(want, got); line != "" {
			t.Errorf("missing(%q) = %q, want none", want, line)
		}
	}
	for _, want := range []string{"a 0 b", "a 3 c", "last column 1\na 1 b", "ready"} {
		if missing(want, got) == "" {
			t.Errorf("missing(%q) found all lines, want one missing", want)
		}
	}
}

func TestParseRejectsStrayComments(t *testing.T) {
	if _, err := parse("<!-- not run: no engine -->\n\n```sh\nls\n```\n"); err == nil {
		t.Error("parse() accepts a comment that is not directly before its block")
	}
	list, err := parse("<!-- background until: ready -->\n```sh\nserve\n```\n\n```text\nready\n```\n")
	if err != nil || len(list) != 1 || list[0].until != "ready" || list[0].output != "ready\n" {
		t.Errorf("parse() = %+v, %v", list, err)
	}
}
