package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/grapevine-epp/grapevine/internal/testkit"
)

const (
	defaultList = "internal/testkit/steps/list.txt"
	small       = 64 << 10
	large       = 4 * small
)

func main() {
	only := flag.String("only", "", "tests whose package or name has this in it")
	verbose := flag.Bool("v", false, "print a line for each input")
	flag.Parse()
	list := defaultList
	if flag.NArg() > 0 {
		list = flag.Arg(0)
	}
	if err := run(list, *only, *verbose); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// law is one line of the list.
type law struct {
	pkg, test string
	k         float64 // statements a byte
	text      string  // of k
}

func parse(text string) (laws []law, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) == 0 || strings.HasPrefix(f[0], "#") {
			continue
		}
		if len(f) != 3 {
			return nil, fmt.Errorf("%q: want a package, a test and a number", line)
		}
		k, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", line, err)
		}
		laws = append(laws, law{f[0], f[1], k, f[2]})
	}
	return laws, nil
}

func run(list, only string, verbose bool) error {
	text, err := os.ReadFile(list)
	if err != nil {
		return err
	}
	laws, err := parse(string(text))
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "steps")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	broken := 0
	fmt.Printf("%-58s %6s %8s  %s\n", "decoder", "k", "most", "input that takes it")
	for _, l := range laws {
		if !strings.Contains(l.pkg+" "+l.test, only) {
			continue
		}
		most, input, err := l.measure(dir, verbose)
		if err != nil {
			return fmt.Errorf("%s %s: %w", l.pkg, l.test, err)
		}
		verdict := ""
		if most > l.k {
			verdict = "  BROKEN"
			broken++
		}
		fmt.Printf("%-58s %6g %8.2f  %s%s\n", l.pkg+" "+l.test, l.k, most, input, verdict)
	}
	if broken > 0 {
		return fmt.Errorf("%d laws are broken", broken)
	}
	return nil
}

// measure returns the most steps that a byte of any input of a test takes.
func (l *law) measure(dir string, verbose bool) (most float64, input string, err error) {
	binary := filepath.Join(dir, strings.ReplaceAll(l.pkg, "/", "-")+".test")
	if _, err := os.Stat(binary); errors.Is(err, os.ErrNotExist) {
		covered, err := product(l.pkg)
		if err != nil {
			return 0, "", err
		}
		if _, err := output(exec.Command("go", "test", "-c", "-covermode=count", "-coverpkg="+covered, "-o", binary, "./"+l.pkg)); err != nil {
			return 0, "", err
		}
	}
	b := &built{binary: binary, folder: l.pkg, test: l.test, profile: filepath.Join(dir, "profile")}
	names, err := b.inputs()
	if err != nil {
		return 0, "", err
	}
	for _, name := range names {
		var steps [3]float64
		for i, n := range [...]int{0, small, large} {
			if steps[i], err = b.steps(name, n); err != nil {
				return 0, "", fmt.Errorf("%s: %w", name, err)
			}
		}
		each := max((steps[1]-steps[0])/small, (steps[2]-steps[0])/large)
		if verbose {
			fmt.Printf("    %8.2f %8.2f  %s\n", (steps[1]-steps[0])/small, (steps[2]-steps[0])/large, name)
		}
		if _, short, _ := strings.Cut(name, ": "); each > most {
			most, input = each, short
		}
	}
	return most, input, nil
}

// product lists the module's packages that a package's tests depend on, except for packages used
// only by tests.
func product(pkg string) (list string, err error) {
	out, err := output(exec.Command("go", "list", "-deps", "-test", "-f", "{{if .Module}}{{if .Module.Main}}{{.ImportPath}}{{end}}{{end}}", "./"+pkg))
	if err != nil {
		return "", err
	}
	var all []string
	for _, p := range strings.Fields(string(out)) {
		if !strings.Contains(p, "/internal/testkit") && !strings.Contains(p, "/internal/parts") && !strings.HasSuffix(p, ".test") && !strings.HasSuffix(p, "_test") && !strings.Contains(p, "[") {
			all = append(all, p)
		}
	}
	return strings.Join(all, ","), nil
}

// built is a compiled test and the settings to run it.
type built struct{ binary, folder, test, profile string }

func (b *built) run(env ...string) ([]byte, error) {
	binary, err := filepath.Abs(b.binary)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(binary, "-test.run=^"+b.test+"$", "-test.coverprofile="+b.profile, "-test.v")
	cmd.Dir, cmd.Env = b.folder, append(os.Environ(), env...)
	return output(cmd)
}

// inputs returns the names of all inputs, each once.
func (b *built) inputs() (names []string, err error) {
	out, err := b.run(testkit.StepsOf + "=")
	if err != nil {
		return nil, err
	}
	seen := map[string]bool{}
	for line := range strings.Lines(string(out)) {
		name, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), testkit.StepsLine)
		if !ok {
			continue
		}
		if seen[name] {
			return nil, fmt.Errorf("two inputs are called %q", name)
		}
		seen[name] = true
		names = append(names, name)
	}
	if len(names) == 0 {
		return nil, errors.New("it calls no testkit function named Linear")
	}
	return names, nil
}

// steps returns how many statements run while an input is read.
func (b *built) steps(name string, n int) (read float64, err error) {
	for _, made := range [...]string{"1", ""} { // the steps to create the input are subtracted
		if _, err := b.run(testkit.StepsOf+"="+name, testkit.StepsBytes+"="+strconv.Itoa(n), testkit.StepsMade+"="+made); err != nil {
			return 0, err
		}
		text, err := os.ReadFile(b.profile)
		if err != nil {
			return 0, err
		}
		both, err := count(text)
		if err != nil {
			return 0, err
		}
		read = both - read
	}
	return read, nil
}

// count sums up a coverage profile: file:from,to, statements, how often they ran.
func count(profile []byte) (sum float64, err error) {
	for s := bufio.NewScanner(bytes.NewReader(profile)); s.Scan(); {
		f := strings.Fields(s.Text())
		if len(f) != 3 {
			continue // its mode
		}
		statements, err := strconv.ParseFloat(f[1], 64)
		if err != nil {
			return 0, err
		}
		times, err := strconv.ParseFloat(f[2], 64)
		if err != nil {
			return 0, err
		}
		sum += statements * times
	}
	return sum, nil
}

func output(cmd *exec.Cmd) ([]byte, error) {
	var out, wrong bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &wrong
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w\n%s%s", filepath.Base(cmd.Path), err, out.Bytes(), wrong.Bytes())
	}
	return out.Bytes(), nil
}
